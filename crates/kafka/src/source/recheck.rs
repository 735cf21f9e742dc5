//! While a partition is read: is it still the same log, and are the next messages still there?
//!
//! What librdkafka 2.12 does when a topic is deleted and created again under a running consumer, seen with Kafka 4.3:
//!
//! * The new topic is there again before librdkafka has missed the old one, and it is **longer** than where we read: half a
//!   second later librdkafka goes on at that offset in the new log. No error, no event, no rebalance; what lies below is never
//!   read. Its source says so too, in a remark that an offset reset is missing here.
//! * The same, but it is shorter: half a second later an `AutoOffsetReset` error.
//! * The topic is gone for longer than a refresh of the metadata: an `UnknownTopicOrPartition` error, then a rebalance that
//!   takes the partition away, and another one that gives it back. The group's committed offsets are deleted with the topic.
//!
//! So, whatever librdkafka says or does not say, the ids of the topics are asked for now and then (see `survey`), and whenever
//! an offset is doubted. Between two questions, for a few seconds, messages of the new log may be applied from where the old
//! one was left; that is why the partition then stops, instead of going on as if nothing had happened.

use std::time::{Duration, Instant};

use oncebox_core::inbox::StartPolicy;
use oncebox_core::source::Acquired;
use oncebox_core::source::{Known, StartError, start_at};
use rdkafka::consumer::Consumer;
use rdkafka::error::KafkaResult;
use tracing::{debug, warn};

use super::assignment::fetch_again;
use super::begin::{ANSWER_TIMEOUT, stop};
use super::partition::{Doubt, Phase};
use super::reader::Reader;
use super::survey::Answer;
use crate::error::Error;
use crate::log_ids::{LogIds, log_ids, log_of};

/// The wait before a check that got no answer is repeated.
const RECHECK_DELAY: Duration = Duration::from_secs(2);
impl Reader {
    /// Acts on what the broker says about the logs, and asks again when it is time.
    pub(super) fn check_logs(&mut self) -> Result<(), Error> {
        if let Some(Answer { asked, ends, logs }) = self.survey.answer()? {
            match logs {
                Ok(logs) => self.stop_if_another_log(&logs),
                Err(e) => {
                    debug!(consumer = self.intake.consumer(), error = %e, "the broker did not say which logs these are");
                }
            }
            match ends {
                Ok(ends) => {
                    for ((topic, number), end) in ends {
                        if let Some(partition) = self.partitions.get(&topic, number) {
                            partition.pass_on_log_end(end, asked);
                        }
                    }
                }
                Err(e) => {
                    debug!(consumer = self.intake.consumer(), error = %e, "the broker did not say where the logs end");
                }
            }
        }
        let flowing = || self.partitions.iter().filter(|p| p.phase == Phase::Flowing);
        self.survey.ask_if_due(|| flowing().map(|p| (p.topic.clone(), p.number)).collect());
        Ok(())
    }

    /// A topic that is not there now, or of which nothing is known, is not another log.
    fn stop_if_another_log(&mut self, logs: &LogIds) {
        for partition in self.partitions.iter_mut().filter(|p| p.phase == Phase::Flowing) {
            let Some(Ok(Some(is))) = logs.get(&*partition.topic) else { continue };
            if let (Some(was), Some(next)) = (partition.log(), partition.next_offset())
                && was.contradicts(is)
            {
                let reason = StartError::OtherLog { next, was: was.clone(), is: is.clone() };
                stop(self.intake.consumer(), partition, &reason);
            }
        }
    }

    /// Looks at the partitions that librdkafka has stopped fetching because of their offset.
    pub(super) fn resolve_doubts(&mut self) {
        let now = Instant::now();
        let due = |doubt: &Doubt| doubt.at <= now;
        let doubted: Vec<_> = self
            .partitions
            .iter_mut()
            .filter(|p| p.phase == Phase::Flowing)
            .filter_map(|p| Some((p.topic.to_string(), p.number, p.doubt.take_if(|doubt| due(doubt))?)))
            .collect();
        for (topic, number, doubt) in doubted {
            if let Err(e) = self.resolve(&topic, number, doubt) {
                let consumer = self.intake.consumer();
                warn!(consumer, topic, number, error = %e, "cannot compare with the broker; trying again");
                if let Some(partition) = self.partitions.get_mut(&topic, number) {
                    partition.doubt = Some(Doubt { at: Instant::now() + RECHECK_DELAY, ..doubt });
                }
            }
        }
    }

    /// Compares where the partition reads with what the broker has. It stops if its next messages are gone: deleted before
    /// they were read, or replaced because the topic was deleted and created again, or because its log lost its end. If
    /// they are there after all, it is fetched again.
    fn resolve(&mut self, topic: &str, number: i32, doubt: Doubt) -> KafkaResult<()> {
        let (low, high) = self.consumer.fetch_watermarks(topic, number, ANSWER_TIMEOUT)?;
        let log = log_of(topic, &log_ids(self.consumer.client(), &[topic], ANSWER_TIMEOUT)?)?;
        let Some(partition) = self.partitions.get_mut(topic, number) else { return Ok(()) };
        partition.high = Some(high);
        let Some(next) = partition.next_offset() else { return Ok(()) };
        let stored =
            Acquired { next_offset: Some(next), log: partition.log().cloned(), ..Acquired::default() };
        let known = Known { stored, committed: None, log, low, high };
        if let Err(reason) = start_at(known, StartPolicy::Fail) {
            stop(self.intake.consumer(), partition, &reason);
            return Ok(());
        }
        if doubt.truncated {
            stop(self.intake.consumer(), partition, &StartError::LostEnd { next });
            return Ok(());
        }
        partition.raise_read_from(low);
        warn!(
            consumer = self.intake.consumer(),
            place = partition.place(),
            next,
            "fetching the partition again"
        );
        fetch_again(&self.consumer, &self.partitions, topic, number)
    }
}

//! While reading: is it still the same log, are the next messages still there?
//!
//! What librdkafka 2.12 does when a topic is deleted and created anew under a running consumer, seen with Kafka 4.3:
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
use rdkafka::statistics::Statistics;
use tracing::{debug, warn};

use crate::assignment::fetch_again;
use crate::begin::{ANSWER, stop};
use crate::error::Error;
use crate::log_ids::{LogIds, log_ids, log_of};
use crate::partition::{Doubt, Phase};
use crate::reader::Reader;
use crate::survey::Answer;

/// How soon a check that got no answer is done again.
const AGAIN: Duration = Duration::from_secs(2);
/// Between two states a partition is not fetched for a moment. This many statistics in a row are no moment.
const STALLED: u32 = 6;

impl Reader {
    /// Acts on what the broker says about the logs, and asks again when it is time.
    pub(crate) fn keep_watch(&mut self) -> Result<(), Error> {
        if let Some(Answer { asked, ends, logs }) = self.survey.answer()? {
            match logs {
                Ok(logs) => self.stop_if_another_log(&logs),
                Err(e) => {
                    debug!(consumer = self.intake.consumer(), error = %e, "the ids of the logs are not told");
                }
            }
            match ends {
                Ok(ends) => {
                    for ((topic, number), end) in ends {
                        if let Some(partition) = self.partitions.get(&topic, number) {
                            partition.log_ends_at(end, asked);
                        }
                    }
                }
                Err(e) => {
                    debug!(consumer = self.intake.consumer(), error = %e, "the ends of the logs are not told");
                }
            }
        }
        let flowing = || self.partitions.iter().filter(|p| p.phase == Phase::Flowing);
        self.survey.ask_if_due(|| flowing().map(|p| (p.topic.clone(), p.number)).collect());
        Ok(())
    }

    /// A topic that is not there now, or of which nothing is known, is no other log.
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
    pub(crate) fn resolve_doubts(&mut self) {
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
                    partition.doubt = Some(Doubt { at: Instant::now() + AGAIN, ..doubt });
                }
            }
        }
    }

    /// Compares where the partition reads with what the broker has. It stops if its next messages are gone: deleted before
    /// they were read, or replaced because the topic was deleted and made anew, or because its log lost its end. If they
    /// are there after all, it is fetched anew.
    fn resolve(&mut self, topic: &str, number: i32, doubt: Doubt) -> KafkaResult<()> {
        let (low, high) = self.consumer.fetch_watermarks(topic, number, ANSWER)?;
        let log = log_of(topic, &log_ids(self.consumer.client(), &[topic], ANSWER)?)?;
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
        partition.begins_no_lower_than(low);
        warn!(consumer = self.intake.consumer(), place = partition.place(), next, "fetching anew");
        fetch_again(&self.consumer, &self.partitions, topic, number)
    }

    /// Takes in what the statistics say about our partitions.
    pub(crate) fn take_in(&mut self, statistics: &Statistics) -> Result<(), Error> {
        let connected = self.health.is_connected();
        for partition in self.partitions.iter_mut() {
            let topic = statistics.topics.get(&*partition.topic);
            let Some(seen) = topic.and_then(|t| t.partitions.get(&partition.number)) else { continue };
            if seen.hi_offset >= 0 {
                partition.high = Some(seen.hi_offset);
            }
            let resting = connected && partition.phase == Phase::Flowing && seen.fetch_state != "active";
            partition.stalled = if resting { partition.stalled + 1 } else { 0 };
            if partition.stalled > STALLED {
                let (place, state) = (partition.place(), &seen.fetch_state);
                return Err(Error::Fatal(format!("{place} is not fetched any more (state {state})")));
            }
        }
        Ok(())
    }
}

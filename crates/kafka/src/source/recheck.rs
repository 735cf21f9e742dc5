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
//! So, whatever librdkafka says or does not say, the ids of the topics are asked for now and then (see `ask`), and whenever
//! an offset is doubted. Between two questions, for a few seconds, messages of the new log may be applied from where the old
//! one was left; that is why the partition then stops, instead of going on as if nothing had happened.

use std::time::{Duration, Instant};

use oncebox_core::inbox::StartPolicy;
use oncebox_core::source::Acquired;
use oncebox_core::source::{Known, StartError, start_at};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use tracing::{debug, warn};

use super::ask::{About, Asked, Seen};
use super::assignment::fetch_again;
use super::begin::stop;
use super::partition::Phase;
use super::reader::Reader;
use crate::ends::Place;

/// The wait before a doubt is looked into: a broker that has just become the leader may not know its own log for a moment.
const DOUBT_DELAY: Duration = Duration::from_millis(200);
/// The wait before a check that got no answer is repeated.
const RECHECK_DELAY: Duration = Duration::from_secs(2);
/// How often the logs are looked at.
const SURVEY_INTERVAL: Duration = Duration::from_secs(5);
/// What is added to that for each partition: thousands are looked at more seldom.
const SURVEY_INTERVAL_EACH: Duration = Duration::from_millis(1);
/// The wait after a partition has begun. By then the record that shows whether its log was rewritten has been read, as a
/// rule, and several partitions that begin one after the other are asked for at once.
const FIRST_SURVEY_DELAY: Duration = Duration::from_millis(500);

/// When to look at the logs.
#[derive(Debug)]
pub(super) struct Surveys {
    due: Instant,
    /// How many partitions were asked about and not answered yet.
    open: usize,
}

impl Surveys {
    pub(super) fn new() -> Self {
        Self { due: Instant::now() + SURVEY_INTERVAL, open: 0 }
    }
}

impl Reader {
    /// To be called when a partition has begun.
    pub(super) fn survey_soon(&mut self) {
        self.surveys.due = self.surveys.due.min(Instant::now() + FIRST_SURVEY_DELAY);
    }

    /// Asks about all that flow, if it is time and the last answers are there.
    pub(super) fn survey_if_due(&mut self) {
        if self.surveys.open > 0 || Instant::now() < self.surveys.due {
            return;
        }
        let each =
            SURVEY_INTERVAL_EACH.saturating_mul(u32::try_from(self.partitions.len()).unwrap_or(u32::MAX));
        self.surveys.due = Instant::now() + SURVEY_INTERVAL + each;
        let flowing = self.partitions.iter().filter(|p| p.phase == Phase::Flowing);
        let asked: Vec<Asked> = flowing.map(super::partition::Partition::question).collect();
        self.surveys.open = asked.len();
        self.asker.ask(About::Survey, asked);
    }

    /// Acts on what the broker says about logs that are read.
    pub(super) fn compare(&mut self, seen: Vec<(Asked, KafkaResult<Seen>)>, at: tokio::time::Instant) {
        self.surveys.open = self.surveys.open.saturating_sub(seen.len());
        for (asked, seen) in seen {
            let Some(partition) = self.partitions.asked(&asked).filter(|p| p.phase == Phase::Flowing) else {
                continue;
            };
            match seen {
                // A topic that is not there now, or of which nothing is known, is not another log.
                Ok(Seen { high, log, .. }) => {
                    if let (Some(was), Some(is), Some(next)) = (partition.log(), log, partition.next_offset())
                        && was.contradicts(&is)
                    {
                        let reason = StartError::OtherLog { next, was: was.clone(), is };
                        stop(self.intake.consumer(), partition, &reason);
                    } else {
                        partition.pass_on_log_end(high, at);
                    }
                }
                Err(e) => {
                    debug!(consumer = self.intake.consumer(), place = partition.place(), error = %e, "not told where the log ends");
                }
            }
        }
    }

    /// librdkafka has stopped fetching a partition because of its offset.
    pub(super) fn note_doubt(&mut self, place: Place) {
        self.agenda.doubt_later(place, DOUBT_DELAY);
    }

    /// Asks about the partitions that are in doubt.
    pub(super) fn ask_about_doubts(&mut self) {
        let mut doubted = Vec::new();
        for (topic, number) in self.agenda.doubts_due() {
            let partition = self.partitions.get_mut(&topic, number);
            let doubtful = |p: &&mut super::partition::Partition| {
                p.phase == Phase::Flowing && p.doubt.is_some() && !p.asked
            };
            if let Some(partition) = partition.filter(doubtful) {
                partition.asked = true;
                doubted.push(partition.question());
            }
        }
        self.asker.ask(About::Doubt, doubted);
    }

    /// Acts on what the broker says about partitions that are in doubt.
    pub(super) fn resolve_doubts(&mut self, seen: Vec<(Asked, KafkaResult<Seen>)>) {
        for (asked, seen) in seen {
            let Some(partition) = self.partitions.asked(&asked).filter(|p| p.phase == Phase::Flowing) else {
                continue;
            };
            partition.asked = false;
            if let Err(e) = seen.and_then(|seen| self.resolve(&asked.place, seen)) {
                let (topic, number) = &asked.place;
                debug!(consumer = self.intake.consumer(), %topic, number, error = %e, "cannot compare with the broker; trying again");
                self.agenda.doubt_later(asked.place, RECHECK_DELAY);
            }
        }
    }

    /// Compares where the partition reads with what the broker has. It stops if its next messages are gone: deleted before
    /// they were read, or replaced because the topic was deleted and created again, or because its log lost its end. If
    /// they are there after all, it is fetched again.
    fn resolve(&mut self, (topic, number): &Place, seen: Seen) -> KafkaResult<()> {
        let low = seen.low.ok_or(KafkaError::OffsetFetch(RDKafkaErrorCode::NoOffset))?;
        let Some(partition) = self.partitions.get_mut(topic, *number) else { return Ok(()) };
        let Some(doubt) = partition.doubt else { return Ok(()) };
        partition.high = Some(seen.high);
        let Some(next) = partition.next_offset() else { return Ok(()) };
        let stored =
            Acquired { next_offset: Some(next), log: partition.log().cloned(), ..Acquired::default() };
        let known = Known { stored, committed: None, log: seen.log, low, high: seen.high };
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
        fetch_again(&self.consumer, &self.partitions, topic, *number)?;
        if let Some(partition) = self.partitions.get_mut(topic, *number) {
            partition.doubt = None;
        }
        Ok(())
    }
}

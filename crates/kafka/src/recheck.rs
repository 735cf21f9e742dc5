//! While reading: are the next messages still there?

use std::time::{Duration, Instant};

use oncebox_core::{Known, StartPolicy, start_at};
use rdkafka::consumer::Consumer;
use rdkafka::error::KafkaResult;
use rdkafka::statistics::Statistics;
use tracing::warn;

use crate::assignment::fetch_again;
use crate::begin::{ANSWER, stop};
use crate::error::Error;
use crate::partition::{Doubt, Phase};
use crate::reader::Reader;

/// How soon a check that got no answer is done again.
const AGAIN: Duration = Duration::from_secs(2);
/// Between two states a partition is not fetched for a moment. This many statistics in a row are no moment.
const STALLED: u32 = 6;

impl Reader {
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
        let Some(partition) = self.partitions.get_mut(topic, number) else { return Ok(()) };
        partition.high = Some(high);
        let Some(next) = partition.next_offset() else { return Ok(()) };
        let known = Known { position: Some(next), committed: None, low, high };
        if let Err(reason) = start_at(known, StartPolicy::Fail) {
            stop(self.intake.consumer(), partition, &reason.to_string());
            return Ok(());
        }
        if doubt.truncated {
            let reason = "the broker has lost messages at the end of the topic that were read already, and others may have \
                          taken their place. Set next_offset in oncebox_position to where reading shall go on";
            stop(self.intake.consumer(), partition, reason);
            return Ok(());
        }
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

//! What librdkafka's statistics say, every few seconds: can brokers be reached, where do logs end, and is everything fetched
//! that should be?

use rdkafka::statistics::Statistics;

use super::partition::Phase;
use super::reader::Reader;
use crate::error::Error;

/// Between two states a partition is not fetched for a moment. In this many statistics in a row it is more than a moment.
const MAX_RESTING: u32 = 6;

impl Reader {
    /// Takes in what the statistics say about the brokers, the group and our partitions.
    pub(super) fn take_in_statistics(&mut self, statistics: &Statistics) -> Result<(), Error> {
        let up = statistics.brokers.values().any(|broker| broker.state == "UP");
        let coordinated = statistics.cgrp.as_ref().is_some_and(|group| group.state == "up");
        self.health.note_connections(up, coordinated);
        let connected = self.health.is_connected();
        for partition in self.partitions.iter_mut() {
            let topic = statistics.topics.get(&*partition.topic);
            let Some(seen) = topic.and_then(|t| t.partitions.get(&partition.number)) else { continue };
            if seen.hi_offset >= 0 {
                partition.high = Some(seen.hi_offset);
            }
            let resting = connected && partition.phase == Phase::Flowing && seen.fetch_state != "active";
            partition.stalled = if resting { partition.stalled + 1 } else { 0 };
            if partition.stalled > MAX_RESTING {
                let (place, state) = (partition.place(), &seen.fetch_state);
                return Err(Error::Fatal(format!("{place} is not fetched any more (state {state})")));
            }
        }
        Ok(())
    }
}

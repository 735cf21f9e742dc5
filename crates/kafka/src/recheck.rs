//! While reading: are the next messages still there?

use oncebox_core::{Known, StartPolicy, start_at};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaResult;
use rdkafka::statistics::Statistics;
use rdkafka::topic_partition_list::Offset;
use tracing::warn;

use crate::assignment::fetch_again;
use crate::begin::{ANSWER, stop};
use crate::callbacks::Callbacks;
use crate::error::Error;
use crate::flow::{pause, resume};
use crate::partition::{Partition, Phase};
use crate::reader::Reader;

/// Between two states a partition is not fetched for a moment. This many statistics in a row are no moment.
const STALLED: u32 = 6;

impl Reader {
    /// Compares where each partition reads with what the broker has, and stops those whose next messages are gone: deleted
    /// before they were read, or replaced because the topic was deleted and made anew, or because its log lost its end.
    ///
    /// librdkafka has stopped fetching the partition in question. Which one that is the binding does not tell, so all are
    /// looked at, and one that only suffered a passing trouble is fetched anew.
    pub(crate) fn recheck(&mut self, truncated: Option<&str>) -> KafkaResult<()> {
        let mut given_up = Vec::new();
        for partition in self.partitions.iter_mut().filter(|p| p.is_fetched()) {
            let (low, high) = self.consumer.fetch_watermarks(&partition.topic, partition.number, ANSWER)?;
            partition.high = Some(high);
            let Some(next) = partition.next_offset() else { continue };
            let known = Known { position: Some(next), committed: None, low, high };
            let reason = match start_at(known, StartPolicy::Fail) {
                Err(reason) => reason.to_string(),
                Ok(_) if !is_given_up(&self.consumer, partition, next)? => continue,
                Ok(_) => match truncated {
                    Some(reason) => format!(
                        "the broker lost messages that were read already ({reason}); others may have taken their place. \
                         Set next_offset in oncebox_position to where reading shall go on"
                    ),
                    None => {
                        given_up.push((partition.topic.to_string(), partition.number, next));
                        continue;
                    }
                },
            };
            pause(&self.consumer, partition)?;
            stop(self.intake.consumer(), partition, &reason);
        }
        for (topic, number, next) in given_up {
            let Some(partition) = self.partitions.get_mut(&topic, number) else { continue };
            warn!(consumer = self.intake.consumer(), place = partition.place(), next, "fetching anew");
            resume(&self.consumer, partition)?;
            partition.phase = Phase::Flowing;
            if let Some(partition) = self.partitions.get(&topic, number) {
                fetch_again(&self.consumer, &self.partitions, partition, next)?;
            }
        }
        Ok(())
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

/// A partition that is being fetched can seek to where it is; one that librdkafka has given up on cannot.
fn is_given_up(consumer: &BaseConsumer<Callbacks>, partition: &Partition, next: i64) -> KafkaResult<bool> {
    let sought = consumer.seek_partitions(partition.list(Offset::Offset(next))?, ANSWER)?;
    Ok(sought.elements().iter().any(|e| e.error().is_err()))
}

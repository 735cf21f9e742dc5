//! Committing offsets at the broker: a hint for people, tools and the next start, never the truth.
//!
//! Always an explicit list, never librdkafka's stored offsets: it sends those at times of its own, after a revoke for example,
//! and then they rewind the offset of the next owner. Never waiting for the answer, since the thread must poll: before it
//! rejoins or leaves the group librdkafka itself waits for commits that are on their way, so one that is sent before a
//! revoke is answered reaches the coordinator before anybody else gets the partition.
//!
//! The binding does not pass on whether a commit worked. Those sent during a rebalance do not: they wait behind it on the
//! same connection and are outdated when it is over. So offsets that have not changed are sent again after each rebalance,
//! when partitions are given back, and now and then.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaResult;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tracing::debug;

use super::callbacks::Callbacks;
use super::partition::{Partition, Partitions};
use crate::ends::OURS;

/// How often unchanged offsets are sent again.
const REPEAT_INTERVAL: Duration = Duration::from_secs(30);

/// When to commit.
#[derive(Debug)]
pub(super) struct Commits {
    interval: Duration,
    due: Instant,
    repeat: Instant,
}

impl Commits {
    pub(super) fn every(interval: Duration) -> Self {
        let now = Instant::now();
        Self { interval, due: now + interval, repeat: now + REPEAT_INTERVAL }
    }

    /// Commits what was settled since the last time, if it is time.
    pub(super) fn commit_if_due(&mut self, consumer: &BaseConsumer<Callbacks>, partitions: &mut Partitions) {
        let now = Instant::now();
        if now < self.due {
            return;
        }
        self.due = now + self.interval;
        if now >= self.repeat {
            self.repeat = now + REPEAT_INTERVAL;
            partitions.iter_mut().for_each(|p| p.committed = None);
        }
        commit(consumer, partitions.iter_mut());
    }
}

/// Commits what is settled, whether it was sent before or not.
pub(super) fn commit_again(consumer: &BaseConsumer<Callbacks>, partitions: &mut [Partition]) {
    partitions.iter_mut().for_each(|p| p.committed = None);
    commit(consumer, partitions.iter_mut());
}

/// Commits what is settled and was not sent yet. Within one assignment that never goes back.
fn commit<'a>(consumer: &BaseConsumer<Callbacks>, partitions: impl Iterator<Item = &'a mut Partition>) {
    let advanced: Vec<(&mut Partition, i64)> = partitions
        .filter_map(|p| p.stream.settled().map(|settled| (p, settled)))
        .filter(|(p, settled)| p.committed.is_none_or(|committed| committed < *settled))
        .collect();
    if advanced.is_empty() {
        return;
    }
    match list_of(&advanced).and_then(|list| consumer.commit(&list, CommitMode::Async)) {
        Ok(()) => advanced.into_iter().for_each(|(partition, settled)| partition.committed = Some(settled)),
        Err(error) => debug!(%error, "offsets not sent; they will be part of the next commit"),
    }
}

fn list_of(offsets: &[(&mut Partition, i64)]) -> KafkaResult<TopicPartitionList> {
    let mut list = TopicPartitionList::with_capacity(offsets.len());
    for (partition, offset) in offsets {
        list.add_partition_offset(&partition.topic, partition.number, Offset::Offset(*offset))?;
    }
    // Whoever sets an offset by other means can be told by it.
    list.elements().iter_mut().for_each(|element| element.set_metadata(OURS));
    Ok(list)
}

//! Committing offsets at the broker: a hint for people, tools and `start`, never the truth.
//!
//! Always an explicit list, never librdkafka's stored offsets: those are sent by it at times of its own, after a revoke for
//! example, when they rewind the offset of the next owner.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tracing::{debug, warn};

use crate::callbacks::Callbacks;
use crate::partition::{Partition, Partitions};

/// An answer that does not come within this time will not come.
const LOST: Duration = Duration::from_secs(60);

/// The commits of one consumer: on a timer, one in flight at a time.
#[derive(Debug)]
pub(crate) struct Commits {
    interval: Duration,
    due: Instant,
    in_flight: Option<InFlight>,
}

#[derive(Debug)]
struct InFlight {
    since: Instant,
    offsets: Vec<(u64, i64)>,
}

impl Commits {
    pub(crate) fn every(interval: Duration) -> Self {
        Self { interval, due: Instant::now() + interval, in_flight: None }
    }

    pub(crate) fn in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Commits what was settled since the last time, if it is time.
    pub(crate) fn commit_due(&mut self, consumer: &BaseConsumer<Callbacks>, partitions: &Partitions) {
        let now = Instant::now();
        if now < self.due || self.in_flight.as_ref().is_some_and(|c| c.since.elapsed() < LOST) {
            return;
        }
        self.due = now + self.interval;
        self.commit(consumer, partitions.iter());
    }

    /// Commits what was settled since the last time, without waiting for the answer.
    pub(crate) fn commit<'a>(
        &mut self,
        consumer: &BaseConsumer<Callbacks>,
        partitions: impl Iterator<Item = &'a Partition>,
    ) {
        let offsets: Vec<_> = partitions.filter_map(|p| Some((p, advanced(p)?))).collect();
        if offsets.is_empty() {
            return;
        }
        let sent = list_of(&offsets).and_then(|list| consumer.commit(&list, CommitMode::Async));
        match sent {
            Ok(()) => {
                let offsets = offsets.iter().map(|(p, offset)| (p.generation, *offset)).collect();
                self.in_flight = Some(InFlight { since: Instant::now(), offsets });
            }
            Err(e) => report(&e),
        }
    }

    /// The answer to the commit in flight. A partition that was given away meanwhile has another generation by now, if it
    /// came back, and is left alone. What failed is part of the next commit.
    pub(crate) fn ended(&mut self, result: &KafkaResult<()>, partitions: &mut Partitions) {
        let Some(sent) = self.in_flight.take() else { return };
        if let Err(e) = result {
            return report(e);
        }
        for partition in partitions.iter_mut() {
            if let Some((_, offset)) =
                sent.offsets.iter().find(|(generation, _)| *generation == partition.generation)
            {
                partition.committed = Some(*offset);
            }
        }
    }
}

/// Commits and waits for the answer: for partitions that are given back.
pub(crate) fn commit_now(consumer: &BaseConsumer<Callbacks>, partitions: &[Partition]) -> KafkaResult<()> {
    let offsets: Vec<_> = partitions.iter().filter_map(|p| Some((p, advanced(p)?))).collect();
    if offsets.is_empty() {
        return Ok(());
    }
    consumer.commit(&list_of(&offsets)?, CommitMode::Sync)
}

/// What can be committed that was not. Never goes back within one assignment.
fn advanced(partition: &Partition) -> Option<i64> {
    let settled = partition.stream.settled()?;
    (partition.committed.is_none_or(|committed| committed < settled)).then_some(settled)
}

fn list_of(offsets: &[(&Partition, i64)]) -> KafkaResult<TopicPartitionList> {
    let mut list = TopicPartitionList::with_capacity(offsets.len());
    for (partition, offset) in offsets {
        list.add_partition_offset(&partition.topic, partition.number, Offset::Offset(*offset))?;
    }
    Ok(list)
}

/// After a rebalance a commit that was on its way is refused, as it should be.
fn report(error: &KafkaError) {
    use RDKafkaErrorCode::{
        AssignmentLost, IllegalGeneration, NoOffset, RebalanceInProgress, State, UnknownMemberId,
    };
    let expected = [AssignmentLost, IllegalGeneration, NoOffset, RebalanceInProgress, State, UnknownMemberId];
    if error.rdkafka_error_code().is_some_and(|code| expected.contains(&code)) {
        debug!(%error, "offsets were not committed: the group has moved on");
    } else {
        warn!(%error, "offsets were not committed; they will be part of the next commit");
    }
}

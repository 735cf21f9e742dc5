//! Where reading of a partition begins: once the engine owns its position and the broker has told what it still has.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use oncebox_core::{Known, start_at};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tracing::{debug, error, warn};

use crate::assignment::{fetch_started, split_queue};
use crate::callbacks::Callbacks;
use crate::partition::{Partition, Phase};
use crate::reader::Reader;

/// The longest wait for one answer. Everything else stands still meanwhile, so it is short.
pub(crate) const ANSWER: Duration = Duration::from_secs(1);
/// After this long in one pass the others wait for the next pass.
const PASS: Duration = Duration::from_secs(1);

type Committed = HashMap<(String, i32), KafkaResult<Option<i64>>>;

impl Reader {
    /// Begins with the partitions that are ready. What fails is tried again later; nothing here ends the loop.
    pub(crate) fn begin_ready(&mut self) {
        let now = Instant::now();
        let mut ready: Vec<&mut Partition> = self.partitions.iter_mut().filter(|p| p.is_ready(now)).collect();
        if ready.is_empty() {
            return;
        }
        let committed = committed_offsets(&self.consumer, &ready);
        for partition in &mut ready {
            if now.elapsed() > PASS {
                break;
            }
            let known = committed.as_ref().map_err(Clone::clone).and_then(|all| {
                let committed = all.get(&(partition.topic.to_string(), partition.number)).cloned();
                let (low, high) =
                    self.consumer.fetch_watermarks(&partition.topic, partition.number, ANSWER)?;
                let position = partition.stream.acquired().and_then(|acquired| acquired.position);
                Ok(Known { position, committed: committed.unwrap_or(Ok(None))?, low, high })
            });
            let known = known.and_then(|known| split_queue(&self.consumer, partition).map(|()| known));
            match known {
                Ok(known) => {
                    partition.high = Some(known.high);
                    match start_at(known, self.intake.start_policy()) {
                        Ok(offset) => partition.start = Some(offset),
                        Err(reason) => stop(self.intake.consumer(), partition, &reason.to_string()),
                    }
                }
                Err(e) => try_again(self.intake.consumer(), partition, &e),
            }
        }
        if ready.iter().any(|p| p.start.is_some()) {
            self.fetch_those_with_a_start();
        }
    }

    fn fetch_those_with_a_start(&mut self) {
        let begun = fetch_started(&self.consumer, &self.partitions);
        for partition in self.partitions.iter_mut().filter(|p| matches!(p.phase, Phase::Waiting { .. })) {
            let Some(start) = partition.start else { continue };
            match &begun {
                Ok(()) => {
                    debug!(
                        consumer = self.intake.consumer(),
                        place = partition.place(),
                        start,
                        "reading begins"
                    );
                    partition.phase = Phase::Flowing;
                    partition.stream.start(start);
                }
                Err(e) => {
                    // The log may look different when it is tried again.
                    partition.start = None;
                    try_again(self.intake.consumer(), partition, e);
                }
            }
        }
    }
}

/// The committed offsets of these partitions, in one request.
fn committed_offsets(
    consumer: &BaseConsumer<Callbacks>,
    wanted: &[&mut Partition],
) -> KafkaResult<Committed> {
    let mut list = TopicPartitionList::with_capacity(wanted.len());
    for partition in wanted {
        list.add_partition(&partition.topic, partition.number);
    }
    let answer = consumer.committed_offsets(list, ANSWER)?;
    let offset = |offset| if let Offset::Offset(offset) = offset { Some(offset) } else { None };
    let elements = answer.elements();
    Ok(elements
        .iter()
        .map(|e| ((e.topic().to_owned(), e.partition()), e.error().map(|()| offset(e.offset()))))
        .collect())
}

/// The partition stays ours, so that no other process of the group runs into the same wall.
pub(crate) fn stop(consumer: &str, partition: &mut Partition, reason: &str) {
    let reason =
        format!("consumer {consumer}, topic {}, partition {}: {reason}", partition.topic, partition.number);
    error!(consumer, place = partition.place(), reason, "the partition cannot be read");
    partition.stream.stop(reason);
    partition.phase = Phase::Stopped;
}

fn try_again(consumer: &str, partition: &mut Partition, reason: &KafkaError) {
    let failures = match partition.phase {
        Phase::Waiting { failures, .. } => failures + 1,
        _ => 1,
    };
    warn!(consumer, place = partition.place(), error = %reason, failures, "the partition cannot begin yet; trying again");
    let wait = Duration::from_millis(50).saturating_mul(1 << failures.min(6)).min(Duration::from_secs(2));
    partition.phase = Phase::Waiting { next_try: Instant::now() + wait, failures };
}

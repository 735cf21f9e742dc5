//! Begins to read a partition, once the engine owns its position and the broker has said what it still has.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use oncebox_core::backoff;
use oncebox_core::source::{Known, Start, StartError, start_at};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tracing::{debug, error, warn};

use super::assignment::{fetch_started, split_queue};
use super::callbacks::Callbacks;
use super::partition::{Partition, Phase};
use super::reader::Reader;
use crate::log_ids::{LogIds, log_ids, log_of};

/// How long an answer may take. Everything else stands still meanwhile, so it is short.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// After this long the partitions that are left wait for the next pass.
const PASS_LIMIT: Duration = Duration::from_secs(1);

type Committed = HashMap<(String, i32), KafkaResult<Option<i64>>>;

impl Reader {
    /// Begins with the partitions that are ready. What fails is tried again later; nothing here ends the loop.
    pub(super) fn begin_ready(&mut self) {
        let now = Instant::now();
        let ready: Vec<&mut Partition> = self.partitions.iter_mut().filter(|p| p.is_ready(now)).collect();
        if ready.is_empty() {
            return;
        }
        let committed = committed_offsets(&self.consumer, &ready);
        let mut looked_at = Vec::with_capacity(ready.len());
        for partition in ready {
            if now.elapsed() > PASS_LIMIT {
                break;
            }
            let ends = committed.as_ref().map_err(Clone::clone).and_then(|_| {
                self.consumer.fetch_watermarks(&partition.topic, partition.number, ANSWER_TIMEOUT)
            });
            looked_at.push((partition, ends));
        }
        // Asked for last: whatever was found out before belongs to this log or to an earlier one, never to a later one.
        let topics: BTreeSet<&str> = looked_at.iter().map(|(partition, _)| &*partition.topic).collect();
        let logs = log_ids(self.consumer.client(), &topics.into_iter().collect::<Vec<_>>(), ANSWER_TIMEOUT);
        let mut any = false;
        for (partition, ends) in looked_at {
            let known = ends.and_then(|ends| known(partition, ends, &committed, &logs));
            let known = known.and_then(|known| split_queue(&self.consumer, partition).map(|()| known));
            match known {
                Ok(known) => {
                    partition.high = Some(known.high);
                    match start_at(known, self.intake.start_policy()) {
                        Ok(start) => partition.start = Some(start),
                        Err(reason) => stop(self.intake.consumer(), partition, &reason),
                    }
                }
                Err(e) => try_again(self.intake.consumer(), partition, &e),
            }
            any |= partition.start.is_some();
        }
        if any {
            self.fetch_those_with_a_start();
        }
    }

    fn fetch_those_with_a_start(&mut self) {
        let begun = fetch_started(&self.consumer, &self.partitions);
        let consumer = self.intake.consumer();
        for partition in self.partitions.iter_mut().filter(|p| matches!(p.phase, Phase::Waiting { .. })) {
            let Some(start) = partition.start.clone() else { continue };
            match &begun {
                Ok(()) => {
                    debug!(consumer, place = partition.place(), start = start.offset, "reading begins");
                    warn_if_not_followed(partition, &start);
                    partition.phase = Phase::Flowing;
                    partition.flowing_since = Some(Instant::now());
                    partition.stream.start(start);
                    self.survey.ask_soon();
                }
                Err(e) => {
                    // The log may look different when it is tried again.
                    partition.start = None;
                    try_again(consumer, partition, e);
                }
            }
        }
    }
}

/// Puts together what is known about one partition.
fn known(
    partition: &Partition,
    (low, high): (i64, i64),
    committed: &KafkaResult<Committed>,
    logs: &KafkaResult<LogIds>,
) -> KafkaResult<Known> {
    let committed = committed.as_ref().map_err(Clone::clone)?;
    let place = (partition.topic.to_string(), partition.number);
    Ok(Known {
        stored: partition.stream.acquired().unwrap_or_default(),
        committed: committed.get(&place).cloned().unwrap_or(Ok(None))?,
        log: log_of(&partition.topic, logs.as_ref().map_err(Clone::clone)?)?,
        low,
        high,
    })
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
    let answer = consumer.committed_offsets(list, ANSWER_TIMEOUT)?;
    let offset = |offset| if let Offset::Offset(offset) = offset { Some(offset) } else { None };
    let elements = answer.elements();
    Ok(elements
        .iter()
        .map(|e| ((e.topic().to_owned(), e.partition()), e.error().map(|()| offset(e.offset()))))
        .collect())
}

/// Whoever sets the group's offset expects something to happen.
fn warn_if_not_followed(partition: &Partition, start: &Start) {
    let Some(committed) = start.not_followed else { return };
    let key = partition.stream.key();
    let accept_loss = if committed > start.offset { " --accept-loss" } else { "" };
    warn!(
        consumer = %key.consumer,
        place = partition.place(),
        committed,
        start = start.offset,
        "the offset {committed} that is committed for the group is not followed: the database says what was applied, and \
         reading begins at {}. To begin there all the same: `oncebox position move --consumer {} --topic {} --partition {} \
         --to {committed}{accept_loss}`",
        start.offset, key.consumer, key.topic, key.partition
    );
}

/// The partition stays ours, so that no other process of the group runs into the same problem.
pub(super) fn stop(consumer: &str, partition: &mut Partition, reason: &StartError) {
    let reason = reason.explain(partition.stream.key());
    let reason =
        format!("consumer {consumer}, topic {}, partition {}: {reason}", partition.topic, partition.number);
    error!(consumer, place = partition.place(), reason, "the partition cannot be read");
    partition.stream.stop(reason);
    partition.phase = Phase::Stopped;
    partition.stopped_at = Some(Instant::now());
}

fn try_again(consumer: &str, partition: &mut Partition, reason: &KafkaError) {
    let failures = match partition.phase {
        Phase::Waiting { failures, .. } => failures + 1,
        _ => 1,
    };
    warn!(consumer, place = partition.place(), error = %reason, failures, "the partition cannot begin yet; trying again");
    partition.phase =
        Phase::Waiting { next_try: Instant::now() + backoff::PARTITION.delay(failures), failures };
}

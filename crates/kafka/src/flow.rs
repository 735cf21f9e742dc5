//! Backpressure: what happens when the engine has enough.
//!
//! A pause is dear: librdkafka throws away what it has fetched ahead of that partition and fetches it again after the
//! resume, from behind the last record it delivered. So a short stall is waited out: the reader does not poll for a moment,
//! and the records stay where they are, in librdkafka's own bounded queue. A stall that lasts is a pause, because the reader
//! must go on polling: for the other partitions, for rebalances. It is patient when all partitions are full, and then nobody
//! has to wait for one of them; it is not when others could go on.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaResult;
use rdkafka::topic_partition_list::Offset;
use tracing::debug;

use crate::callbacks::Callbacks;
use crate::partition::{Partition, Partitions, Phase};

/// How long a stall of all partitions may last before it is a pause.
const PATIENCE: Duration = Duration::from_millis(50);
/// How long a stall of some partitions may hold up the others.
const COURTESY: Duration = Duration::from_millis(5);
/// librdkafka answers a seek without asking a broker.
const SEEK: Duration = Duration::from_secs(1);

/// How the next poll should be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Nothing to look after: records may come any time.
    Wait,
    /// Something is paused or not begun: look again soon.
    LookAgain,
    /// A partition is full: do not poll for a moment.
    HoldBack,
}

/// After a record was pushed. True if the stream has enough with this one.
pub(crate) fn is_filled(partition: &mut Partition) -> bool {
    let filled = partition.phase == Phase::Flowing && partition.stream.is_full();
    if filled {
        partition.phase = Phase::Full { since: Instant::now() };
    }
    filled
}

/// Pauses what has been full for too long, resumes what has room again, and says how to go on.
pub(crate) fn regulate(consumer: &BaseConsumer<Callbacks>, partitions: &mut Partitions) -> KafkaResult<Pace> {
    let others_flow = partitions.iter().any(|p| p.phase == Phase::Flowing);
    let patience = if others_flow { COURTESY } else { PATIENCE };
    let mut pace = Pace::Wait;
    for partition in partitions.iter_mut() {
        partition.phase = next_phase(consumer, partition, patience)?;
        pace = match partition.phase {
            Phase::Full { .. } => Pace::HoldBack,
            Phase::Paused | Phase::Waiting { .. } if pace == Pace::Wait => Pace::LookAgain,
            _ => pace,
        };
    }
    Ok(pace)
}

fn next_phase(
    consumer: &BaseConsumer<Callbacks>,
    partition: &mut Partition,
    patience: Duration,
) -> KafkaResult<Phase> {
    if partition.stream.stopped().is_some() && partition.phase != Phase::Stopped {
        if partition.is_fetched() {
            pause(consumer, partition)?;
        }
        return Ok(Phase::Stopped);
    }
    match partition.phase {
        Phase::Full { .. } if partition.stream.has_room() => Ok(Phase::Flowing),
        Phase::Full { since } if since.elapsed() > patience => {
            pause(consumer, partition)?;
            Ok(Phase::Paused)
        }
        Phase::Paused if partition.stream.has_room() => {
            resume(consumer, partition)?;
            wake(consumer, partition);
            Ok(Phase::Flowing)
        }
        same => Ok(same),
    }
}

pub(crate) fn pause(consumer: &BaseConsumer<Callbacks>, partition: &mut Partition) -> KafkaResult<()> {
    if !partition.paused {
        consumer.pause(&partition.list(Offset::Invalid)?)?;
        partition.paused = true;
    }
    Ok(())
}

/// Also for a partition that is given back: librdkafka would remember the pause when it comes again.
pub(crate) fn resume(consumer: &BaseConsumer<Callbacks>, partition: &mut Partition) -> KafkaResult<()> {
    if partition.paused {
        consumer.resume(&partition.list(Offset::Invalid)?)?;
        partition.paused = false;
    }
    Ok(())
}

/// A resume alone goes unnoticed by the thread that fetches until it wakes by itself, up to a second later. A seek wakes it,
/// even to where the partition stands anyway.
fn wake(consumer: &BaseConsumer<Callbacks>, partition: &Partition) {
    let Some(next) = partition.next_offset() else { return };
    let sought = partition.list(Offset::Offset(next)).and_then(|list| consumer.seek_partitions(list, SEEK));
    if let Err(error) = sought {
        debug!(place = partition.place(), %error, "resumed without a wake-up");
    }
}

//! Backpressure: what happens when the engine has enough.
//!
//! A pause is dear: librdkafka throws away what it has fetched ahead of that partition and fetches it again after the
//! resume, from behind the last record it delivered. So a short stall is waited out. While all partitions are full the reader does not poll, and the records stay
//! where they are, in librdkafka's own bounded queue; while only some are, their streams take a little more than they want.
//! A stall that lasts is a pause, because the reader must go on polling: for the other partitions, for rebalances, for
//! commits.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaResult;
use rdkafka::topic_partition_list::Offset;
use tracing::debug;

use crate::callbacks::Callbacks;
use crate::partition::{Partition, Partitions, Phase};

/// How long a stall may last before it is a pause.
const PATIENCE: Duration = Duration::from_millis(50);
/// How many bytes a full stream may take beyond its bounds before it is paused, small messages counting as 256 bytes.
const OVERSHOOT: usize = 512 * 1024;
const SMALLEST: usize = 256;
/// librdkafka answers a seek without asking a broker.
const SEEK: Duration = Duration::from_secs(1);

/// How the next poll should be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Nothing to look after: records may come any time.
    Wait,
    /// Something is paused or not begun: look again soon.
    LookAgain,
    /// All that flows is full: do not poll for a moment.
    HoldBack,
}

/// After a record of that size was pushed. True if the stream has enough with this one.
pub(crate) fn pushed(partition: &mut Partition, bytes: usize) -> bool {
    match &mut partition.phase {
        Phase::Full { overshoot, .. } => {
            *overshoot += bytes.max(SMALLEST);
            false
        }
        Phase::Flowing if partition.stream.is_full() => {
            partition.phase = Phase::Full { since: Instant::now(), overshoot: 0 };
            true
        }
        _ => false,
    }
}

/// Pauses what has been full for too long, resumes what has room again, and says how to go on.
pub(crate) fn regulate(consumer: &BaseConsumer<Callbacks>, partitions: &mut Partitions) -> KafkaResult<Pace> {
    let (mut flowing, mut full, mut waiting) = (false, false, false);
    for partition in partitions.iter_mut() {
        partition.phase = next_phase(consumer, partition)?;
        match partition.phase {
            Phase::Flowing => flowing = true,
            Phase::Full { .. } => full = true,
            Phase::Paused | Phase::Waiting { .. } => waiting = true,
            Phase::Stopped => {}
        }
    }
    Ok(match (flowing, full, waiting) {
        (false, true, _) => Pace::HoldBack,
        (true, false, false) | (false, false, false) => Pace::Wait,
        _ => Pace::LookAgain,
    })
}

fn next_phase(consumer: &BaseConsumer<Callbacks>, partition: &mut Partition) -> KafkaResult<Phase> {
    if partition.stream.stopped().is_some() && partition.phase != Phase::Stopped {
        if partition.is_fetched() {
            pause(consumer, partition)?;
        }
        return Ok(Phase::Stopped);
    }
    match partition.phase {
        Phase::Full { .. } if partition.stream.has_room() => Ok(Phase::Flowing),
        Phase::Full { since, overshoot } if overshoot > OVERSHOOT || since.elapsed() > PATIENCE => {
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

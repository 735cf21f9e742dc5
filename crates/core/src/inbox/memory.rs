//! How many bytes of messages may wait in the process, and how they are shared.
//!
//! Each partition may hold as much as is still free, and then takes no more until others have let go. So of any number of partitions
//! that want more than there is, each comes to the same share, without anybody counting them: one alone may hold a half, two
//! a third each, two hundred a two-hundred-and-first part each; what one leaves unused is there for the others; and there is always room
//! for one that comes late. (Switches share their buffers between their ports like this.)
//!
//! Who holds nothing may always take a message, however large it is and however little is free: nobody starves, whatever others
//! keep for themselves. Room for a message of each of them is left free beforehand, up to a half of all. So the bound is
//! exceeded only where one message of each partition is more than that.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;

use crate::message::Record;
use crate::metrics::{self, Gauge};

static PROCESS: LazyLock<Memory> = LazyLock::new(|| Memory::new(Memory::DEFAULT_BYTES));

/// How many bytes of messages may wait in a process: in the queues of its partitions, in transactions under way, and in what the
/// clients of brokers have fetched ahead. Cheap to clone; every clone is the same memory.
///
/// ```
/// use oncebox::settings::Memory;
///
/// let mut settings = oncebox::Settings::default();
/// // One for all inboxes of the process. Without it, they share one of 256 MiB.
/// settings.memory = Memory::new(64 * 1024 * 1024);
/// # let _ = settings;
/// ```
#[derive(Debug, Clone)]
pub struct Memory(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    bytes: usize,
    held: AtomicUsize,
    /// Of so many messages.
    messages: AtomicUsize,
    /// How many partitions hold nothing.
    idle: AtomicUsize,
    shown: Gauge,
}

impl Memory {
    /// What a process may use unless it is told otherwise: 256 MiB.
    pub const DEFAULT_BYTES: usize = 256 * 1024 * 1024;

    /// The one of this process. Every inbox uses it by default.
    #[must_use]
    pub fn of_process() -> Self {
        PROCESS.clone()
    }

    /// One of that many bytes, which nobody shares but those who are given it.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Inner {
            bytes,
            held: AtomicUsize::new(0),
            messages: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            shown: metrics::waiting_bytes(),
        }))
    }

    /// What the client of a broker may fetch ahead of the inbox, for all inboxes together: a quarter. It is not counted here, so
    /// the other three quarters are for what is.
    #[must_use]
    pub fn fetched_ahead(&self) -> usize {
        self.0.bytes / 4
    }

    /// How much is held now.
    #[must_use]
    pub fn held(&self) -> usize {
        self.0.held.load(Ordering::Relaxed)
    }

    /// What nobody holds, and nobody who holds nothing will need next.
    fn free(&self) -> usize {
        let (all, held) = (self.0.bytes - self.fetched_ahead(), self.held());
        let message = held / self.0.messages.load(Ordering::Relaxed).max(1);
        let next = self.0.idle.load(Ordering::Relaxed).saturating_mul(message).min(all / 2);
        all.saturating_sub(held).saturating_sub(next)
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::of_process()
    }
}

/// What one partition holds of it.
#[derive(Debug)]
pub(crate) struct Holding {
    memory: Memory,
    held: AtomicUsize,
    messages: AtomicUsize,
}

/// Some messages, and what they take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
}

impl Load {
    pub(crate) fn of<'r>(records: impl Iterator<Item = &'r Record>) -> Self {
        records.fold(Self::default(), |load, record| Self {
            messages: load.messages + 1,
            bytes: load.bytes + footprint(record),
        })
    }
}

impl Holding {
    pub(crate) fn of(memory: &Memory) -> Arc<Self> {
        memory.0.idle.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { memory: memory.clone(), held: AtomicUsize::new(0), messages: AtomicUsize::new(0) })
    }

    pub(crate) fn add(&self, Load { messages, bytes }: Load) {
        let all = &self.memory.0;
        self.messages.fetch_add(messages, Ordering::Relaxed);
        if self.held.fetch_add(bytes, Ordering::Relaxed) == 0 && bytes > 0 {
            all.idle.fetch_sub(1, Ordering::Relaxed);
        }
        all.messages.fetch_add(messages, Ordering::Relaxed);
        all.held.fetch_add(bytes, Ordering::Relaxed);
        all.shown.increment(bytes as f64);
    }

    fn remove(&self, Load { messages, bytes }: Load) {
        let all = &self.memory.0;
        self.messages.fetch_sub(messages, Ordering::Relaxed);
        if self.held.fetch_sub(bytes, Ordering::Relaxed) == bytes && bytes > 0 {
            all.idle.fetch_add(1, Ordering::Relaxed);
        }
        all.messages.fetch_sub(messages, Ordering::Relaxed);
        all.held.fetch_sub(bytes, Ordering::Relaxed);
        all.shown.decrement(bytes as f64);
    }

    /// Whether it holds at least its share divided by this. Who holds nothing never does.
    pub(crate) fn is_above(&self, fraction: usize) -> bool {
        let held = self.held.load(Ordering::Relaxed);
        held > 0 && held.saturating_mul(fraction) >= self.memory.free()
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let left = Load {
            messages: self.messages.load(Ordering::Relaxed),
            bytes: self.held.load(Ordering::Relaxed),
        };
        self.remove(left);
        self.memory.0.idle.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What is held for messages that are not in a queue any more, until they are done with.
#[derive(Debug)]
pub(crate) struct InFlight {
    holding: Arc<Holding>,
    load: Load,
}

impl InFlight {
    /// For what is held already.
    pub(crate) fn taking_over(holding: &Arc<Holding>, load: Load) -> Self {
        Self { holding: Arc::clone(holding), load }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.holding.remove(self.load);
    }
}

/// What a record takes: its content, and what holds it together. Of small messages that is most.
fn footprint(record: &Record) -> usize {
    size_of::<Record>() + record.headers.len() * size_of::<(String, Option<Bytes>)>() + record.byte_len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(bytes: usize) -> Load {
        Load { messages: 1, bytes }
    }

    /// Lets each take messages of that size in turn until none may take more. Returns what each holds.
    fn fill(memory: &Memory, partitions: usize, message: usize) -> Vec<Arc<Holding>> {
        let all: Vec<_> = (0..partitions).map(|_| Holding::of(memory)).collect();
        while all.iter().any(|partition| !partition.is_above(1)) {
            all.iter()
                .filter(|partition| !partition.is_above(1))
                .for_each(|partition| partition.add(one(message)));
        }
        all
    }

    #[test]
    fn whoever_wants_more_than_there_is_comes_to_an_equal_share() {
        for partitions in [1, 2, 20, 200] {
            let memory = Memory::new(1_000_000 * 4 / 3 + 1);
            let all = fill(&memory, partitions, 100);
            assert_eq!(memory.0.idle.load(Ordering::Relaxed), 0);
            let share = 1_000_000 / (partitions + 1);
            for partition in &all {
                let held = partition.held.load(Ordering::Relaxed);
                assert!(held.abs_diff(share) <= 200, "{held} of {share} with {partitions}");
            }
            assert!(memory.held() <= 1_000_000);
            drop(all);
            assert_eq!(memory.held(), 0, "nothing stays behind");
        }
    }

    #[test]
    fn a_message_that_is_larger_than_everything_passes_alone() {
        let memory = Memory::new(1_000);
        let (large, other) = (Holding::of(&memory), Holding::of(&memory));
        large.add(one(5_000));
        assert!(large.is_above(1) && !other.is_above(1), "who holds nothing may take one");
        other.add(one(10));
        assert!(other.is_above(1), "but not two");
        large.remove(one(5_000));
        assert!(!large.is_above(1) && !other.is_above(2));
    }

    #[test]
    fn those_that_come_first_leave_room_for_a_message_of_each_of_the_others() {
        let memory = Memory::new(1_000_000 * 4 / 3 + 1);
        let all: Vec<_> = (0..100).map(|_| Holding::of(&memory)).collect();
        for partition in &all {
            while !partition.is_above(1) {
                partition.add(one(4_000));
            }
        }
        assert!(all.iter().all(|partition| partition.held.load(Ordering::Relaxed) > 0));
        assert!(memory.held() <= 1_000_000, "{}", memory.held());
        drop(all);
        assert_eq!((memory.held(), memory.0.idle.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn what_is_in_flight_counts_until_it_is_done_with() {
        let memory = Memory::new(1_000);
        let holding = Holding::of(&memory);
        holding.add(one(300));
        let in_flight = InFlight::taking_over(&holding, one(300));
        drop(holding);
        assert_eq!(memory.held(), 300);
        drop(in_flight);
        assert_eq!(memory.held(), 0);
    }
}

//! Who may run a handler now: beside others, or alone in the process ([`Turn`]); and how many batches of a consumer run at once
//! when they are in each other's way ([`Gate`]).
//!
//! Partitions that update the same few rows in another order deadlock, and the database needs a second to notice. Once that
//! happens, the batches of the consumer run one after another for a while; then side by side again, to see whether the rows
//! are still hot.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// For how many batches they run one after another at first. Doubles each time they get in each other's way again.
const FIRST_SPELL_BATCHES: u32 = 64;
const LONGEST_SPELL_BATCHES: u32 = 16_384;

/// Whether the batches of a consumer run side by side or one after another.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    lock: RwLock<()>,
    /// How many more batches run one after another.
    left: AtomicU32,
    /// How long the last spell was.
    spell: AtomicU32,
    /// How many batches have begun side by side since then.
    calm: AtomicU32,
}

/// The right to run a batch.
#[derive(Debug)]
pub(crate) enum Passage<'g> {
    SideBySide { _held: RwLockReadGuard<'g, ()> },
    OneByOne { _held: RwLockWriteGuard<'g, ()> },
}

impl Gate {
    pub(crate) async fn enter(&self) -> Passage<'_> {
        if self.left.load(Ordering::Relaxed) == 0 {
            self.calm.fetch_add(1, Ordering::Relaxed);
            return Passage::SideBySide { _held: self.lock.read().await };
        }
        let held = self.lock.write().await;
        let less = |left: u32| Some(left.saturating_sub(1));
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok();
        Passage::OneByOne { _held: held }
    }

    /// A batch ran into another transaction.
    pub(crate) fn collided(&self, passage: &Passage<'_>) {
        // Alone in this process it cannot have been one of ours.
        if matches!(passage, Passage::OneByOne { .. }) {
            return;
        }
        // Several of the same spell collide; only the first makes it longer.
        if self.left.load(Ordering::Relaxed) == 0 {
            let last = self.spell.load(Ordering::Relaxed);
            // After a calm that was longer than the last spell it is something new.
            let again = self.calm.swap(0, Ordering::Relaxed) <= last;
            let spell = if again {
                (last * 2).clamp(FIRST_SPELL_BATCHES, LONGEST_SPELL_BATCHES)
            } else {
                FIRST_SPELL_BATCHES
            };
            self.spell.store(spell, Ordering::Relaxed);
            self.left.store(spell, Ordering::Relaxed);
        }
    }
}

static PROCESS: LazyLock<Turn> = LazyLock::new(Turn::new);

/// Batches of all partitions and inboxes run side by side; a message that may end the process runs alone in it. If the
/// process ends while one runs alone, nobody else can have done it.
#[derive(Debug, Clone)]
pub struct Turn(Arc<RwLock<()>>);

impl Turn {
    /// The one of this process. Every inbox uses it by default.
    #[must_use]
    pub fn of_process() -> Self {
        PROCESS.clone()
    }

    /// One that nobody shares: for tests that play several processes.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::default())
    }

    pub(crate) async fn beside_others(&self) -> OwnedRwLockReadGuard<()> {
        Arc::clone(&self.0).read_owned().await
    }

    pub(crate) async fn alone(&self) -> OwnedRwLockWriteGuard<()> {
        Arc::clone(&self.0).write_owned().await
    }
}

impl Default for Turn {
    fn default() -> Self {
        Self::of_process()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn after_a_collision_batches_run_one_by_one_for_a_while() {
        let gate = Gate::default();
        let (one, two) = (gate.enter().await, gate.enter().await);
        gate.collided(&one);
        gate.collided(&two);
        drop((one, two));
        for _ in 0..FIRST_SPELL_BATCHES {
            assert!(matches!(gate.enter().await, Passage::OneByOne { .. }));
        }
        let passage = gate.enter().await;
        assert!(matches!(passage, Passage::SideBySide { .. }), "they are tried side by side again");
        gate.collided(&passage);
        drop(passage);
        assert_eq!(gate.left.load(Ordering::Relaxed), 2 * FIRST_SPELL_BATCHES);
    }
}

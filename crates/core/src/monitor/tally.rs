//! What became of messages since the process began, by consumer: the numbers of the metrics, for whoever wants to say them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Monitor, lock};
use crate::store::{Cause, Duplicates};

/// The counters of one consumer.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) applied: AtomicU64,
    /// In the order of [`Cause::ALL`].
    duplicates: [AtomicU64; Cause::ALL.len()],
    pub(crate) dead: AtomicU64,
}

impl Tally {
    pub(crate) fn skipped(&self, duplicates: Duplicates) {
        for (counter, cause) in self.duplicates.iter().zip(Cause::ALL) {
            counter.fetch_add(duplicates.of(cause), Ordering::Relaxed);
        }
    }

    fn duplicates(&self) -> Duplicates {
        let mut duplicates = Duplicates::default();
        for (counter, cause) in self.duplicates.iter().zip(Cause::ALL) {
            duplicates.add(cause, counter.load(Ordering::Relaxed));
        }
        duplicates
    }
}

/// How many messages of a consumer were applied, skipped as duplicates, and given up, since the process began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tallied {
    /// Applied.
    pub applied: u64,
    /// Skipped: their receipt was there.
    pub duplicates: Duplicates,
    /// Kept as dead letters.
    pub dead: u64,
}

impl Tallied {
    /// What came on top of an earlier count.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            applied: self.applied.saturating_sub(earlier.applied),
            duplicates: self.duplicates.since(earlier.duplicates),
            dead: self.dead.saturating_sub(earlier.dead),
        }
    }
}

impl Monitor {
    /// The counters of a consumer: the same ones each time.
    pub(crate) fn tally(&self, consumer: &str) -> Arc<Tally> {
        Arc::clone(lock(&self.0.tallies).entry(consumer.to_owned()).or_default())
    }

    /// What became of the messages of each consumer since the process began.
    #[must_use]
    pub fn tallies(&self) -> BTreeMap<String, Tallied> {
        let now = |tally: &Tally| Tallied {
            applied: tally.applied.load(Ordering::Relaxed),
            duplicates: tally.duplicates(),
            dead: tally.dead.load(Ordering::Relaxed),
        };
        lock(&self.0.tallies).iter().map(|(consumer, tally)| (consumer.clone(), now(tally))).collect()
    }
}

//! Many messages given up in a row, none applied in between: the cause is somewhere else.

use std::sync::atomic::{AtomicU32, Ordering};

/// Messages of one consumer that were given up since one was last applied.
///
/// An error often does not say whether the message or the world is to blame. One bad message between good ones is the
/// message. When one after another fails and none succeeds, it is more likely a table, a type or a service that has
/// changed, and giving up the rest would only move the whole topic into the dead letters.
#[derive(Debug, Default)]
pub(crate) struct Streak(AtomicU32);

impl Streak {
    pub(crate) fn one_given_up(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn one_applied(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// With so many more.
    pub(crate) fn would_be_longer_than(&self, limit: u32, more: usize) -> bool {
        self.0.load(Ordering::Relaxed) as usize + more > limit as usize
    }

    pub(crate) fn is_longer_than(&self, limit: u32) -> bool {
        self.0.load(Ordering::Relaxed) >= limit
    }
}

//! Tells many tasks that something has changed.
//!
//! Like tokio's `watch`, but whoever waited first is woken first. `watch` wakes in a random order, and a simulation of this
//! code would not be the same twice.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// A number that only grows, and those who wait for it to do so.
#[derive(Debug)]
pub(crate) struct Signal {
    changes: AtomicU64,
    changed: Notify,
}

/// How much somebody has heard of a [`Signal`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heard(u64);

impl Signal {
    pub(crate) const fn new() -> Self {
        Self { changes: AtomicU64::new(0), changed: Notify::const_new() }
    }

    /// Something has changed.
    pub(crate) fn send(&self) {
        self.changes.fetch_add(1, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Up to now everything is known.
    pub(crate) fn heard(&self) -> Heard {
        Heard(self.changes.load(Ordering::Acquire))
    }

    /// Waits until something changes that was not heard of, and takes note of it.
    pub(crate) async fn next(&self, heard: &mut Heard) {
        loop {
            let mut notified = std::pin::pin!(self.changed.notified());
            // From here on no change is missed.
            notified.as_mut().enable();
            let now = self.heard();
            if now.0 != heard.0 {
                *heard = now;
                return;
            }
            notified.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_said_while_nobody_waits_is_heard_once() {
        let signal = Signal::new();
        let mut heard = signal.heard();
        signal.send();
        signal.send();
        signal.next(&mut heard).await;
        let again = tokio::time::timeout(std::time::Duration::from_millis(1), signal.next(&mut heard)).await;
        assert!(again.is_err(), "nothing new");
    }
}

//! How a relay learns at once that this process has committed events.
//!
//! One signal for the whole process: events are written through the driver's own connections, which know no relay. A relay
//! that is woken for another store's events finds nothing and goes back to sleep. Events of other processes are found by
//! polling.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::inbox::call;

static EXPECTED: Signal = Signal::new();
static COMMITTED: Signal = Signal::new();

/// Events were written into a transaction that is still open. Stores call it for events written by other means than
/// [`crate::outbox::Emit`], such as the SQL of a handler.
pub fn events_written() {
    if !call::note_events_written() {
        EXPECTED.send();
    }
}

/// Tells the relays of this process that your own transaction with events has committed, so that they look now. Without it
/// they find the events by polling, a few milliseconds later. Handlers need not call it.
pub fn events_committed() {
    COMMITTED.send();
}

/// How a relay was woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wake {
    /// Events were committed: look now.
    Committed,
    /// Events were written and may be committed any moment: look often.
    Expected,
    /// Nobody said anything.
    Poll,
}

/// A relay's ear. What is said while it is busy is heard at the next wait.
#[derive(Debug)]
pub(crate) struct Listener {
    expected: Heard,
    committed: Heard,
}

impl Listener {
    pub(crate) fn new() -> Self {
        Self { expected: EXPECTED.heard(), committed: COMMITTED.heard() }
    }

    /// Waits for a signal, at most for `poll`.
    pub(crate) async fn wait(&mut self, poll: Duration) -> Wake {
        tokio::select! {
            biased;
            () = COMMITTED.next(&mut self.committed) => Wake::Committed,
            () = EXPECTED.next(&mut self.expected) => Wake::Expected,
            () = tokio::time::sleep(poll) => Wake::Poll,
        }
    }
}

/// Tells many tasks that something has changed: a number that only grows, and those who wait for it to do so.
///
/// Like tokio's `watch`, but whoever waited first is woken first. `watch` wakes in a random order, and a simulation of this
/// code would not be the same twice.
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
        let again = tokio::time::timeout(Duration::from_millis(1), signal.next(&mut heard)).await;
        assert!(again.is_err(), "nothing new");
    }
}

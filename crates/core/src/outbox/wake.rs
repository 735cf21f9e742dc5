//! How a relay learns at once that this process has committed events.
//!
//! One signal for the whole process: events are written through the driver's own connections, which know no relay. A relay
//! that is woken for another store's events finds nothing and goes back to sleep. Events of other processes are found by
//! polling.

use std::time::Duration;

use super::signal::{Heard, Signal};
use crate::outbox::cause;

static EXPECTED: Signal = Signal::new();
static COMMITTED: Signal = Signal::new();

/// Events were written into a transaction that is still open. Stores call it for events written by other means than
/// [`crate::outbox::Emit`], such as the SQL of a handler.
pub fn events_written() {
    if !cause::note_events_written() {
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

//! How a relay learns at once that this process has committed events.
//!
//! One signal for the whole process: events are written through the driver's own connections, which know no relay. A relay
//! that is woken for another store's events finds nothing and goes back to sleep. Events of other processes are found by
//! polling.

use std::sync::LazyLock;
use std::time::Duration;

use tokio::sync::watch;

use crate::cause;

static EXPECTED: LazyLock<watch::Sender<()>> = LazyLock::new(|| watch::Sender::new(()));
static COMMITTED: LazyLock<watch::Sender<()>> = LazyLock::new(|| watch::Sender::new(()));

/// Events were written into a transaction that is still open. Stores call it for events written by other means than
/// [`crate::Emit`], such as the SQL of a handler.
pub fn events_written() {
    if !cause::has_written_events() {
        EXPECTED.send_replace(());
    }
}

/// Tells the relays of this process that your own transaction with events has committed, so that they look now. Without it
/// they find the events by polling, a few milliseconds later. Handlers need not call it.
pub fn events_committed() {
    COMMITTED.send_replace(());
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
    expected: watch::Receiver<()>,
    committed: watch::Receiver<()>,
}

impl Listener {
    pub(crate) fn new() -> Self {
        Self { expected: EXPECTED.subscribe(), committed: COMMITTED.subscribe() }
    }

    /// Waits for a signal, at most for `poll`.
    pub(crate) async fn wait(&mut self, poll: Duration) -> Wake {
        // The senders are never dropped, so `changed` cannot fail.
        tokio::select! {
            biased;
            _ = self.committed.changed() => Wake::Committed,
            _ = self.expected.changed() => Wake::Expected,
            () = tokio::time::sleep(poll) => Wake::Poll,
        }
    }
}

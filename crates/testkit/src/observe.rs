//! Between the engine and the handler: writes down what failed, and does not wait for what a handler asks to wait for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oncebox_core::error::{BoxError, Outcome, describe_whole, retry_after};
use oncebox_core::inbox::{Apply, Failure, Worker};
use oncebox_core::message::Message;
use oncebox_core::store::InboxStore;

use crate::crash::Crashable;
use crate::delivered::FailedTry;

/// How long is waited in place of any other time.
pub(crate) const SHORT_WAIT: Duration = Duration::from_millis(1);

/// The tries that failed, by offset.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notes(Arc<Mutex<HashMap<i64, Vec<FailedTry>>>>);

impl Notes {
    fn lock(&self) -> MutexGuard<'_, HashMap<i64, Vec<FailedTry>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    pub(crate) fn of(&self, offset: i64) -> Vec<FailedTry> {
        self.lock().get(&offset).cloned().unwrap_or_default()
    }

    /// A message that fails in company is tried again alone; only then it counts, as it does for the engine.
    fn failed(&self, fresh: &[Message], failed: FailedTry) {
        if let [message] = fresh {
            self.lock().entry(message.record().offset).or_default().push(failed);
        }
    }
}

/// The handler of a worker, observed.
pub(crate) struct Observed<S: InboxStore> {
    pub(crate) worker: Worker<S>,
    pub(crate) notes: Notes,
}

impl<S: InboxStore> Apply<Crashable<S>> for Observed<S> {
    async fn apply(&self, conn: &mut S::Conn, fresh: &[Message]) -> Result<(), Failure> {
        let _panics = NotesPanics { notes: &self.notes, fresh };
        let result = self.worker.handle(conn, fresh).await;
        result.map_err(|failure| {
            let failed = FailedTry::of(failure.error.as_ref());
            let error = without_the_wait(failure.error, &failed);
            self.notes.failed(fresh, failed);
            Failure { error, ..failure }
        })
    }
}

/// An hour that a handler asks for would be an hour of the test.
fn without_the_wait(error: BoxError, failed: &FailedTry) -> BoxError {
    match failed.retry_after {
        Some(delay) if delay > SHORT_WAIT => retry_after(SHORT_WAIT, describe_whole(error.as_ref())),
        _ => error,
    }
}

/// A panic leaves nothing else behind here; its text is in the dead letter.
struct NotesPanics<'a> {
    notes: &'a Notes,
    fresh: &'a [Message],
}

impl Drop for NotesPanics<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.notes.failed(self.fresh, FailedTry::panicked());
        }
    }
}

impl FailedTry {
    fn of(error: &(dyn std::error::Error + 'static)) -> Self {
        let outcome = Outcome::of(error);
        Self {
            error: describe_whole(error),
            rejected: matches!(outcome, Some(Outcome::Reject { .. })),
            retry_after: match outcome {
                Some(Outcome::RetryAfter { delay, .. }) => Some(delay),
                _ => None,
            },
        }
    }

    fn panicked() -> Self {
        Self { error: "the handler panicked".to_owned(), rejected: false, retry_after: None }
    }
}

//! Why an event was not delivered, for everybody who wants to know.

use std::sync::Arc;
use std::time::Duration;

use oncebox_core::error::{BoxError, reject, retry, retry_after};

/// An event that the receiver has not taken.
#[derive(Debug)]
pub(crate) struct Failed {
    /// For the operator, with the event: what happened, to what, what to do. The next line quotes the answer.
    pub(crate) error: String,
    /// For everybody: the receiver and what it does. Quotes nothing.
    pub(crate) reason: Arc<str>,
    pub(crate) cause: Cause,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The receiver says that this very event is wrong.
    Refused,
    /// It cannot take it now. It may have said when.
    Later(Option<Duration>),
    /// It said nothing in time.
    Silent,
}

impl Failed {
    pub(crate) fn into_error(self) -> BoxError {
        match self.cause {
            Cause::Refused => reject(self.error),
            Cause::Later(Some(delay)) => retry_after(delay, self.error),
            Cause::Later(None) | Cause::Silent => retry(self.error),
        }
    }
}

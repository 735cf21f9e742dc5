//! Errors: what a handler may return, and how the engine tells them apart.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// Any error, as handlers return it. `?` works from `sqlx`, `serde_json`, `anyhow` and friends.
pub type BoxError = Box<dyn Error + Send + Sync + 'static>;

/// What a handler returns.
pub type Result<T = (), E = BoxError> = std::result::Result<T, E>;

/// What a handler may say about a message instead of plain success or a plain error.
///
/// A handler returns it as its error; any other error counts as [`Outcome::Retry`].
///
/// ```
/// use oncebox_core::{Result, reject};
///
/// fn deduct(on_hand: i64, qty: i64) -> Result {
///     if qty > on_hand {
///         return Err(reject(format!("only {on_hand} on hand")));
///     }
///     Ok(())
/// }
/// assert!(deduct(1, 2).is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Try again after the usual backoff; counts as an attempt.
    Retry {
        /// Why, for the log and the dead letter.
        reason: String,
    },
    /// Try again after this delay; counts as an attempt.
    RetryAfter {
        /// How long to wait.
        delay: Duration,
        /// Why, for the log and the dead letter.
        reason: String,
    },
    /// Give the message up at once, without further attempts.
    Reject {
        /// Why, for the log and the dead letter.
        reason: String,
    },
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retry { reason } | Self::RetryAfter { reason, .. } | Self::Reject { reason } => {
                f.write_str(reason)
            }
        }
    }
}

impl Error for Outcome {}

/// The message is wrong and no retry can help: dead-letter it at once.
pub fn reject(reason: impl Into<String>) -> BoxError {
    Box::new(Outcome::Reject { reason: reason.into() })
}

/// Try the message again after the usual backoff.
pub fn retry(reason: impl Into<String>) -> BoxError {
    Box::new(Outcome::Retry { reason: reason.into() })
}

/// Try the message again after `delay`. The messages behind it in its lane wait too.
pub fn retry_after(delay: Duration, reason: impl Into<String>) -> BoxError {
    Box::new(Outcome::RetryAfter { delay, reason: reason.into() })
}

/// How the engine reacts to an error of a store or a handler.
///
/// Stores derive it from SQLSTATE or vendor codes, never from the text of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// The database cannot be reached, is going down, or takes no writes: tried again for as long as it takes. No message
    /// is ever blamed for it.
    Away,
    /// Something was in the way (a deadlock, a lock, memory, a connection that broke in the middle): the transaction is
    /// tried again, with fewer messages if it happens again, and counts as an attempt of a message that fails so alone.
    Transient,
    /// The statement or the database is wrong, not the message: a table, a column, a function or a right is missing, a disk
    /// is full. Nothing is parked; the lane stands still, red, and goes on when it is mended.
    Environment,
    /// Another process owns the partition now: stop, do not retry.
    Fenced,
    /// The message or its handler is to blame; counts as an attempt.
    Failed,
}

impl ErrorClass {
    /// Whether the same is worth another try although nobody changes anything about the message.
    #[must_use]
    pub fn may_pass(self) -> bool {
        matches!(self, Self::Away | Self::Transient | Self::Environment)
    }
}

/// An error of a store, with the class that decides what happens next.
#[derive(Debug, thiserror::Error)]
#[error("{context}: {source}")]
pub struct StoreError {
    /// What the engine does about it.
    pub class: ErrorClass,
    /// What the store was doing.
    pub context: String,
    /// The cause.
    #[source]
    pub source: BoxError,
}

impl StoreError {
    /// An error of the given class.
    pub fn new(class: ErrorClass, context: impl Into<String>, source: impl Into<BoxError>) -> Self {
        Self { class, context: context.into(), source: source.into() }
    }

    /// The position belongs to a newer owner.
    pub fn fenced(context: impl Into<String>) -> Self {
        Self::new(ErrorClass::Fenced, context, "another process has taken over this partition")
    }
}

/// What store operations return.
pub type StoreResult<T> = std::result::Result<T, StoreError>;

/// Writes an error with its causes, each once, separated by `: `.
#[must_use]
pub fn describe(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let part = inner.to_string();
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        cause = inner.source();
    }
    text
}

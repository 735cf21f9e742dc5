//! What the library's own calls return ([`Error`]), and what a handler may return ([`BoxError`], [`Outcome`]).

mod library;
mod values;

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

pub use library::Error;
pub use values::{WithValues, Wording, describe, describe_whole};
pub(crate) use values::{describe_in_log, with_values};

use crate::outbox::EventError;

/// Any error, as handlers return it. `?` works from `sqlx`, `serde_json`, `anyhow` and friends, and from [`Error`].
pub type BoxError = Box<dyn StdError + Send + Sync + 'static>;

/// What a handler returns. Also handy for `main`: every error of oncebox fits into it.
pub type Result<T = (), E = BoxError> = std::result::Result<T, E>;

/// What a handler may say about a message instead of plain success or a plain error.
///
/// A handler returns it as its error; any other error counts as [`Outcome::Retry`]. The reason is logged as it is, unlike what a
/// database says: what must not be in the log does not belong there.
///
/// ```
/// use std::time::Duration;
///
/// use oncebox::{Result, reject, retry_after};
///
/// fn deduct(on_hand: i64, qty: i64, counting: bool) -> Result {
///     if counting {
///         return Err(retry_after(Duration::from_secs(60), "the shelf is being counted"));
///     }
///     if qty > on_hand {
///         return Err(reject(format!("only {on_hand} on hand")));
///     }
///     Ok(())
/// }
/// assert!(deduct(1, 2, false).is_err());
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

impl StdError for Outcome {}

impl Outcome {
    /// What an error asks for, looking through its causes. No retry can help an event that cannot be written.
    #[must_use]
    pub fn of(error: &(dyn StdError + 'static)) -> Option<Self> {
        let mut cause = Some(error);
        while let Some(inner) = cause {
            if let Some(outcome) = inner.downcast_ref::<Self>() {
                return Some(outcome.clone());
            }
            if let Some(event) = inner.downcast_ref::<EventError>() {
                return Some(Self::Reject { reason: event.to_string() });
            }
            cause = inner.source();
        }
        None
    }
}

/// The message is wrong and no retry can help: keep it as a dead letter at once.
///
/// ```
/// fn check(qty: i64) -> oncebox::Result {
///     if qty < 1 { Err(oncebox::reject(format!("{qty} is not a quantity"))) } else { Ok(()) }
/// }
/// # assert!(check(0).is_err());
/// ```
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

//! The settings of a consumer: how large a batch may grow, how often a message is tried, what happens then.

use crate::backoff::{self, Backoff};

/// How large one transaction may grow. Both bounds hold; one message always fits.
///
/// ```
/// use oncebox::BatchBounds;
///
/// let small = BatchBounds { messages: 50, ..BatchBounds::default() };
/// assert_eq!(small.bytes, 4 * 1024 * 1024);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchBounds {
    /// The most messages in one batch.
    pub messages: usize,
    /// The most payload, key and header bytes in one batch.
    pub bytes: usize,
}

impl Default for BatchBounds {
    fn default() -> Self {
        Self { messages: 500, bytes: 4 * 1024 * 1024 }
    }
}

/// How often a failing message is tried, and how long to wait in between.
///
/// ```
/// use std::time::Duration;
///
/// use oncebox::{Backoff, RetryPolicy};
///
/// let patient = RetryPolicy {
///     attempts: 20,
///     backoff: Backoff::new(Duration::from_secs(1), Duration::from_secs(300)),
/// };
/// # let _ = patient;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The attempts a message gets before `on_failure` decides; at least one.
    pub attempts: u32,
    /// How long to wait after each failure.
    pub backoff: Backoff,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { attempts: 5, backoff: backoff::MESSAGE }
    }
}

/// What happens to a message that used up its attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnFailure {
    /// Keep it as a dead letter and go on.
    #[default]
    Park,
    /// Keep it as a dead letter, and the later messages of its key behind it, so that their order survives.
    ParkKey,
    /// Stop the partition and wait for an operator.
    Halt,
    /// Keep nothing and give it back to its source: for one whose sender waits for the answer, and tries again by itself. A broker
    /// delivers it again after a while, for ever: see [`OpenStream::give_back_after`](crate::source::OpenStream::give_back_after).
    GiveBack,
}

/// Where to begin when no position is known. What the group has committed is then a question, not an answer, unless
/// [`StartPolicy::Group`] says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum StartPolicy {
    /// At the oldest message.
    #[default]
    Earliest,
    /// Behind the newest message.
    Latest,
    /// Where the group left off: for a team that moves an existing consumer to oncebox. At the oldest message where the
    /// group has committed nothing.
    Group,
    /// Stop with an error and let an operator decide.
    Fail,
}

/// What happens to a message older than the receipts that purge has removed: it may be a duplicate, and nobody can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum StalePolicy {
    /// Apply it. Right for a new consumer that reads history.
    #[default]
    Apply,
    /// Keep it as a dead letter.
    Park,
}

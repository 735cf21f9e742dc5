//! Everything that can be set for one consumer.

use std::time::Duration;

use super::filter::Filter;
use super::identity::{Identity, Limits, Selector};
use super::pauses::PauseWatch;
use super::policy::{BatchBounds, OnFailure, RetryPolicy, StalePolicy, StartPolicy};
use crate::clock::Clock;
use crate::inbox::{Memory, Turn};
use crate::telemetry::Telemetry;

/// Everything that can be set for one consumer. [`Default`] is right for most; only the id has to be thought about. What is
/// set often has a method of [`Inbox`](crate::inbox::Inbox).
///
/// ```
/// let mut settings = oncebox::Settings::default();
/// settings.crash_limit = 5;
/// # let _ = settings;
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Settings {
    /// Where the id and the tenant of a message come from. Default: the message key.
    pub identity: Identity,
    /// Which messages are wanted; the others are settled unseen. `None`: all.
    pub filter: Option<Filter>,
    /// Where to begin when nothing is known.
    pub start: StartPolicy,
    /// How large one transaction may grow.
    pub batch: BatchBounds,
    /// How many lanes a partition has; keys are hashed onto them.
    pub lanes: usize,
    /// How many connections of the store it may use at once. `None`: all that there are.
    pub max_connections: Option<usize>,
    /// How much may wait in the process: see [`Memory`].
    pub memory: Memory,
    /// How often a failing message is tried.
    pub retry: RetryPolicy,
    /// After this many starts without progress messages run one at a time, and one that ends the process as often is
    /// dead-lettered.
    pub crash_limit: u32,
    /// When so many messages were given up in a row, and none was applied in between, no more are given up: something else
    /// must be wrong. Messages that a handler rejects do not count.
    pub streak_limit: u32,
    /// Whose turn it is in this process: see [`Turn`].
    pub turn: Turn,
    /// Who knows which consumers are paused.
    pub pauses: PauseWatch,
    /// What happens to a message that used up its attempts.
    pub on_failure: OnFailure,
    /// What happens to a message older than the purged receipts.
    pub stale: StalePolicy,
    /// How long receipts are kept: the dedupe horizon.
    pub retention: Duration,
    /// How often receipts are purged.
    pub purge_every: Duration,
    /// The time of day that retention goes by.
    pub clock: Clock,
    /// Who gets spans, and of which messages.
    pub telemetry: Telemetry,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            identity: Identity { id: Selector::Key, tenant: None, limits: Limits::default() },
            filter: None,
            start: StartPolicy::default(),
            batch: BatchBounds::default(),
            lanes: 1,
            max_connections: None,
            memory: Memory::default(),
            retry: RetryPolicy::default(),
            crash_limit: 3,
            streak_limit: 10,
            turn: Turn::default(),
            pauses: PauseWatch::default(),
            on_failure: OnFailure::default(),
            stale: StalePolicy::default(),
            retention: Duration::from_secs(7 * 24 * 60 * 60),
            purge_every: Duration::from_secs(60 * 60),
            clock: Clock::system(),
            telemetry: Telemetry::default(),
        }
    }
}

//! Positions: how far each partition is, and who may say so.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use super::{Duplicates, Store, StoreResult};
use crate::names::ConsumerName;
use crate::source::{LogId, LogMark};

/// What a position belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PositionKey {
    /// The consumer.
    pub consumer: ConsumerName,
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
}

impl fmt::Display for PositionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.consumer, self.topic, self.partition)
    }
}

/// The right to advance a position, until somebody else acquires it.
#[derive(Debug, Clone)]
pub struct Ownership {
    /// What is owned.
    pub key: PositionKey,
    /// The owner's number; a higher one fences this one.
    pub epoch: i64,
    /// The next offset to apply, if the partition was ever started.
    pub next_offset: Option<i64>,
    /// The log that the position belongs to, if it is known.
    pub log: Option<LogId>,
    /// The last settled record that was written down.
    pub mark: Option<LogMark>,
    /// Where an operator has moved the position to: reading never begins below it.
    pub floor: Option<i64>,
    /// Whether an operator had retired the position. Taking it over ends that.
    pub was_retired: bool,
    /// How many transactions have advanced the position so far.
    pub commits: i64,
    /// How often the partition was taken over since the next offset moved, this time included.
    pub starts: u32,
    /// Whether an earlier owner died while it ran messages one at a time.
    pub attempts_recorded: bool,
    /// One past the highest offset of this log that was ever settled by a transaction, by whichever lane. `None` if nothing was,
    /// or by an oncebox that did not write it down.
    pub settled_to: Option<i64>,
    /// Below this offset records come again because somebody has moved the position, or the broker's offset, back.
    pub rewound_to: Option<i64>,
}

/// How far a partition is. What is `None` stays as it is stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress<'a> {
    /// The next offset to apply. A value below the stored one leaves the stored one as it is.
    pub next_offset: Option<i64>,
    /// What the database must know already as the next offset, because this owner was told that it is committed. A database
    /// that knows less has failed over to an older state: the owner is fenced, and whoever takes over begins there.
    pub at_least: Option<i64>,
    /// How many transactions the database must know to have advanced the position, for the same reason: with several lanes
    /// some of them do not move the next offset. Every [`Advance`] counts as one.
    pub commits: Option<i64>,
    /// The log that the position belongs to.
    pub log: Option<&'a LogId>,
    /// The last settled record. A lower offset than the stored one leaves the stored one as it is.
    pub mark: Option<LogMark>,
    /// Everything that the log held at this time (milliseconds since 1970) is settled. Never lowered, and never written
    /// beyond the database's own clock.
    pub caught_up_ms: Option<i64>,
    /// One past the highest offset that is settled, whatever is open below. Never lowered.
    pub settled_to: Option<i64>,
    /// Somebody has set the broker's offset back: below this one records come again because of it. Never lowered.
    pub rewound_to: Option<i64>,
}

/// How far a transaction moves the position, and what it counted.
#[derive(Debug, Clone, Copy)]
pub struct Advance<'a> {
    /// The owner; if it is not the owner any more the commit fails with [`ErrorClass::Fenced`](super::ErrorClass::Fenced).
    pub owner: &'a Ownership,
    /// How far the partition is with it.
    pub progress: Progress<'a>,
    /// Messages whose effect this transaction applies.
    pub applied: u64,
    /// Messages this transaction skips because their receipt exists.
    pub duplicates: Duplicates,
    /// The recorded attempt that ends with this transaction, when messages run one at a time.
    pub finished_attempt: Option<i64>,
}

/// The positions of a database.
///
/// A position moves forward only, and only for the owner of its epoch; an operator may move it anywhere, which fences the
/// owner. What moves it together with messages is [`Store::commit`].
pub trait Positions: Store {
    /// Takes over a position: a new epoch, one more start without progress. Attempts below the position are forgotten.
    fn acquire(&self, key: &PositionKey) -> impl Future<Output = StoreResult<Ownership>> + Send;

    /// Writes down how far the partition is, without messages: where reading begins, what was skipped, that it is caught up.
    fn record_progress(
        &self,
        owner: &Ownership,
        progress: Progress<'_>,
    ) -> impl Future<Output = StoreResult<()>> + Send;

    /// Gives a position back in good order: its starts without progress become zero, and no attempt stays behind. Does
    /// nothing if fenced.
    fn release(&self, owner: &Ownership) -> impl Future<Output = StoreResult<()>> + Send;

    /// Writes down, in its own transaction, that this offset is about to be tried; returns how often it was, this time
    /// included.
    fn record_attempt(&self, owner: &Ownership, offset: i64)
    -> impl Future<Output = StoreResult<u32>> + Send;

    /// Takes one attempt back: it ended without ending the process. Does nothing if fenced.
    fn withdraw_attempt(
        &self,
        owner: &Ownership,
        offset: i64,
    ) -> impl Future<Output = StoreResult<()>> + Send;

    /// Moves a position to this offset of this log, in any direction, and makes it if there is none. Whoever owns it is
    /// fenced and begins anew there; marks, attempts and what was known about being caught up are forgotten. What was settled
    /// so far in this log is rewound if it comes again; in another log nothing was.
    fn move_position(
        &self,
        key: &PositionKey,
        next_offset: i64,
        log: Option<&LogId>,
    ) -> impl Future<Output = StoreResult<()>> + Send;

    /// Retires the positions of a consumer in a topic that will not come back, so that they no longer hold back retention.
    /// Returns how many.
    fn retire_positions(
        &self,
        consumer: &ConsumerName,
        topic: &str,
    ) -> impl Future<Output = StoreResult<u64>> + Send;
}

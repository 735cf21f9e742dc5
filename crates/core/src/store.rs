//! What oncebox needs from a database.
//!
//! [`Store`] is the hot path, one transaction per batch. [`Admin`] is everything around it: tables, dead letters,
//! retention, and the reads behind `oncebox status`. Both are open for reading and closed for promises: until 1.0 only
//! the stores of this project implement them, and the conformance suite in `oncebox-testkit` says what they must do.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::ops::DerefMut;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::error::{ErrorClass, StoreResult};
use crate::log::{LogId, LogMark};
use crate::message::Record;
use crate::names::{ConsumerName, Tenant};
use crate::outbox::OutboxStatus;
use crate::receipt::ReceiptKey;

/// A receipt that a batch wants to write.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'a> {
    /// The unique key.
    pub key: ReceiptKey,
    /// The tenant, `""` when none.
    pub tenant: &'a str,
    /// The message id.
    pub message_id: &'a str,
}

/// An open transaction with its receipts written.
#[derive(Debug)]
pub struct Claimed<T> {
    /// The transaction; dropping it undoes everything.
    pub txn: T,
    /// For each claim, in the order given: true if no receipt existed.
    pub fresh: Vec<bool>,
    /// The indexes of claims that are not fresh although their message was never applied: the receipt with their key
    /// belongs to another message. Nobody meets that by accident.
    pub collisions: Vec<usize>,
}

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
}

/// How far a transaction moves the position, and what it counted.
#[derive(Debug, Clone, Copy)]
pub struct Advance<'a> {
    /// The owner; if it is not the owner any more the commit fails with [`ErrorClass::Fenced`].
    pub owner: &'a Ownership,
    /// How far the partition is with it.
    pub progress: Progress<'a>,
    /// Messages whose effect this transaction applies.
    pub applied: u64,
    /// Messages this transaction skips because their receipt exists.
    pub duplicates: u64,
    /// The recorded attempt that this transaction settles, when messages run one at a time.
    pub settled_attempt: Option<i64>,
}

/// A message that was given up, as it is written down.
#[derive(Debug, Clone)]
pub struct DeadLetter {
    /// The tenant, if it is known.
    pub tenant: Tenant,
    /// The id; `None` if the message had none.
    pub message_id: Option<String>,
    /// The message, whole.
    pub record: Record,
    /// Why it was given up.
    pub error: String,
    /// How often it was tried.
    pub attempts: u32,
}

/// A dead letter as it is stored.
#[derive(Debug, Clone)]
pub struct StoredDeadLetter {
    /// Its number, for `oncebox dead show N`.
    pub number: i64,
    /// The consumer that gave it up.
    pub consumer: String,
    /// What was written down.
    pub letter: DeadLetter,
    /// When, in milliseconds since 1970.
    pub failed_at_ms: i64,
}

/// A dead letter in a list: without its payload and headers, which may be large.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadSummary {
    /// Its number.
    pub number: i64,
    /// The consumer that gave it up.
    pub consumer: String,
    /// The tenant, `""` when none.
    pub tenant: String,
    /// The id; `None` if the message had none.
    pub message_id: Option<String>,
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The offset.
    pub offset: i64,
    /// The first [`MAX_SUMMARY_BYTES`] bytes of its key.
    pub key: Option<Vec<u8>>,
    /// How long its payload is; `None` for a tombstone.
    pub payload_bytes: Option<u64>,
    /// The first [`MAX_SUMMARY_BYTES`] characters of why it was given up.
    pub error: String,
    /// How often it was tried.
    pub attempts: u32,
    /// When it was given up, in milliseconds since 1970.
    pub failed_at_ms: i64,
}

/// How much of a key or an error a [`DeadSummary`] holds.
pub const MAX_SUMMARY_BYTES: usize = 256;

/// Which dead letters are meant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadFilter {
    /// Only these numbers; all if empty.
    pub numbers: Vec<i64>,
    /// Only of this consumer.
    pub consumer: Option<String>,
    /// Only of this topic.
    pub topic: Option<String>,
    /// Only of this tenant.
    pub tenant: Option<String>,
    /// Only with this message id.
    pub message_id: Option<String>,
    /// Only with this key.
    pub key: Option<Vec<u8>>,
    /// Only above this number: the next page.
    pub after: i64,
    /// At most this many.
    pub limit: u32,
}

/// A position and its counters, as `oncebox status` shows it.
#[derive(Debug, Clone)]
pub struct PositionStatus {
    /// The consumer.
    pub consumer: String,
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The next offset to apply.
    pub next_offset: Option<i64>,
    /// The log it belongs to, if that is known.
    pub log: Option<String>,
    /// Everything that the log held at this time is settled, in milliseconds since 1970. `None`: nobody knows, so it holds
    /// all receipts of its consumer.
    pub caught_up_ms: Option<i64>,
    /// Whether an operator has retired it, so that it does not hold back retention.
    pub retired: bool,
    /// The owner's number.
    pub epoch: i64,
    /// Starts without progress.
    pub starts: u32,
    /// Messages applied so far.
    pub applied: u64,
    /// Duplicates suppressed so far.
    pub duplicates: u64,
    /// The last commit, in milliseconds since 1970.
    pub updated_at_ms: i64,
}

/// What one consumer looks like from its tables.
#[derive(Debug, Clone)]
pub struct ConsumerStatus {
    /// The consumer.
    pub consumer: String,
    /// Dead letters, counted up to the cap given to [`Admin::status`].
    pub dead_letters: u64,
    /// Receipts older than this are gone, in milliseconds since 1970.
    pub purged_before_ms: Option<i64>,
}

/// Everything `oncebox status` shows.
#[derive(Debug, Clone, Default)]
pub struct StoreStatus {
    /// All positions, ordered by consumer, topic and partition.
    pub positions: Vec<PositionStatus>,
    /// All consumers that have a position, a dead letter or a horizon.
    pub consumers: Vec<ConsumerStatus>,
    /// How many receipts there are, as the database estimates it.
    pub receipts_estimate: u64,
    /// The outbox.
    pub outbox: OutboxStatus,
}

/// One finding of a health check, for `oncebox check`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub level: FindingLevel,
    /// What was looked at.
    pub subject: String,
    /// What was found, and what to do.
    pub detail: String,
}

/// How bad a [`Finding`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FindingLevel {
    /// As it should be.
    Ok,
    /// Works, with a risk.
    Warning,
    /// Does not work.
    Error,
}

/// How long the receipts of a consumer are kept.
#[derive(Debug, Clone)]
pub struct Retention {
    /// The consumer.
    pub consumer: ConsumerName,
    /// How long.
    pub keep: Duration,
}

/// What a purge pass is about.
#[derive(Clone, Copy)]
pub struct PurgePass<'a> {
    /// Whose receipts may go, and when.
    pub retention: &'a [Retention],
    /// The time of day by the clock of this process (see [`crate::Clock`]), in milliseconds since 1970. The earlier of it
    /// and the database's own is what counts, so that no single clock that jumps empties the table.
    pub now_ms: i64,
    /// Only count.
    pub dry_run: bool,
    /// Ends the pass between two steps; the next one goes on from there.
    pub stop: &'a CancellationToken,
    /// Called after each step.
    pub progress: &'a (dyn Fn(PurgeProgress) + Send + Sync),
}

impl fmt::Debug for PurgePass<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PurgePass")
            .field("retention", &self.retention)
            .field("now_ms", &self.now_ms)
            .field("dry_run", &self.dry_run)
            .finish_non_exhaustive()
    }
}

/// How far a purge pass is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PurgeProgress {
    /// Receipts removed by the last step.
    pub removed: u64,
    /// How much of the table was looked at, in steps of the store's own size.
    pub done: u64,
    /// How much there is, as far as the store knows.
    pub total: u64,
}

/// What a purge pass did, or would do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Purged {
    /// Receipts removed.
    pub receipts: u64,
    /// Whole day partitions dropped.
    pub partitions: u64,
    /// How the pass ended.
    pub end: PassEnd,
}

/// How a purge pass ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PassEnd {
    /// It has looked at everything.
    #[default]
    Finished,
    /// It was told to stop; the next one goes on from there.
    Stopped,
    /// Another process is at it.
    Elsewhere,
}

/// A step of the schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// Its number, ascending from 1.
    pub version: u32,
    /// What it is for.
    pub name: &'static str,
    /// Its statements. The last one writes down that the database has it, so they can also be run by hand.
    pub sql: String,
    /// Whether this database has it.
    pub applied: bool,
}

/// The hot path of a database.
///
/// Invariants every store keeps:
/// - receipts, the handler's effect and the position commit together or not at all;
/// - a receipt that exists only in another open transaction is waited for, never guessed about;
/// - a transaction that is dropped, or whose state is unknown, closes its connection instead of returning it to a pool;
/// - waits are bounded by the server's own settings, not by dropping futures.
pub trait Store: Clone + Send + Sync + 'static {
    /// What handlers get: the driver's connection, inside the transaction.
    type Conn: Send;
    /// An open transaction.
    type Txn: DerefMut<Target = Self::Conn> + Send;

    /// Opens a transaction and writes the receipts. It is one step because in some databases (MongoDB) a duplicate
    /// aborts the transaction, and only the store can begin anew without it. The keys are distinct.
    fn claim(
        &self,
        consumer: &ConsumerName,
        claims: &[Claim<'_>],
    ) -> impl Future<Output = StoreResult<Claimed<Self::Txn>>> + Send;

    /// Writes receipts inside a transaction that somebody else began and will commit: the bare claim. In a database where
    /// a duplicate aborts the transaction this may be an error that says so.
    fn claim_within(
        &self,
        conn: &mut Self::Conn,
        consumer: &ConsumerName,
        claims: &[Claim<'_>],
    ) -> impl Future<Output = StoreResult<Vec<bool>>> + Send;

    /// Writes dead letters. One without an id is written once per (topic, partition, offset).
    fn park(
        &self,
        txn: &mut Self::Txn,
        consumer: &ConsumerName,
        letters: &[DeadLetter],
    ) -> impl Future<Output = StoreResult<()>> + Send;

    /// Which of these keys have a dead letter in this partition.
    fn parked_keys(
        &self,
        txn: &mut Self::Txn,
        position: &PositionKey,
        keys: &[&[u8]],
    ) -> impl Future<Output = StoreResult<Vec<Vec<u8>>>> + Send;

    /// Receipts older than this (milliseconds since 1970) may have been purged. `None`: none were.
    fn purged_before(
        &self,
        txn: &mut Self::Txn,
        consumer: &ConsumerName,
    ) -> impl Future<Output = StoreResult<Option<i64>>> + Send;

    /// Moves the position, checked against the owner's epoch, and commits. `None` for sources without positions.
    fn commit(
        &self,
        txn: Self::Txn,
        advance: Option<Advance<'_>>,
    ) -> impl Future<Output = StoreResult<()>> + Send;

    /// Undoes the transaction and makes its connection usable again.
    fn rollback(&self, txn: Self::Txn) -> impl Future<Output = ()> + Send;

    /// Tells apart what a handler or a statement returned, looking through its causes.
    fn classify(error: &(dyn Error + 'static)) -> ErrorClass;

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

    /// Opens a transaction, removes this dead letter in it and writes its receipt, or makes it as young as a new one: from
    /// now on the retention counts anew. `None` if the letter is gone.
    fn take_dead(
        &self,
        number: i64,
    ) -> impl Future<Output = StoreResult<Option<(Self::Txn, StoredDeadLetter)>>> + Send;

    /// The first dead letter of the same consumer, topic, partition and key that was written before this one, which was
    /// just taken. `None` if there is none, or if it has no key.
    fn letter_before(
        &self,
        txn: &mut Self::Txn,
        taken: &StoredDeadLetter,
    ) -> impl Future<Output = StoreResult<Option<i64>>> + Send;
}

/// Tables, dead letters, retention and reads. Never on the hot path.
pub trait Admin: Clone + Send + Sync + 'static {
    /// Whether the database answers and takes writes.
    fn ping(&self) -> impl Future<Output = StoreResult<()>> + Send;

    /// All migrations, with whether they were applied.
    fn migrations(&self) -> impl Future<Output = StoreResult<Vec<Migration>>> + Send;

    /// Applies what is missing; safe to run from several processes at once. Returns what was applied.
    fn migrate(&self) -> impl Future<Output = StoreResult<Vec<Migration>>> + Send;

    /// Looks at schema, durability settings and roles.
    fn check(&self) -> impl Future<Output = StoreResult<Vec<Finding>>> + Send;

    /// Positions, consumers, estimates; counts stop at `count_cap`.
    fn status(&self, count_cap: u64) -> impl Future<Output = StoreResult<StoreStatus>> + Send;

    /// Dead letters by filter, ordered by number, without their payloads.
    fn dead_letters(&self, filter: &DeadFilter)
    -> impl Future<Output = StoreResult<Vec<DeadSummary>>> + Send;

    /// One dead letter, whole.
    fn dead_letter(&self, number: i64) -> impl Future<Output = StoreResult<Option<StoredDeadLetter>>> + Send;

    /// Removes dead letters for good; their receipts stay. Returns how many.
    fn drop_dead(&self, filter: &DeadFilter) -> impl Future<Output = StoreResult<u64>> + Send;

    /// Moves a position to this offset of this log, in any direction, and makes it if there is none. Whoever owns it is
    /// fenced and begins anew there; marks, attempts and what was known about being caught up are forgotten.
    fn move_position(
        &self,
        key: &PositionKey,
        next_offset: i64,
        log: Option<&LogId>,
    ) -> impl Future<Output = StoreResult<()>> + Send;

    /// Retires the positions of a consumer in a topic that will not come back, so that they hold back retention no more.
    /// Returns how many.
    fn retire_positions(
        &self,
        consumer: &ConsumerName,
        topic: &str,
    ) -> impl Future<Output = StoreResult<u64>> + Send;

    /// One retention pass: receipts that are older than their consumer's horizon, in bounded steps.
    ///
    /// The horizon is the time up to which all partitions of the consumer are caught up, minus the retention: a partition
    /// that stands still, or was never caught up, holds it, unless it is retired. A consumer without positions claims in a
    /// loop of its own; for it the horizon is now minus the retention. Receipts of messages that lie in the dead letters
    /// stay. One process at a time makes a pass; another takes over where it was left.
    fn purge(&self, pass: PurgePass<'_>) -> impl Future<Output = StoreResult<Purged>> + Send;
}

//! What `oncebox status` reads.

use std::future::Future;

use super::{Duplicates, OutboxStatus, StoreResult};

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
    pub duplicates: Duplicates,
    /// The last commit, in milliseconds since 1970.
    pub updated_at_ms: i64,
}

/// What one consumer looks like from its tables.
#[derive(Debug, Clone)]
pub struct ConsumerStatus {
    /// The consumer.
    pub consumer: String,
    /// Dead letters, counted up to the cap given to [`Status::status`].
    pub dead_letters: u64,
    /// Receipts older than this are gone, in milliseconds since 1970.
    pub purged_before_ms: Option<i64>,
    /// Dead letters that were replayed so far.
    pub replayed: u64,
}

/// Everything `oncebox status` shows.
#[derive(Debug, Clone, Default)]
pub struct StoreStatus {
    /// All positions, ordered by consumer, topic and partition.
    pub positions: Vec<PositionStatus>,
    /// All consumers that have a position, a dead letter, a horizon or a replay.
    pub consumers: Vec<ConsumerStatus>,
    /// How many receipts there are, as the database estimates it.
    pub receipts_estimate: u64,
    /// The outbox.
    pub outbox: OutboxStatus,
}

/// The reads behind `oncebox status`.
pub trait Status: Clone + Send + Sync + 'static {
    /// Positions, consumers, estimates; counts stop at `count_cap`.
    fn status(&self, count_cap: u64) -> impl Future<Output = StoreResult<StoreStatus>> + Send;
}

//! Retention: which receipts may go, and their removal in bounded steps.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Store, StoreResult};
use crate::names::ConsumerName;

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
    /// The time of day by the clock of this process (see [`crate::clock::Clock`]), in milliseconds since 1970. The earlier of it
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

/// The removal of receipts that nobody needs any more.
pub trait Purge: Store {
    /// Receipts older than this (milliseconds since 1970) may have been purged. `None`: none were.
    fn purged_before(
        &self,
        txn: &mut Self::Txn,
        consumer: &ConsumerName,
    ) -> impl Future<Output = StoreResult<Option<i64>>> + Send;

    /// One retention pass: receipts that are older than their consumer's horizon, in bounded steps.
    ///
    /// The horizon is the time up to which all partitions of the consumer are caught up, minus the retention: a partition
    /// that stands still, or was never caught up, holds it, unless it is retired. A consumer without positions claims in a
    /// loop of its own; for it the horizon is now minus the retention. Receipts of messages that lie in the dead letters
    /// stay. One process at a time makes a pass; another takes over where it was left.
    fn purge(&self, pass: PurgePass<'_>) -> impl Future<Output = StoreResult<Purged>> + Send;
}

//! The way through the receipts, in the order of their keys.

use std::time::{Duration, Instant};

use oncebox_core::store::{PassEnd, PurgePass, PurgeProgress, Purged, StoreResult};
use sqlx::{Row, SqliteConnection};

use super::DOING;
use super::horizon::horizons;
use super::lease::{Lease, Place};
use crate::classify::Context;
use crate::status::receipts_estimate;
use crate::store::{Query, SqliteStore};

/// Receipts that one step looks at. A step holds the write lock for a few milliseconds.
const STEP_RECEIPTS: i64 = 2000;

/// After a step that deleted, the pass rests this many times as long as the step took: the writer is there for the lanes.
pub(super) const REST_FACTOR: u32 = 9;

/// Up to here receipts are counted to tell how many there are; beyond, it is an estimate.
const MAX_COUNTED: u64 = 100_000;

macro_rules! expired {
    () => {
        "horizon AS MATERIALIZED (SELECT value->>0 AS consumer, value->>1 AS before FROM json_each(?3)),
         expired AS (
            SELECT i.key, i.consumer, h.before
            FROM oncebox_inbox i JOIN horizon h ON h.consumer = i.consumer AND i.processed_at < h.before
            WHERE i.key > ?1 AND i.key <= ?2
                AND NOT EXISTS (SELECT 1 FROM oncebox_dead d
                    WHERE d.consumer = i.consumer AND d.tenant = i.tenant AND d.message_id = i.message_id))"
    };
}

const STEP_END: &str =
    "SELECT max(key), count(*) FROM (SELECT key FROM oncebox_inbox WHERE key > ?1 ORDER BY key LIMIT ?2)";

const COUNT: &str = concat!("WITH ", expired!(), " SELECT count(*) FROM expired");

// In the transaction that deletes: whoever sees a receipt missing sees the horizon as well.
const RAISE_HORIZON: &str = concat!(
    "WITH ",
    expired!(),
    " INSERT INTO oncebox_horizon AS mine (consumer, purged_before, purged)
      SELECT consumer, max(before), count(*) FROM expired GROUP BY consumer
      ON CONFLICT (consumer) DO UPDATE
      SET purged_before = max(mine.purged_before, excluded.purged_before), purged = mine.purged + excluded.purged"
);

const DELETE: &str =
    concat!("WITH ", expired!(), " DELETE FROM oncebox_inbox WHERE key IN (SELECT key FROM expired)");

/// A pass on its way.
pub(super) struct Walk<'a> {
    store: &'a SqliteStore,
    pass: &'a PurgePass<'a>,
    horizons: String,
    place: Place,
    total: u64,
    purged: Purged,
}

/// The keys that one step covers, and how many of them may go.
struct Step {
    after: Vec<u8>,
    end: Place,
    expired: u64,
}

impl<'a> Walk<'a> {
    /// From the beginning.
    pub(super) async fn new(store: &'a SqliteStore, pass: &'a PurgePass<'a>) -> StoreResult<Self> {
        let horizons = horizons(store, pass).await?;
        let mut conn = store.reader().await?;
        let total = receipts_estimate(&mut conn, MAX_COUNTED).await.context(DOING)?;
        Ok(Self { store, pass, horizons, place: Place::default(), total, purged: Purged::default() })
    }

    /// From where an earlier pass was left.
    pub(super) fn begin_at(&mut self, place: Place) {
        self.place = place;
    }

    /// Up to where it got.
    pub(super) fn into_place(self) -> Place {
        self.place
    }

    /// Counts what would go.
    pub(super) async fn count(&mut self) -> StoreResult<Purged> {
        while !self.pass.stop.is_cancelled() {
            let Some(step) = self.next_step().await? else { return Ok(self.ended(PassEnd::Finished)) };
            let expired = step.expired;
            self.arrived(step, expired);
        }
        Ok(self.ended(PassEnd::Stopped))
    }

    /// Removes what may go.
    pub(super) async fn remove(&mut self, lease: &mut Lease<'_>) -> StoreResult<Purged> {
        while !self.pass.stop.is_cancelled() {
            let Some(step) = self.next_step().await? else { return Ok(self.ended(PassEnd::Finished)) };
            let (mut removed, mut rest) = (Some(0), Duration::ZERO);
            if step.expired > 0 {
                (removed, rest) = self.delete(&step, lease).await?;
            } else if !lease.renew_in_time(&step.end).await? {
                removed = None;
            }
            let Some(removed) = removed else { return Ok(self.ended(PassEnd::Elsewhere)) };
            self.arrived(step, removed);
            tokio::select! {
                () = tokio::time::sleep(rest) => {}
                () = self.pass.stop.cancelled() => {}
            }
        }
        Ok(self.ended(PassEnd::Stopped))
    }

    /// Looks for work with a reading connection, so that a step with nothing to delete hardly ever takes the write lock.
    async fn next_step(&self) -> StoreResult<Option<Step>> {
        let mut conn = self.store.reader().await?;
        let after = self.place.reached.clone();
        let end = sqlx::query(STEP_END).bind(after.as_slice()).bind(STEP_RECEIPTS);
        let end = end.fetch_one(&mut *conn).await.context(DOING)?;
        let Some(reached) = end.try_get::<Option<Vec<u8>>, _>(0).context(DOING)? else { return Ok(None) };
        let looked_at: i64 = end.try_get(1).context(DOING)?;
        let done = self.place.done.saturating_add(looked_at.unsigned_abs());
        let mut step = Step { after, end: Place { reached, done }, expired: 0 };
        let row = self.on(COUNT, &step).fetch_one(&mut *conn).await.context(DOING)?;
        step.expired = row.try_get::<i64, _>(0).context(DOING)?.unsigned_abs();
        Ok(Some(step))
    }

    /// How many were removed, `None` if another process has the turn; and how long to rest afterwards.
    async fn delete(&self, step: &Step, lease: &mut Lease<'_>) -> StoreResult<(Option<u64>, Duration)> {
        let mut txn = self.store.begin().await?;
        let held = Instant::now();
        if !lease.renew(&mut txn, &step.end).await? {
            txn.rollback().await;
            return Ok((None, Duration::ZERO));
        }
        let removed = self.delete_in(&mut txn, step).await.context(DOING)?;
        txn.commit_own(DOING).await?;
        Ok((Some(removed), held.elapsed() * REST_FACTOR))
    }

    async fn delete_in(&self, conn: &mut SqliteConnection, step: &Step) -> sqlx::Result<u64> {
        self.on(RAISE_HORIZON, step).execute(&mut *conn).await?;
        Ok(self.on(DELETE, step).execute(conn).await?.rows_affected())
    }

    fn on(&self, sql: &'static str, step: &Step) -> Query {
        let query = sqlx::query(sql).bind(step.after.as_slice()).bind(step.end.reached.as_slice());
        query.bind(self.horizons.as_str())
    }

    fn arrived(&mut self, step: Step, removed: u64) {
        self.purged.receipts += removed;
        self.place = step.end;
        self.total = self.total.max(self.place.done);
        (self.pass.progress)(PurgeProgress { removed, done: self.place.done, total: self.total });
    }

    fn ended(&self, end: PassEnd) -> Purged {
        Purged { end, ..self.purged }
    }
}

//! The way through the receipts, in the order of their keys.

use std::time::{Duration, Instant};

use oncebox_core::store::{PassEnd, PurgePass, PurgeProgress, Purged, StoreResult};
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, Row, SqliteConnection};

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

/// Where the receipts are, and which of them may go: the statements of a step. `?1` and `?2` are the marks between which it
/// looks, `?3` the horizons.
pub(crate) struct Receipts {
    mark: Mark,
    step_end: String,
    count: String,
    raise_horizon: String,
    delete: String,
}

/// What the receipts are walked over by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// The key of oncebox's own table.
    Key,
    /// The number of a row.
    Rowid,
}

impl Receipts {
    /// In oncebox's own table.
    pub(crate) fn own() -> Self {
        let expired = "h.consumer = i.consumer AND i.processed_at < h.before
            AND NOT EXISTS (SELECT 1 FROM oncebox_dead d
                WHERE d.consumer = i.consumer AND d.tenant = i.tenant AND d.message_id = i.message_id)";
        Self::new(Mark::Key, "key", "oncebox_inbox", expired)
    }

    /// In another table, whose rows have numbers; `expired` says whether the row `i` may go by the horizon `h`.
    pub(crate) fn of_rows(table: &str, expired: &str) -> Self {
        Self::new(Mark::Rowid, "rowid", table, expired)
    }

    fn new(mark: Mark, by: &str, table: &str, expired: &str) -> Self {
        let expired = format!(
            "WITH horizon AS MATERIALIZED (SELECT value->>0 AS consumer, value->>1 AS before FROM json_each(?3)),
             expired AS (
                SELECT i.{by} AS mark, h.consumer, h.before FROM {table} i JOIN horizon h ON {expired}
                WHERE i.{by} > ?1 AND i.{by} <= ?2)"
        );
        Self {
            mark,
            step_end: format!(
                "SELECT max(mark), count(*) FROM (SELECT {by} AS mark FROM {table} WHERE {by} > ?1 ORDER BY {by} LIMIT ?2)"
            ),
            count: format!("{expired} SELECT count(*) FROM expired"),
            // In the transaction that deletes: whoever sees a receipt missing sees the horizon as well.
            raise_horizon: format!(
                "{expired} INSERT INTO oncebox_horizon AS mine (consumer, purged_before, purged)
                 SELECT consumer, max(before), count(*) FROM expired GROUP BY consumer
                 ON CONFLICT (consumer) DO UPDATE
                 SET purged_before = max(mine.purged_before, excluded.purged_before),
                     purged = mine.purged + excluded.purged"
            ),
            delete: format!("{expired} DELETE FROM {table} WHERE {by} IN (SELECT mark FROM expired)"),
        }
    }

    /// A statement with a mark as its next parameter. Before the first receipt there is none.
    fn bind(&self, query: Query, mark: &[u8]) -> Query {
        match self.mark {
            Mark::Key => query.bind(mark.to_vec()),
            Mark::Rowid => query.bind(mark.try_into().map_or(i64::MIN, i64::from_be_bytes)),
        }
    }

    /// The mark in the first column.
    fn read(&self, row: &SqliteRow) -> sqlx::Result<Option<Vec<u8>>> {
        Ok(match self.mark {
            Mark::Key => row.try_get(0)?,
            Mark::Rowid => row.try_get::<Option<i64>, _>(0)?.map(|number| number.to_be_bytes().into()),
        })
    }
}

/// A pass on its way.
pub(super) struct Walk<'a> {
    store: &'a SqliteStore,
    pass: &'a PurgePass<'a>,
    receipts: Receipts,
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
    pub(super) async fn new(
        store: &'a SqliteStore,
        pass: &'a PurgePass<'a>,
        receipts: Receipts,
    ) -> StoreResult<Self> {
        let horizons = horizons(store, pass).await?;
        let mut conn = store.reader().await?;
        let total = receipts_estimate(store, &mut conn, MAX_COUNTED).await?;
        let (place, purged) = (Place::default(), Purged::default());
        Ok(Self { store, pass, receipts, horizons, place, total, purged })
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
        let end = sqlx::query(AssertSqlSafe(self.receipts.step_end.clone()));
        let end = self.receipts.bind(end, &after).bind(STEP_RECEIPTS);
        let end = end.fetch_one(&mut *conn).await.context(DOING)?;
        let Some(reached) = self.receipts.read(&end).context(DOING)? else { return Ok(None) };
        let looked_at: i64 = end.try_get(1).context(DOING)?;
        let done = self.place.done.saturating_add(looked_at.unsigned_abs());
        let mut step = Step { after, end: Place { reached, done }, expired: 0 };
        let row = self.on(&self.receipts.count, &step).fetch_one(&mut *conn).await.context(DOING)?;
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
        self.on(&self.receipts.raise_horizon, step).execute(&mut *conn).await?;
        Ok(self.on(&self.receipts.delete, step).execute(conn).await?.rows_affected())
    }

    fn on(&self, sql: &str, step: &Step) -> Query {
        let query = self.receipts.bind(sqlx::query(AssertSqlSafe(sql.to_owned())), &step.after);
        self.receipts.bind(query, &step.end.reached).bind(self.horizons.clone())
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

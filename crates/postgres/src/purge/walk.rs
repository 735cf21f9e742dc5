//! Reading the receipts page by page.

use std::collections::BTreeSet;
use std::time::Instant;

use oncebox_core::{Purged, StoreResult};
use sqlx::{AssertSqlSafe, Row};

use super::horizon::RELATION;
use super::{Horizons, TRY_LOCK, rest_after};
use crate::classify::own;
use crate::store::PgStore;

/// Pages per transaction: some 5,000 receipts, a few hundredths of a second.
const PAGES: i64 = 64;

/// The tables that hold receipts: one, or the partitions.
const TABLES: &str = "SELECT c.oid::regclass::text, pg_relation_size(c.oid) / current_setting('block_size')::bigint \
     FROM pg_class c WHERE c.relkind = 'r' AND (c.oid = to_regclass('oncebox_inbox') \
         OR c.oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = to_regclass('oncebox_inbox'))) \
     ORDER BY c.oid";

/// A receipt whose message lies in the dead letters stays: replaying the letter relies on it.
const REMOVABLE: &str = "i.consumer = h.consumer AND i.processed_at < h.before AND NOT EXISTS (SELECT FROM oncebox_dead d \
     WHERE d.consumer = i.consumer AND d.message_id = i.message_id AND d.tenant = i.tenant)";

impl PgStore {
    pub(super) async fn walk(
        &self,
        horizons: &Horizons,
        dry_run: bool,
        purged: &mut Purged,
    ) -> StoreResult<()> {
        let mut txn = self.begin_aside().await?;
        let tables = self.query(TABLES).fetch_all(&mut *txn).await.map_err(own("listing the receipts"))?;
        txn.rollback().await;
        for table in &tables {
            let name: String = table.try_get(0).map_err(own("listing the receipts"))?;
            let pages: i64 = table.try_get(1).map_err(own("listing the receipts"))?;
            // What is written behind the last page meanwhile is too young to go.
            let mut first = 0;
            while first < pages {
                let began = Instant::now();
                let step = self.step(&name, first, horizons, dry_run);
                let Some(removed) = self.patiently("purging", step).await? else { return Ok(()) };
                purged.receipts += removed;
                first += PAGES;
                rest_after(began, dry_run).await;
            }
        }
        Ok(())
    }

    /// Removes what may go from some pages. `None` if another process purges.
    async fn step(
        &self,
        table: &str,
        first: i64,
        horizons: &Horizons,
        dry_run: bool,
    ) -> StoreResult<Option<u64>> {
        let pages = format!("i.ctid >= '({first},0)'::tid AND i.ctid < '({},0)'::tid", first + PAGES);
        let mut txn = self.begin_aside().await?;
        if dry_run {
            let count =
                format!("SELECT count(*) FROM ONLY {table} i, {RELATION} h WHERE {pages} AND {REMOVABLE}");
            let row = horizons
                .bind(sqlx::query(AssertSqlSafe(count)).persistent(false))
                .fetch_one(&mut *txn)
                .await
                .map_err(own("counting old receipts"))?;
            txn.rollback().await;
            let counted: i64 = row.try_get(0).map_err(own("counting old receipts"))?;
            return Ok(Some(counted.unsigned_abs()));
        }
        let free: bool = self
            .query(TRY_LOCK)
            .fetch_one(&mut *txn)
            .await
            .and_then(|row| row.try_get(0))
            .map_err(own("purging"))?;
        if !free {
            txn.rollback().await;
            return Ok(None);
        }
        let delete = format!(
            "WITH gone AS (DELETE FROM ONLY {table} i USING {RELATION} h WHERE {pages} AND {REMOVABLE} \
             RETURNING i.consumer) SELECT consumer, count(*) FROM gone GROUP BY consumer"
        );
        let gone = horizons
            .bind(sqlx::query(AssertSqlSafe(delete)).persistent(false))
            .fetch_all(&mut *txn)
            .await
            .map_err(own("removing old receipts"))?;
        let mut consumers = BTreeSet::new();
        let mut removed = 0;
        for row in &gone {
            consumers.insert(row.try_get::<String, _>(0).map_err(own("removing old receipts"))?);
            removed += row.try_get::<i64, _>(1).map_err(own("removing old receipts"))?.unsigned_abs();
        }
        let consumers: Vec<String> = consumers.into_iter().collect();
        self.write_horizons(&mut txn, horizons, &consumers).await?;
        txn.commit("SELECT oncebox_still_open()").await.map_err(own("removing old receipts"))?;
        Ok(Some(removed))
    }
}

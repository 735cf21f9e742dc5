//! Retention: receipts that are older than their consumer's horizon go.
//!
//! A pass reads the table of receipts in its physical order, a few pages per transaction, on a connection of its own. So it
//! needs no index that every message would pay for, holds no long transaction, and rests after each step.

mod horizon;
mod walk;

use std::time::{Duration, Instant};

use oncebox_core::{ConsumerName, Purged, Retention, StoreResult};
use sqlx::Row;

use crate::classify::own;
use crate::store::PgStore;
use crate::txn::PgTxn;

pub(crate) use horizon::{Horizons, RELATION};

/// How many times as long as it works a pass rests, so that the messages keep nine tenths of the server.
const REST: u32 = 4;

/// What every step asks for first. If another process has it, that one purges and this one stops: the one who holds it
/// always goes on, so of several exactly one is left.
pub(crate) const TRY_LOCK: &str =
    "SELECT pg_try_advisory_xact_lock(1868391013, hashtext(current_schema()::text))";

impl PgStore {
    pub(crate) async fn horizon_of(
        &self,
        txn: &mut PgTxn,
        consumer: &ConsumerName,
    ) -> StoreResult<Option<i64>> {
        let row = self
            .query(
                "SELECT (extract(epoch FROM purged_before) * 1000)::bigint FROM oncebox_horizon WHERE consumer = $1",
            )
            .bind(consumer.as_str())
            .fetch_optional(&mut **txn)
            .await
            .map_err(own("reading the horizon"))?;
        row.map(|row| row.try_get(0)).transpose().map_err(own("reading the horizon"))
    }

    pub(crate) async fn purge_pass(&self, retention: &[Retention], dry_run: bool) -> StoreResult<Purged> {
        // A day that could not be added (its lock was taken) must not keep old receipts from going.
        let days = if dry_run { Ok(()) } else { self.keep_days_ahead().await };
        let horizons = self.horizons(retention).await?;
        let mut purged = Purged::default();
        if horizons.is_empty() {
            return days.map(|()| purged);
        }
        for day in self.days_before(&horizons).await? {
            let began = Instant::now();
            if let Some(receipts) = self.drop_day(&day, &horizons, dry_run).await? {
                purged.partitions += 1;
                purged.receipts += receipts;
            }
            rest_after(began, dry_run).await;
        }
        self.walk(&horizons, dry_run, &mut purged).await?;
        days.map(|()| purged)
    }
}

/// Gives way to the messages.
async fn rest_after(began: Instant, dry_run: bool) {
    let rest = if dry_run { Duration::ZERO } else { began.elapsed() * REST };
    tokio::time::sleep(rest).await;
}

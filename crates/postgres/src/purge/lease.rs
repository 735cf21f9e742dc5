//! Who purges, and where the next step begins.
//!
//! One row, by the database's clock: one process makes a whole pass, and another takes over when it is not heard of any
//! more. Every step renews the lease in its own transaction, so whoever has lost it undoes what it was about to do.

use std::time::Duration;

use oncebox_core::store::{StoreError, StoreResult};
use sqlx::Row;
use uuid::Uuid;

use crate::classify::own;
use crate::store::PgStore;
use crate::txn::{PgTxn, STILL_OPEN};

/// Longer than a step and its rest can take.
const LEASE: Duration = Duration::from_secs(150);

/// A lease that ends later than one that begins now was written before the clock was set back.
const TAKE: &str = "INSERT INTO oncebox_purge AS p (owner, leased_until) \
     VALUES ($1, clock_timestamp() + $2 * interval '1 millisecond') \
     ON CONFLICT (only_row) DO UPDATE SET owner = EXCLUDED.owner, leased_until = EXCLUDED.leased_until \
     WHERE p.owner IS NULL OR p.leased_until IS NULL OR p.leased_until <= clock_timestamp() \
         OR p.leased_until > EXCLUDED.leased_until \
     RETURNING at_table, at_page";

const RENEW: &str = "UPDATE oncebox_purge SET leased_until = clock_timestamp() + $2 * interval '1 millisecond', \
         at_table = COALESCE($3, at_table), at_page = CASE WHEN $3 IS NULL THEN at_page ELSE $4 END \
     WHERE owner = $1";

const RELEASE: &str = "UPDATE oncebox_purge SET owner = NULL, leased_until = NULL, \
         at_table = CASE WHEN NOT $2 THEN at_table END, at_page = CASE WHEN NOT $2 THEN at_page END \
     WHERE owner = $1";

/// Where a step begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(super) table: String,
    pub(super) page: i64,
}

/// The right to purge.
#[derive(Debug)]
pub(crate) struct Lease {
    owner: Uuid,
    /// Where an earlier pass was left.
    pub(super) left_at: Option<Place>,
}

impl PgStore {
    /// `None` if another process purges.
    pub(super) async fn lease_purge(&self) -> StoreResult<Option<Lease>> {
        let failed = || own("taking the turn to purge");
        let owner = Uuid::now_v7();
        let mut txn = self.begin_aside().await?;
        let row =
            self.query(TAKE).bind(owner).bind(lease_ms()).fetch_optional(&mut *txn).await.map_err(failed())?;
        let Some(row) = row else {
            txn.rollback().await;
            return Ok(None);
        };
        let table: Option<String> = row.try_get(0).map_err(failed())?;
        let page: Option<i64> = row.try_get(1).map_err(failed())?;
        txn.commit(STILL_OPEN).await.map_err(failed())?;
        Ok(Some(Lease { owner, left_at: table.zip(page).map(|(table, page)| Place { table, page }) }))
    }

    /// Renews the lease in the transaction of a step, and writes down where the next one begins. Comes last, because others
    /// who look for their turn wait for it; if the lease is lost, dropping the transaction undoes the step.
    pub(crate) async fn keep_lease(
        &self,
        txn: &mut PgTxn,
        lease: &Lease,
        next: Option<&Place>,
    ) -> StoreResult<()> {
        let renewed = self
            .query(RENEW)
            .bind(lease.owner)
            .bind(lease_ms())
            .bind(next.map(|place| place.table.as_str()))
            .bind(next.map(|place| place.page))
            .execute(&mut **txn)
            .await
            .map_err(own("keeping the turn to purge"))?;
        if renewed.rows_affected() == 0 {
            return Err(StoreError::fenced("keeping the turn to purge"));
        }
        Ok(())
    }

    /// Gives the lease back. After a pass that came to the end the next one begins at the beginning.
    pub(super) async fn release_lease(&self, lease: &Lease, at_the_end: bool) -> StoreResult<()> {
        let failed = || own("ending the turn to purge");
        let mut txn = self.begin_aside().await?;
        let release = self.query(RELEASE).bind(lease.owner).bind(at_the_end);
        release.execute(&mut *txn).await.map_err(failed())?;
        txn.commit(STILL_OPEN).await.map_err(failed())
    }
}

fn lease_ms() -> i64 {
    i64::try_from(LEASE.as_millis()).unwrap_or(i64::MAX)
}

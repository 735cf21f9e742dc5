//! Who purges, and where the next step begins.
//!
//! One row, by the database's clock: one process makes a whole pass, and another takes over when it is not heard of any
//! more. Every step renews the lease in its own transaction, so whoever has lost it undoes what it was about to do.

use std::time::Duration;

use oncebox_core::store::{StoreError, StoreResult};
use sqlx::Row;
use uuid::Uuid;

use crate::classify::Context;
use crate::store::PgStore;
use crate::time::milliseconds;
use crate::txn::PgTxn;

/// Longer than a step and its rest can take.
const LEASE_DURATION: Duration = Duration::from_secs(150);

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

impl Lease {
    /// `None` if another process purges.
    pub(super) async fn take(store: &PgStore) -> StoreResult<Option<Self>> {
        /// A lease that ends later than one that begins now was written before the clock was set back.
        const TAKE: &str = "INSERT INTO oncebox_purge AS p (owner, leased_until) \
             VALUES ($1, clock_timestamp() + $2 * interval '1 millisecond') \
             ON CONFLICT (only_row) DO UPDATE SET owner = EXCLUDED.owner, leased_until = EXCLUDED.leased_until \
             WHERE p.owner IS NULL OR p.leased_until IS NULL OR p.leased_until <= clock_timestamp() \
                 OR p.leased_until > EXCLUDED.leased_until \
             RETURNING at_table, at_page";
        let doing = "taking the turn to purge";
        store
            .patiently(doing, async {
                let owner = Uuid::now_v7();
                let mut txn = store.begin_aside().await?;
                let take = store.query(TAKE).bind(owner).bind(milliseconds(LEASE_DURATION));
                let Some(row) = take.fetch_optional(&mut *txn).await.context(doing)? else {
                    txn.rollback().await;
                    return Ok(None);
                };
                let table: Option<String> = row.try_get(0).context(doing)?;
                let page: Option<i64> = row.try_get(1).context(doing)?;
                txn.commit_own(doing).await?;
                let left_at = table.zip(page).map(|(table, page)| Place { table, page });
                Ok(Some(Self { owner, left_at }))
            })
            .await
    }

    /// Renews the lease in the transaction of a step, and writes down where the next one begins. Comes last, because others
    /// who look for their turn wait for it; if the lease is lost, dropping the transaction undoes the step.
    pub(crate) async fn renew(
        &self,
        store: &PgStore,
        txn: &mut PgTxn,
        next: Option<&Place>,
    ) -> StoreResult<()> {
        const RENEW: &str = "UPDATE oncebox_purge SET leased_until = clock_timestamp() + $2 * interval '1 millisecond', \
                 at_table = COALESCE($3, at_table), at_page = CASE WHEN $3 IS NULL THEN at_page ELSE $4 END \
             WHERE owner = $1";
        let doing = "keeping the turn to purge";
        let renewed = store
            .query(RENEW)
            .bind(self.owner)
            .bind(milliseconds(LEASE_DURATION))
            .bind(next.map(|place| place.table.as_str()))
            .bind(next.map(|place| place.page))
            .execute(&mut **txn)
            .await
            .context(doing)?;
        if renewed.rows_affected() == 0 {
            return Err(StoreError::fenced(doing));
        }
        Ok(())
    }

    /// Ends the turn. After a pass that came to the end the next one begins at the beginning.
    pub(super) async fn give_back(&self, store: &PgStore, at_the_end: bool) -> StoreResult<()> {
        const GIVE_BACK: &str = "UPDATE oncebox_purge SET owner = NULL, leased_until = NULL, \
                 at_table = CASE WHEN NOT $2 THEN at_table END, at_page = CASE WHEN NOT $2 THEN at_page END \
             WHERE owner = $1";
        let doing = "ending the turn to purge";
        store
            .patiently(doing, async {
                let mut txn = store.begin_aside().await?;
                let give_back = store.query(GIVE_BACK).bind(self.owner).bind(at_the_end);
                give_back.execute(&mut *txn).await.context(doing)?;
                txn.commit_own(doing).await
            })
            .await
    }
}

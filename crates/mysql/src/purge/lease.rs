//! The turn to make a pass, and where the pass is.
//!
//! One row, by the database's clock: one process makes a whole pass, and another takes over when it is not heard of any
//! more. Every step renews the lease in its own transaction, so whoever has lost it undoes what it was about to do.

use std::time::Duration;

use oncebox_core::store::StoreResult;
use sqlx::Row;
use uuid::Uuid;

use crate::classify::Context;
use crate::quote::push_bytes;
use crate::store::MysqlStore;
use crate::time::milliseconds;

/// Longer than a step and its rest can take.
const LEASE_DURATION: Duration = Duration::from_secs(150);

/// Where a pass is: the last key that was looked at, and how many receipts were.
#[derive(Debug, Clone, Default)]
pub(super) struct Place {
    pub(super) reached: Vec<u8>,
    pub(super) done: u64,
}

/// The turn of this process.
pub(super) struct Lease {
    owner: Uuid,
}

impl Lease {
    /// `None` if another process is at it.
    pub(super) async fn take(store: &MysqlStore) -> StoreResult<Option<(Self, Place)>> {
        /// A lease that ends later than one that begins now was written before the clock was set back.
        const TAKE: &str = "UPDATE oncebox_purge SET owner = ?, leased_until = UTC_TIMESTAMP(6) + INTERVAL ? * 1000 MICROSECOND \
             WHERE only_row = 1 AND (owner IS NULL OR leased_until IS NULL OR leased_until <= UTC_TIMESTAMP(6) \
                 OR leased_until > UTC_TIMESTAMP(6) + INTERVAL ? * 1000 MICROSECOND)";
        const PLACE: &str = "SELECT at_key, done FROM oncebox_purge WHERE only_row = 1";
        let doing = "taking the turn to purge";
        store
            .patiently(doing, async {
                let (owner, lasts) = (Uuid::now_v7(), milliseconds(LEASE_DURATION));
                let mut txn = store.begin_aside().await?;
                let take = store.query(TAKE).bind(owner.as_bytes().as_slice()).bind(lasts).bind(lasts);
                if take.execute(&mut *txn).await.context(doing)?.rows_affected() == 0 {
                    txn.rollback().await;
                    return Ok(None);
                }
                let row = store.query(PLACE).fetch_one(&mut *txn).await.context(doing)?;
                let reached: Option<Vec<u8>> = row.try_get(0).context(doing)?;
                let done: i64 = row.try_get(1).context(doing)?;
                txn.commit_own(doing).await?;
                let place = Place { reached: reached.unwrap_or_default(), done: done.unsigned_abs() };
                Ok(Some((Self { owner }, place)))
            })
            .await
    }

    /// The statements that renew the lease and write down where the next step begins, for the message that commits a step. They
    /// come last, because others who look for their turn wait for them; and they fail if the lease is lost, which undoes the step.
    pub(super) fn renew(&self, next: &Place) -> String {
        format!(
            "UPDATE oncebox_purge SET leased_until = UTC_TIMESTAMP(6) + INTERVAL {} * 1000 MICROSECOND, {} WHERE {}; \
             SELECT IF(ROW_COUNT() = 1, 1, (SELECT 1 UNION ALL SELECT 2))",
            milliseconds(LEASE_DURATION),
            next.assignments(),
            self.is_mine()
        )
    }

    /// Ends the turn, with the place where the next one goes on. Does nothing if another process has it.
    pub(super) async fn give_back(&self, store: &MysqlStore, next: &Place) -> StoreResult<()> {
        let doing = "ending the turn to purge";
        let give_back = format!(
            "UPDATE oncebox_purge SET owner = NULL, leased_until = NULL, {} WHERE {}",
            next.assignments(),
            self.is_mine()
        );
        store
            .patiently(doing, async {
                let txn = store.begin_aside().await?;
                txn.commit_after(&give_back).await.context(doing)
            })
            .await
    }

    fn is_mine(&self) -> String {
        let mut sql = "only_row = 1 AND owner = ".to_owned();
        push_bytes(&mut sql, self.owner.as_bytes());
        sql
    }
}

impl Place {
    fn assignments(&self) -> String {
        let mut sql = format!("done = {}, at_key = ", self.done);
        if self.reached.is_empty() {
            sql.push_str("NULL");
        } else {
            push_bytes(&mut sql, &self.reached);
        }
        sql
    }
}

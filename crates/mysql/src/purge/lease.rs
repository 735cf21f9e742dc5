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

/// As many bytes as are kept of a place.
const MAX_PLACE_BYTES: usize = 2048;

/// Where a pass is: the last key that was looked at, if any was, and how many receipts were.
#[derive(Debug, Clone, Default)]
pub(super) struct Place {
    pub(super) reached: Option<Vec<u8>>,
    pub(super) done: u64,
}

/// The turn of this process.
pub(super) struct Lease {
    owner: Uuid,
    /// The table that it walks over: a place in one means nothing in another.
    table: String,
}

impl Lease {
    /// `None` if another process is at it.
    pub(super) async fn take(store: &MysqlStore, table: &str) -> StoreResult<Option<(Self, Place)>> {
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
                let written: Option<Vec<u8>> = row.try_get(0).context(doing)?;
                let done: i64 = row.try_get(1).context(doing)?;
                txn.commit_own(doing).await?;
                let lease = Self { owner, table: table.to_owned() };
                let place = lease.place(written.as_deref(), done.unsigned_abs());
                Ok(Some((lease, place)))
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
            self.assignments(next),
            self.is_mine()
        )
    }

    /// Ends the turn, with the place where the next one goes on. Does nothing if another process has it.
    pub(super) async fn give_back(&self, store: &MysqlStore, next: &Place) -> StoreResult<()> {
        let doing = "ending the turn to purge";
        let give_back = format!(
            "UPDATE oncebox_purge SET owner = NULL, leased_until = NULL, {} WHERE {}",
            self.assignments(next),
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

impl Lease {
    /// A place is written as the table's name, a zero, and the key. One that is too long is not kept, and the next pass
    /// begins at the beginning.
    fn assignments(&self, place: &Place) -> String {
        let written =
            place.reached.as_ref().map(|key| [self.table.as_bytes(), &[0], key.as_slice()].concat());
        let written = written.filter(|written| written.len() <= MAX_PLACE_BYTES);
        let mut sql = format!("done = {}, at_key = ", if written.is_some() { place.done } else { 0 });
        match written {
            Some(written) => push_bytes(&mut sql, &written),
            None => sql.push_str("NULL"),
        }
        sql
    }

    /// The beginning, if what is written is no place in this table.
    fn place(&self, written: Option<&[u8]>, done: u64) -> Place {
        let key =
            |written: &[u8]| Some(written.strip_prefix(self.table.as_bytes())?.strip_prefix(&[0])?.to_vec());
        written.and_then(key).map_or_else(Place::default, |key| Place { reached: Some(key), done })
    }
}

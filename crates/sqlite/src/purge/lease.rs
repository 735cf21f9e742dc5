//! The turn to make a pass, and where the pass is.

use std::time::{Duration, Instant};

use oncebox_core::store::StoreResult;
use sqlx::{Row, SqliteConnection};
use uuid::Uuid;

use super::DOING;
use crate::classify::Context;
use crate::store::SqliteStore;
use crate::time::{after, now, now_moved};

/// How long a purger that is not heard of keeps its turn.
const LEASE_DURATION: Duration = Duration::from_secs(60);

/// How long steps that remove nothing go on without writing that they are at it.
const MAX_SILENCE: Duration = Duration::from_secs(10);

/// Where a pass is: the last key that was looked at, and how many receipts were.
#[derive(Debug, Clone, Default)]
pub(super) struct Place {
    pub(super) reached: Vec<u8>,
    pub(super) done: u64,
}

/// The turn of this process.
pub(super) struct Lease<'s> {
    store: &'s SqliteStore,
    owner: String,
    renewed: Instant,
}

impl<'s> Lease<'s> {
    /// `None` if another process is at it.
    pub(super) async fn take(store: &'s SqliteStore) -> StoreResult<Option<(Self, Place)>> {
        // A lease that is longer than any was given by a clock that was wrong.
        const TAKE: &str = concat!(
            "UPDATE oncebox_purge SET owner = ?1, leased_until = ",
            now_moved!("?2"),
            " WHERE owner IS NULL OR leased_until NOT BETWEEN ",
            now!(),
            " AND ",
            now_moved!("?2"),
            " RETURNING reached, done"
        );
        let owner = Uuid::now_v7().to_string();
        let mut txn = store.begin().await?;
        let take = sqlx::query(TAKE).bind(owner.as_str()).bind(after(LEASE_DURATION));
        let Some(row) = take.fetch_optional(&mut *txn).await.context(DOING)? else {
            txn.rollback().await;
            return Ok(None);
        };
        let done: i64 = row.try_get("done").context(DOING)?;
        let place = Place { reached: row.try_get("reached").context(DOING)?, done: done.unsigned_abs() };
        txn.commit_own(DOING).await?;
        Ok(Some((Self { store, owner, renewed: Instant::now() }, place)))
    }

    /// Writes down where the pass is, in the transaction of a step. False if another process has the turn.
    pub(super) async fn renew(&mut self, conn: &mut SqliteConnection, place: &Place) -> StoreResult<bool> {
        const RENEW: &str = concat!(
            "UPDATE oncebox_purge SET reached = ?3, done = ?4, leased_until = ",
            now_moved!("?2"),
            " WHERE owner = ?1"
        );
        let renew = sqlx::query(RENEW).bind(self.owner.as_str()).bind(after(LEASE_DURATION));
        let renew = renew.bind(place.reached.as_slice()).bind(place.done.cast_signed());
        let mine = renew.execute(conn).await.context(DOING)?.rows_affected() > 0;
        self.renewed = Instant::now();
        Ok(mine)
    }

    /// The same for a step that had nothing to write, when it is time.
    pub(super) async fn renew_in_time(&mut self, place: &Place) -> StoreResult<bool> {
        if self.renewed.elapsed() < MAX_SILENCE {
            return Ok(true);
        }
        let mut txn = self.store.begin().await?;
        let mine = self.renew(&mut txn, place).await?;
        txn.commit_own(DOING).await?;
        Ok(mine)
    }

    /// Ends the turn, with the place where the next one goes on. Does nothing if another process has it.
    pub(super) async fn give_back(self, place: &Place) -> StoreResult<()> {
        const GIVE_BACK: &str = "UPDATE oncebox_purge
            SET reached = ?2, done = ?3, owner = NULL, leased_until = NULL WHERE owner = ?1";
        let mut txn = self.store.begin().await?;
        let give_back = sqlx::query(GIVE_BACK).bind(self.owner).bind(place.reached.as_slice());
        give_back.bind(place.done.cast_signed()).execute(&mut *txn).await.context(DOING)?;
        txn.commit_own(DOING).await
    }
}

//! Attempts that are written down beforehand, for messages that kill the process.

use oncebox_core::store::{Ownership, PositionKey, StoreResult};
use sqlx::{Row, SqliteConnection};

use super::{if_owner, of, undo};
use crate::classify::Context;
use crate::store::SqliteStore;
use crate::txn::SqliteTxn;

const RECORD: &str = r#"
    INSERT INTO oncebox_attempt AS mine (consumer, topic, partition, "offset", attempts) VALUES (?1, ?2, ?3, ?4, 1)
    ON CONFLICT (consumer, topic, partition, "offset") DO UPDATE SET attempts = mine.attempts + 1
    RETURNING attempts"#;

/// Writes down that an offset is about to be tried.
pub(super) async fn record_attempt(store: &SqliteStore, owner: &Ownership, offset: i64) -> StoreResult<u32> {
    let doing = "recording an attempt";
    let mut txn = store.begin().await?;
    if !is_owner(&mut txn, owner).await? {
        return Err(undo(txn, owner).await);
    }
    let row = of(RECORD, &owner.key).bind(offset).fetch_one(&mut *txn).await.context(doing)?;
    let attempts = row.try_get(0).context(doing)?;
    txn.commit_own(doing).await?;
    Ok(attempts)
}

const WITHDRAW: &str = r#"UPDATE oncebox_attempt SET attempts = attempts - 1
     WHERE consumer = ?1 AND topic = ?2 AND partition = ?3 AND "offset" = ?4"#;

const FORGET_WITHDRAWN: &str = "DELETE FROM oncebox_attempt
     WHERE consumer = ?1 AND topic = ?2 AND partition = ?3 AND attempts <= 0";

/// Takes one attempt back. Does nothing if fenced.
pub(super) async fn withdraw_attempt(store: &SqliteStore, owner: &Ownership, offset: i64) -> StoreResult<()> {
    let doing = "withdrawing an attempt";
    let mut txn = store.begin().await?;
    if is_owner(&mut txn, owner).await? {
        of(WITHDRAW, &owner.key).bind(offset).execute(&mut *txn).await.context(doing)?;
        of(FORGET_WITHDRAWN, &owner.key).execute(&mut *txn).await.context(doing)?;
    }
    txn.commit_own(doing).await
}

const FORGET: &str = r#"DELETE FROM oncebox_attempt
     WHERE consumer = ?1 AND topic = ?2 AND partition = ?3 AND "offset" = ?4"#;

/// The attempt at this offset ends with the transaction that settles its message.
pub(super) async fn forget(conn: &mut SqliteConnection, key: &PositionKey, offset: i64) -> StoreResult<()> {
    of(FORGET, key).bind(offset).execute(conn).await.context("forgetting an attempt")?;
    Ok(())
}

const FORGET_ALL: &str = "DELETE FROM oncebox_attempt WHERE consumer = ?1 AND topic = ?2 AND partition = ?3";

/// Forgets all attempts of a partition.
pub(super) async fn forget_all(conn: &mut SqliteConnection, key: &PositionKey) -> StoreResult<()> {
    of(FORGET_ALL, key).execute(conn).await.context("forgetting attempts")?;
    Ok(())
}

const IS_OWNER: &str = concat!("SELECT 1 FROM oncebox_position", if_owner!());

async fn is_owner(txn: &mut SqliteTxn, owner: &Ownership) -> StoreResult<bool> {
    let query = of(IS_OWNER, &owner.key).bind(owner.epoch);
    let row = query.fetch_optional(&mut **txn).await.context("looking for the owner of a position")?;
    Ok(row.is_some())
}

//! Attempts that are written down beforehand, for messages that kill the process.

use oncebox_core::store::{Ownership, PositionKey, StoreResult};
use sqlx::{Row, SqliteConnection};

use super::{if_owner, of, undo};
use crate::classify::Context;
use crate::txn::SqliteTxn;
use crate::writer::Writer;

const IS_OWNER: &str = concat!("SELECT 1 FROM oncebox_position", if_owner!());

const RECORD: &str = r#"
    INSERT INTO oncebox_attempt AS mine (consumer, topic, partition, "offset", attempts) VALUES (?1, ?2, ?3, ?4, 1)
    ON CONFLICT (consumer, topic, partition, "offset") DO UPDATE SET attempts = mine.attempts + 1
    RETURNING attempts"#;

const WITHDRAW: &str = r#"UPDATE oncebox_attempt SET attempts = attempts - 1
     WHERE consumer = ?1 AND topic = ?2 AND partition = ?3 AND "offset" = ?4"#;

const FORGET_WITHDRAWN: &str = "DELETE FROM oncebox_attempt
     WHERE consumer = ?1 AND topic = ?2 AND partition = ?3 AND attempts <= 0";

const SETTLE: &str = r#"DELETE FROM oncebox_attempt
     WHERE consumer = ?1 AND topic = ?2 AND partition = ?3 AND "offset" = ?4"#;

const FORGET: &str = "DELETE FROM oncebox_attempt WHERE consumer = ?1 AND topic = ?2 AND partition = ?3";

/// Writes down that an offset is about to be tried.
pub(crate) async fn record_attempt(writer: &Writer, owner: &Ownership, offset: i64) -> StoreResult<u32> {
    let doing = "recording an attempt";
    let mut txn = writer.begin().await?;
    if !is_owner(&mut txn, owner).await? {
        return Err(undo(txn, owner).await);
    }
    let row = of(RECORD, &owner.key).bind(offset).fetch_one(&mut *txn).await.context(doing)?;
    let attempts = row.try_get(0).context(doing)?;
    txn.commit(None).await?;
    Ok(attempts)
}

/// Takes one attempt back. Does nothing if fenced.
pub(crate) async fn withdraw_attempt(writer: &Writer, owner: &Ownership, offset: i64) -> StoreResult<()> {
    let doing = "withdrawing an attempt";
    let mut txn = writer.begin().await?;
    if is_owner(&mut txn, owner).await? {
        of(WITHDRAW, &owner.key).bind(offset).execute(&mut *txn).await.context(doing)?;
        of(FORGET_WITHDRAWN, &owner.key).execute(&mut *txn).await.context(doing)?;
    }
    txn.commit(None).await
}

/// The attempt at this offset ends with the transaction.
pub(super) async fn settle(conn: &mut SqliteConnection, key: &PositionKey, offset: i64) -> StoreResult<()> {
    of(SETTLE, key).bind(offset).execute(conn).await.context("settling an attempt")?;
    Ok(())
}

/// All attempts of a partition.
pub(super) async fn forget(conn: &mut SqliteConnection, key: &PositionKey) -> StoreResult<()> {
    of(FORGET, key).execute(conn).await.context("forgetting attempts")?;
    Ok(())
}

async fn is_owner(txn: &mut SqliteTxn, owner: &Ownership) -> StoreResult<bool> {
    let query = of(IS_OWNER, &owner.key).bind(owner.epoch);
    let row = query.fetch_optional(&mut **txn).await.context("looking for the owner of a position")?;
    Ok(row.is_some())
}

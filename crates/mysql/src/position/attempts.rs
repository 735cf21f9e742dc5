//! Attempts that are written down beforehand, for messages that kill the process.

use oncebox_core::store::{Ownership, PositionKey, StoreResult};
use sqlx::{AssertSqlSafe, Row};

use super::{fenced, lock_own, of_key};
use crate::classify::Context;
use crate::quote::text;
use crate::store::MysqlStore;

/// Writes down that an offset is about to be tried. The position is held meanwhile: an attempt must not be written by an owner
/// that has just been replaced.
pub(super) async fn record_attempt(store: &MysqlStore, owner: &Ownership, offset: i64) -> StoreResult<u32> {
    let doing = "recording an attempt";
    let key = &owner.key;
    let record = format!(
        "INSERT INTO oncebox_attempt (consumer, topic, `partition`, `offset`, attempts) VALUES ({}, {}, {}, {offset}, 1) \
         ON DUPLICATE KEY UPDATE attempts = attempts + 1; \
         SELECT attempts FROM oncebox_attempt WHERE {} AND `offset` = {offset}",
        text(key.consumer.as_str()),
        text(&key.topic),
        key.partition,
        of_key(key)
    );
    let Some(mut txn) = lock_own(store, owner).await? else { return Err(fenced(owner)) };
    let rows = sqlx::raw_sql(AssertSqlSafe(record)).fetch_all(&mut *txn).await.context(doing)?;
    let row = rows.first().ok_or(sqlx::Error::RowNotFound).context(doing)?;
    let attempts: i32 = row.try_get(0).context(doing)?;
    txn.commit_own(doing).await?;
    Ok(attempts.unsigned_abs())
}

/// Takes one attempt back; the last one goes with its row. Does nothing if fenced.
pub(super) async fn withdraw_attempt(store: &MysqlStore, owner: &Ownership, offset: i64) -> StoreResult<()> {
    let this = of_key(&owner.key);
    let withdraw = format!(
        "UPDATE oncebox_attempt SET attempts = attempts - 1 WHERE {this} AND `offset` = {offset}; \
         DELETE FROM oncebox_attempt WHERE {this} AND `offset` = {offset} AND attempts <= 0"
    );
    let Some(txn) = lock_own(store, owner).await? else { return Ok(()) };
    txn.commit_after(&withdraw).await.context("withdrawing an attempt")
}

/// The statement that ends the attempt at this offset with the transaction that settles its message.
pub(super) fn forget(key: &PositionKey, offset: i64) -> String {
    format!("DELETE FROM oncebox_attempt WHERE {} AND `offset` = {offset}", of_key(key))
}

/// The statement that forgets all attempts of a partition.
pub(super) fn forget_all(key: &PositionKey) -> String {
    format!("DELETE FROM oncebox_attempt WHERE {}", of_key(key))
}

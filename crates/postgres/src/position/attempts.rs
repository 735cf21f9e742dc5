//! Attempts that are written down beforehand, for messages that kill the process.

use oncebox_core::store::{Ownership, PositionKey, StoreError, StoreResult};
use sqlx::Row;

use super::of_owner;
use crate::classify::Context;
use crate::quote::literal;
use crate::store::PgStore;

/// Locks the position: an attempt must not be written by an owner that has just been replaced.
const RECORD: &str = "WITH mine AS (SELECT consumer, topic, partition FROM oncebox_position \
         WHERE consumer = $1 AND topic = $2 AND partition = $3 AND epoch = $4 FOR UPDATE) \
     INSERT INTO oncebox_attempt AS a (consumer, topic, partition, \"offset\", attempts) \
     SELECT consumer, topic, partition, $5, 1 FROM mine \
     ON CONFLICT (consumer, topic, partition, \"offset\") DO UPDATE SET attempts = a.attempts + 1 \
     RETURNING a.attempts";

/// Writes down that an offset is about to be tried.
pub(super) async fn record_attempt(store: &PgStore, owner: &Ownership, offset: i64) -> StoreResult<u32> {
    let doing = "recording an attempt";
    let mut txn = store.begin().await?;
    let record = of_owner(store, RECORD, owner).bind(offset);
    let Some(row) = record.fetch_optional(&mut *txn).await.context(doing)? else {
        txn.rollback().await;
        return Err(StoreError::fenced(owner.key.to_string()));
    };
    let attempts: i32 = row.try_get(0).context(doing)?;
    txn.commit_own(doing).await?;
    Ok(attempts.unsigned_abs())
}

/// The last one goes with its row.
const WITHDRAW: &str = "WITH mine AS (SELECT consumer, topic, partition FROM oncebox_position \
         WHERE consumer = $1 AND topic = $2 AND partition = $3 AND epoch = $4 FOR UPDATE), \
     last AS (DELETE FROM oncebox_attempt a USING mine m WHERE a.consumer = m.consumer AND a.topic = m.topic \
         AND a.partition = m.partition AND a.\"offset\" = $5 AND a.attempts <= 1) \
     UPDATE oncebox_attempt a SET attempts = a.attempts - 1 FROM mine m WHERE a.consumer = m.consumer \
         AND a.topic = m.topic AND a.partition = m.partition AND a.\"offset\" = $5 AND a.attempts > 1";

/// Takes one attempt back. Does nothing if fenced.
pub(super) async fn withdraw_attempt(store: &PgStore, owner: &Ownership, offset: i64) -> StoreResult<()> {
    let doing = "withdrawing an attempt";
    let mut txn = store.begin().await?;
    let withdraw = of_owner(store, WITHDRAW, owner).bind(offset);
    withdraw.execute(&mut *txn).await.context(doing)?;
    txn.commit_own(doing).await
}

/// The statement that ends the attempt at this offset with the transaction that settles its message.
pub(super) fn forget(key: &PositionKey, offset: i64) -> String {
    format!(
        "DELETE FROM oncebox_attempt WHERE consumer = {} AND topic = {} AND partition = {} AND \"offset\" = {offset}",
        literal(key.consumer.as_str()),
        literal(&key.topic),
        key.partition
    )
}

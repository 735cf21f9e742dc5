//! What an operator does with positions.

use oncebox_core::names::ConsumerName;
use oncebox_core::source::LogId;
use oncebox_core::store::{PositionKey, StoreResult};

use super::{attempts, of};
use crate::classify::Context;
use crate::store::SqliteStore;
use crate::time::now;

// A new epoch fences the owner. What was known about the old place says nothing about the new one, and whoever moves a
// position wants it to be read, so it is no longer retired. What was settled in the same log comes again because of it, if it
// does; in another log nothing was settled.
const MOVE: &str = "
    INSERT INTO oncebox_position AS mine (consumer, topic, partition, epoch, next_offset, floor, log)
    VALUES (?1, ?2, ?3, 1, ?4, ?4, ?5)
    ON CONFLICT (consumer, topic, partition) DO UPDATE
    SET epoch = mine.epoch + 1, starts = 0, next_offset = excluded.next_offset, floor = excluded.floor,
        log = excluded.log, mark_offset = NULL, mark_digest = NULL, caught_up_at = NULL, retired_at = NULL,
        settled_to = CASE WHEN mine.log <> excluded.log THEN excluded.next_offset ELSE mine.settled_to END,
        rewound_to = CASE WHEN mine.log <> excluded.log THEN NULL ELSE coalesce(mine.settled_to, mine.next_offset) END";

/// Moves a position, in any direction, and makes it if there is none.
pub(super) async fn move_position(
    store: &SqliteStore,
    key: &PositionKey,
    next_offset: i64,
    log: Option<&LogId>,
) -> StoreResult<()> {
    let doing = "moving a position";
    let mut txn = store.begin().await?;
    let update = of(MOVE, key).bind(next_offset).bind(log.map(LogId::as_str));
    update.execute(&mut *txn).await.context(doing)?;
    attempts::forget_all(&mut txn, key).await?;
    txn.commit_own(doing).await
}

const RETIRE: &str = concat!(
    "UPDATE oncebox_position SET retired_at = ",
    now!(),
    " WHERE consumer = ?1 AND topic = ?2 AND retired_at IS NULL"
);

/// Retires the positions of a consumer in a topic; those that are retired already do not count.
pub(super) async fn retire_positions(
    store: &SqliteStore,
    consumer: &ConsumerName,
    topic: &str,
) -> StoreResult<u64> {
    let doing = "retiring positions";
    let mut txn = store.begin().await?;
    let retire = sqlx::query(RETIRE).bind(consumer.as_str()).bind(topic);
    let retired = retire.execute(&mut *txn).await.context(doing)?.rows_affected();
    txn.commit_own(doing).await?;
    Ok(retired)
}

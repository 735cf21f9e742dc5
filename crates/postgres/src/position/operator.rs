//! What an operator does with positions.

use oncebox_core::names::ConsumerName;
use oncebox_core::source::LogId;
use oncebox_core::store::{PositionKey, StoreResult};
use sqlx::Row;

use super::of;
use crate::classify::Context;
use crate::store::PgStore;

/// A new epoch fences the owner. What was known about the old place says nothing about the new one, and whoever moves a
/// position wants it to be read, so it is no longer retired. What was settled in the same log comes again because of it, if
/// it does; in another log nothing was settled.
const MOVE: &str = "WITH forgotten AS (DELETE FROM oncebox_attempt \
         WHERE consumer = $1 AND topic = $2 AND partition = $3) \
     INSERT INTO oncebox_position AS p (consumer, topic, partition, epoch, next_offset, floor, log) \
     VALUES ($1, $2, $3, 1, $4, $4, $5) \
     ON CONFLICT (consumer, topic, partition) DO UPDATE SET epoch = p.epoch + 1, starts = 0, next_offset = $4, \
         floor = $4, log = $5, mark_offset = NULL, mark_digest = NULL, caught_up_at = NULL, retired_at = NULL, \
         settled_to = CASE WHEN p.log <> $5 THEN $4 ELSE p.settled_to END, \
         rewound_to = CASE WHEN p.log <> $5 THEN NULL ELSE COALESCE(p.settled_to, p.next_offset) END";

/// Moves a position, in any direction, and makes it if there is none.
pub(super) async fn move_position(
    store: &PgStore,
    key: &PositionKey,
    next_offset: i64,
    log: Option<&LogId>,
) -> StoreResult<()> {
    let doing = "moving a position";
    let mut txn = store.begin_aside().await?;
    let update = of(store, MOVE, key).bind(next_offset).bind(log.map(LogId::as_str));
    update.execute(&mut *txn).await.context(doing)?;
    txn.commit_own(doing).await
}

const RETIRE: &str = "WITH retired AS (UPDATE oncebox_position SET retired_at = clock_timestamp() \
         WHERE consumer = $1 AND topic = $2 AND retired_at IS NULL RETURNING partition), \
     forgotten AS (DELETE FROM oncebox_attempt a USING retired r \
         WHERE a.consumer = $1 AND a.topic = $2 AND a.partition = r.partition) \
     SELECT count(*) FROM retired";

/// Retires the positions of a consumer in a topic; those that are retired already do not count.
pub(super) async fn retire_positions(
    store: &PgStore,
    consumer: &ConsumerName,
    topic: &str,
) -> StoreResult<u64> {
    let doing = "retiring positions";
    let mut txn = store.begin_aside().await?;
    let retire = store.query(RETIRE).bind(consumer.as_str()).bind(topic);
    let row = retire.fetch_one(&mut *txn).await.context(doing)?;
    let retired: i64 = row.try_get(0).context(doing)?;
    txn.commit_own(doing).await?;
    Ok(retired.unsigned_abs())
}

//! What an operator does with positions.

use oncebox_core::names::ConsumerName;
use oncebox_core::source::LogId;
use oncebox_core::store::{PositionKey, StoreResult};

use super::attempts;
use crate::classify::Context;
use crate::quote::text;
use crate::store::MysqlStore;

/// Moves a position, in any direction, and makes it if there is none.
///
/// A new epoch fences the owner. What was known about the old place says nothing about the new one, and whoever moves a position
/// wants it to be read, so it is no longer retired. What was settled in the same log comes again because of it, if it does; in
/// another log nothing was settled. Assignments are made from left to right: these two stand before what they look at.
pub(super) async fn move_position(
    store: &MysqlStore,
    key: &PositionKey,
    next_offset: i64,
    log: Option<&LogId>,
) -> StoreResult<()> {
    let log = log.map_or_else(|| "NULL".to_owned(), |log| text(log.as_str()));
    let movement = format!(
        "INSERT INTO oncebox_position (consumer, topic, `partition`, epoch, next_offset, floor, log) \
         VALUES ({}, {}, {}, 1, {next_offset}, {next_offset}, {log}) \
         ON DUPLICATE KEY UPDATE rewound_to = IF(log <> {log}, NULL, COALESCE(settled_to, next_offset)), \
             settled_to = IF(log <> {log}, {next_offset}, settled_to), \
             epoch = epoch + 1, starts = 0, next_offset = {next_offset}, floor = {next_offset}, \
             log = {log}, mark_offset = NULL, mark_digest = NULL, caught_up_at = NULL, retired_at = NULL; {}",
        text(key.consumer.as_str()),
        text(&key.topic),
        key.partition,
        attempts::forget_all(key)
    );
    let txn = store.begin_aside().await?;
    txn.commit_after(&movement).await.context("moving a position")
}

const RETIRE: &str = "UPDATE oncebox_position SET retired_at = UTC_TIMESTAMP(6) \
     WHERE consumer = ? AND topic = ? AND retired_at IS NULL";

/// Retires the positions of a consumer in a topic; those that are retired already do not count.
pub(super) async fn retire_positions(
    store: &MysqlStore,
    consumer: &ConsumerName,
    topic: &str,
) -> StoreResult<u64> {
    let doing = "retiring positions";
    let mut txn = store.begin_aside().await?;
    let retire = store.query(RETIRE).bind(consumer.as_str()).bind(topic);
    let retired = retire.execute(&mut *txn).await.context(doing)?.rows_affected();
    txn.commit_own(doing).await?;
    Ok(retired)
}

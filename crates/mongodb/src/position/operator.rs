//! What an operator does with positions.

use mongodb::bson::{Document, doc};
use oncebox_core::names::ConsumerName;
use oncebox_core::source::LogId;
use oncebox_core::store::{PositionKey, StoreResult};

use super::fold::{self, Folded, fold_all};
use super::{POSITIONS, attempts};
use crate::classify::Context;
use crate::rerun::rerun;
use crate::store::MongoStore;

/// Moves a position, in any direction, and makes it if there is none.
///
/// A new epoch fences the owner. What was known about the old place says nothing about the new one, and whoever moves a position
/// wants it to be read, so it is no longer retired. What was settled in the same log comes again because of it, if it does; in
/// another log nothing was settled.
pub(super) async fn move_position(
    store: &MongoStore,
    key: &PositionKey,
    next_offset: i64,
    log: Option<&LogId>,
) -> StoreResult<()> {
    rerun(store, || move_once(store, key, next_offset, log)).await
}

async fn move_once(
    store: &MongoStore,
    key: &PositionKey,
    next_offset: i64,
    log: Option<&LogId>,
) -> StoreResult<()> {
    let doing = "moving a position";
    let mut txn = store.begin_aside().await?;
    fold::hold_all(&mut txn, key).await.context(doing)?;
    let before = fold::fold(&mut txn, key).await.context(doing)?.unwrap_or_else(|| Folded::new(key));
    let log = log.map(|log| log.as_str().to_owned());
    let is_another_log = before.log.as_ref().zip(log.as_ref()).is_some_and(|(was, is)| was != is);
    let (settled_to, rewound_to) = if is_another_log {
        (Some(next_offset), None)
    } else {
        (before.settled_to, before.settled_to.or(before.next_offset))
    };
    let after = Folded {
        epoch: before.epoch + 1,
        starts: 0,
        next_offset: Some(next_offset),
        floor: Some(next_offset),
        log,
        mark_offset: None,
        mark_digest: None,
        caught_up_at: None,
        retired_at: None,
        settled_to,
        rewound_to,
        ..before
    };
    fold::write(&mut txn, key, &after).await.context(doing)?;
    attempts::forget_all(&mut txn, key).await.context(doing)?;
    txn.commit_own(doing).await
}

/// Retires the positions of a consumer in a topic; those that are retired already do not count.
pub(super) async fn retire_positions(
    store: &MongoStore,
    consumer: &ConsumerName,
    topic: &str,
) -> StoreResult<u64> {
    let doing = "retiring positions";
    // One that was retired, and lived on in a lane document, lives.
    let all = fold_all(store, Some(consumer.as_str()), doing).await?;
    let living: Vec<Document> = all
        .iter()
        .filter(|position| position.topic == topic && position.retired_at.is_none())
        .map(|position| {
            doc! { "consumer": &position.consumer, "topic": &position.topic, "partition": position.partition }
        })
        .collect();
    let retire = vec![doc! { "$set": { "retired_at": "$$NOW" } }];
    let retired = store.aside(POSITIONS).update_many(doc! { "_id": { "$in": living } }, retire).await;
    Ok(retired.context(doing)?.matched_count)
}

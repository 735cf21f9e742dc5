//! Attempts that are written down beforehand, for messages that kill the process.

use mongodb::bson::{Document, doc};
use mongodb::error::Result;
use mongodb::options::ReturnDocument;
use oncebox_core::store::{Ownership, PositionKey, StoreResult};

use super::fold::whole;
use super::{POSITIONS, Slot, fenced, id};
use crate::classify::Context;
use crate::rerun::rerun;
use crate::store::MongoStore;
use crate::tx::MongoTx;
use crate::txn::MongoTxn;

const ATTEMPTS: &str = "oncebox_attempt";

/// Writes down that an offset is about to be tried. The position is held meanwhile: an attempt must not be written by an owner
/// that has just been replaced.
pub(super) async fn record_attempt(
    store: &MongoStore,
    owner: &Ownership,
    offset: i64,
    doing: &str,
) -> StoreResult<u32> {
    let _slot = Slot::take_first(store, owner).await;
    rerun(store, || record_once(store, owner, offset, doing)).await
}

async fn record_once(store: &MongoStore, owner: &Ownership, offset: i64, doing: &str) -> StoreResult<u32> {
    let Some(mut txn) = hold(store, owner, doing).await? else { return Err(fenced(owner)) };
    let tx: &mut MongoTx = &mut txn;
    let counted = tx
        .database
        .collection::<Document>(ATTEMPTS)
        .find_one_and_update(
            doc! { "_id": attempt_id(&owner.key, offset) },
            doc! { "$inc": { "attempts": 1 } },
        )
        .upsert(true)
        .return_document(ReturnDocument::After)
        .session(&mut tx.session)
        .await
        .context(doing)?;
    let attempts = counted.and_then(|attempt| whole(attempt.get("attempts"))).unwrap_or(1);
    txn.commit_own(doing).await?;
    Ok(u32::try_from(attempts).unwrap_or(u32::MAX))
}

/// Takes one attempt back; the last one goes with its document. Does nothing if fenced.
pub(super) async fn withdraw_attempt(
    store: &MongoStore,
    owner: &Ownership,
    offset: i64,
    doing: &str,
) -> StoreResult<()> {
    let _slot = Slot::take_first(store, owner).await;
    rerun(store, || withdraw_once(store, owner, offset, doing)).await
}

async fn withdraw_once(store: &MongoStore, owner: &Ownership, offset: i64, doing: &str) -> StoreResult<()> {
    let Some(mut txn) = hold(store, owner, doing).await? else { return Ok(()) };
    let tx: &mut MongoTx = &mut txn;
    let attempts = tx.database.collection::<Document>(ATTEMPTS);
    let this = doc! { "_id": attempt_id(&owner.key, offset) };
    let fewer = attempts.update_one(this.clone(), doc! { "$inc": { "attempts": -1 } });
    fewer.session(&mut tx.session).await.context(doing)?;
    let mut last = this;
    last.insert("attempts", doc! { "$lte": 0 });
    attempts.delete_one(last).session(&mut tx.session).await.context(doing)?;
    txn.commit_own(doing).await
}

/// Gives a position back: no starts, and no attempts.
pub(super) async fn release_once(store: &MongoStore, owner: &Ownership, doing: &str) -> StoreResult<()> {
    let Some(mut txn) = hold(store, owner, doing).await? else { return Ok(()) };
    let tx: &mut MongoTx = &mut txn;
    let positions = tx.database.collection::<Document>(POSITIONS);
    let released = positions.update_one(doc! { "_id": id(&owner.key) }, doc! { "$set": { "starts": 0_i64 } });
    released.session(&mut tx.session).await.context(doing)?;
    forget_all(tx, &owner.key).await.context(doing)?;
    txn.commit_own(doing).await
}

/// Opens a transaction that holds the owner's position. `None` if it has another owner. The document really changes: only
/// then is it held.
pub(super) async fn hold(
    store: &MongoStore,
    owner: &Ownership,
    doing: &str,
) -> StoreResult<Option<MongoTxn>> {
    let mut txn = store.begin().await?;
    let tx: &mut MongoTx = &mut txn;
    let positions = tx.database.collection::<Document>(POSITIONS);
    let own = doc! { "_id": id(&owner.key), "epoch": owner.epoch };
    let held = positions.update_one(own, doc! { "$inc": { "held": 1_i64 } });
    let held = held.session(&mut tx.session).await.context(doing)?;
    if held.matched_count == 0 {
        txn.rollback().await;
        return Ok(None);
    }
    Ok(Some(txn))
}

/// Forgets attempts below the position, which say nothing any more: what lies there is settled. Whether others are left.
pub(super) async fn forget_settled(
    tx: &mut MongoTx,
    key: &PositionKey,
    next_offset: Option<i64>,
) -> Result<bool> {
    let attempts = tx.database.collection::<Document>(ATTEMPTS);
    if let Some(next) = next_offset {
        let mut settled = of_key(key);
        settled.insert("_id.offset", doc! { "$lt": next });
        attempts.delete_many(settled).session(&mut tx.session).await?;
    }
    Ok(attempts.find_one(of_key(key)).session(&mut tx.session).await?.is_some())
}

/// Ends the attempt at this offset with the transaction that settles its message.
pub(super) async fn forget(tx: &mut MongoTx, key: &PositionKey, offset: i64) -> Result<()> {
    let attempts = tx.database.collection::<Document>(ATTEMPTS);
    attempts.delete_one(doc! { "_id": attempt_id(key, offset) }).session(&mut tx.session).await?;
    Ok(())
}

/// Forgets all attempts of a partition.
pub(super) async fn forget_all(tx: &mut MongoTx, key: &PositionKey) -> Result<()> {
    let attempts = tx.database.collection::<Document>(ATTEMPTS);
    attempts.delete_many(of_key(key)).session(&mut tx.session).await?;
    Ok(())
}

fn attempt_id(key: &PositionKey, offset: i64) -> Document {
    let mut attempt = id(key);
    attempt.insert("offset", offset);
    attempt
}

fn of_key(key: &PositionKey) -> Document {
    doc! { "_id.consumer": key.consumer.as_str(), "_id.topic": &*key.topic, "_id.partition": key.partition }
}

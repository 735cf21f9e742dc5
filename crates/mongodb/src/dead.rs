//! Dead letters: written inside the transaction that gives the message up, read and taken back by an operator.

mod edit;
mod groups;
mod parts;
mod read;

use std::collections::{HashMap, HashSet};

use futures_util::TryStreamExt;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, Document, doc};
use oncebox_core::inbox::ReceiptKey;
use oncebox_core::names::{ConsumerName, MessageId};
use oncebox_core::source::LogId;
use oncebox_core::store::{
    Claim, DeadFilter, DeadGroup, DeadLetter, DeadLetters, DeadSummary, ErrorClass, LetterContent,
    PositionKey, StoreError, StoreResult, StoredDeadLetter, error_group, further_values,
};
use sha2::{Digest, Sha256};

use crate::classify::Context;
use crate::rerun::rerun;
use crate::store::MongoStore;
use crate::time::date;
use crate::tx::MongoTx;
use crate::txn::MongoTxn;
use crate::{adopted, claim, counter};
use parts::Cut;
use read::{matching, stored, summary, summary_fields};

pub(crate) const DEAD: &str = "oncebox_dead";
/// How many were replayed, by consumer.
pub(crate) const REPLAYED: &str = "oncebox_replayed";
/// The longest error text that is kept.
const MAX_ERROR_BYTES: usize = 8 * 1024;
/// Keys that are looked for in one command.
const MAX_KEYS: usize = 2000;
/// Letters that are dropped in one transaction.
const MAX_DROPPED: u32 = 1000;

impl DeadLetters for MongoStore {
    async fn park(
        &self,
        txn: &mut MongoTxn,
        consumer: &ConsumerName,
        letters: &[DeadLetter],
    ) -> StoreResult<()> {
        self.patiently("parking dead letters", park(txn, consumer, letters)).await
    }

    async fn parked_keys(
        &self,
        txn: &mut MongoTxn,
        position: &PositionKey,
        keys: &[&[u8]],
    ) -> StoreResult<Vec<Vec<u8>>> {
        let doing = "looking for parked keys";
        let mut parked = Vec::new();
        for keys in keys.chunks(MAX_KEYS) {
            // By their hashes: keys may be long, and there may be many.
            let wanted: HashMap<[u8; 32], &[u8]> = keys.iter().map(|key| (hash(key), *key)).collect();
            let found = async { parked_among(txn, position, wanted.keys()).await.context(doing) };
            for found in self.patiently(doing, found).await? {
                let Bson::Binary(found) = found else { continue };
                let key = <[u8; 32]>::try_from(found.bytes).ok().and_then(|hash| wanted.get(&hash));
                parked.extend(key.map(|key| key.to_vec()));
            }
        }
        Ok(parked)
    }

    /// What two replays of one letter meet at is the letter: the second fails, begins anew, and then finds nothing.
    async fn take_dead(&self, number: i64) -> StoreResult<Option<(MongoTxn, StoredDeadLetter)>> {
        let doing = "taking a dead letter";
        let taken = rerun(self, async || {
            let mut txn = self.begin().await?;
            match take_once(self, &mut txn, number, doing).await {
                Ok(Some(letter)) => Ok(Some((txn, letter))),
                other => {
                    txn.rollback().await;
                    other.map(|_| None)
                }
            }
        });
        self.patiently(doing, taken).await
    }

    async fn letter_before(&self, txn: &mut MongoTxn, taken: &StoredDeadLetter) -> StoreResult<Option<i64>> {
        let record = &taken.letter.record;
        let Some(key) = record.key.as_deref() else { return Ok(None) };
        let before = doc! {
            "consumer": &taken.consumer, "topic": &*record.topic, "partition": record.partition,
            "key_hash": binary(&hash(key)), "_id": { "$lt": taken.number },
        };
        let doing = "looking for an earlier letter of the key";
        self.patiently(doing, async {
            let tx: &mut MongoTx = txn;
            let letters = tx.database.collection::<Document>(DEAD);
            let first = letters.find_one(before).projection(doc! { "_id": 1 }).sort(doc! { "_id": 1 });
            let first = first.session(&mut tx.session).await.context(doing)?;
            Ok(first.and_then(|letter| crate::position::whole(letter.get("_id"))))
        })
        .await
    }

    async fn dead_letters(&self, filter: &DeadFilter) -> StoreResult<Vec<DeadSummary>> {
        let doing = "reading dead letters";
        // Here a limit of none is no limit.
        if filter.limit == 0 {
            return Ok(Vec::new());
        }
        self.patiently(doing, async {
            let letters = self.aside(DEAD);
            let order = if filter.newest_first { -1 } else { 1 };
            let found =
                letters.find(matching(filter)).projection(summary_fields()).sort(doc! { "_id": order });
            let found = found.limit(i64::from(filter.limit)).await.context(doing)?;
            let found: Vec<Document> = found.try_collect().await.context(doing)?;
            Ok(found.iter().map(summary).collect())
        })
        .await
    }

    async fn dead_letter(&self, number: i64) -> StoreResult<Option<StoredDeadLetter>> {
        let doing = "reading a dead letter";
        self.patiently(doing, async {
            let mut txn = self.begin_aside().await?;
            let letter = whole_letter(&mut txn, number, doing).await;
            txn.rollback().await;
            letter
        })
        .await
    }

    async fn drop_dead(&self, filter: &DeadFilter) -> StoreResult<u64> {
        let doing = "dropping dead letters";
        let mut next = DeadFilter { limit: filter.limit.min(MAX_DROPPED), ..filter.clone() };
        let (mut left, mut dropped) = (filter.limit, 0);
        // Every round leaves fewer to drop, and goes on behind those that it has seen.
        while next.limit > 0 {
            let round = rerun(self, || drop_once(self, &next, doing));
            let Some((last, count)) = self.patiently(doing, round).await? else { break };
            dropped += u64::from(count);
            left = left.saturating_sub(count);
            (next.after, next.limit) = (last, left.min(MAX_DROPPED));
        }
        Ok(dropped)
    }

    async fn count_replay(&self, consumer: &ConsumerName) -> StoreResult<()> {
        let doing = "counting a replay";
        self.patiently(doing, async {
            let count = doc! { "$inc": { "replayed": 1_i64 } };
            let replayed = self.aside(REPLAYED);
            let counted = replayed.update_one(doc! { "_id": consumer.as_str() }, count).upsert(true).await;
            counted.context(doing).map(|_| ())
        })
        .await
    }

    async fn dead_groups(
        &self,
        consumer: Option<&str>,
        limit: u32,
        count_cap: u64,
    ) -> StoreResult<Vec<DeadGroup>> {
        let groups = groups::dead_groups(self, consumer, limit, count_cap);
        self.patiently("grouping dead letters", groups).await
    }

    async fn group_letters(&self, limit: u32) -> StoreResult<u64> {
        self.patiently("grouping dead letters", groups::group_letters(self, limit)).await
    }

    async fn edit_dead(
        &self,
        number: i64,
        times_seen: u32,
        content: &LetterContent,
        by: &str,
    ) -> StoreResult<bool> {
        self.patiently("changing a dead letter", edit::edit_dead(self, number, times_seen, content, by)).await
    }
}

/// Writes the letters. One without an id is there once for its place: a duplicate would end the transaction, so it is looked
/// for first; one that somebody else writes at the same time is a conflict, and the batch is run again.
async fn park(txn: &mut MongoTxn, consumer: &ConsumerName, letters: &[DeadLetter]) -> StoreResult<()> {
    let doing = "parking dead letters";
    let tx: &mut MongoTx = txn;
    let (mut places, mut fresh) = (HashSet::new(), Vec::with_capacity(letters.len()));
    for letter in letters {
        if letter.message_id.is_none() {
            let record = &letter.record;
            let place = (&*record.topic, record.partition, record.offset, log(letter));
            if !places.insert(place) || is_parked(tx, consumer, letter).await.context(doing)? {
                continue;
            }
        }
        fresh.push(letter);
    }
    if fresh.is_empty() {
        return Ok(());
    }
    let first = counter::draw(&tx.database, counter::DEAD, fresh.len()).await?;
    let failed_at = date(claim::now_of(tx));
    let mut documents = Vec::with_capacity(fresh.len());
    for (letter, number) in fresh.into_iter().zip(first..) {
        let content = LetterContent::of(&letter.record);
        let cut = Cut::of(&content, parts::ALONE);
        parts::write(tx, number, &cut).await.context(doing)?;
        let mut document = doc! {
            "_id": number,
            "consumer": consumer.as_str(),
            "tenant": letter.tenant.as_str(),
            "message_id": letter.message_id.as_deref().unwrap_or_default(),
            "topic": &*letter.record.topic,
            "partition": letter.record.partition,
            "offset": letter.record.offset,
            "log": log(letter),
            "timestamp_ms": letter.record.timestamp_ms,
            "error": storable_error(&letter.error),
            "attempts": i32::try_from(letter.attempts).unwrap_or(i32::MAX),
            "failed_at": failed_at,
            "key_hash": letter.record.key.as_deref().map(|key| binary(&hash(key))),
            "error_group": error_group(consumer.as_str(), &letter.error),
        };
        document.extend(cut.fields());
        documents.push(document);
    }
    let dead = tx.database.collection::<Document>(DEAD);
    dead.insert_many(documents).session(&mut tx.session).await.context(doing)?;
    Ok(())
}

/// Whether this place has a letter without an id, as the transaction sees it.
async fn is_parked(
    tx: &mut MongoTx,
    consumer: &ConsumerName,
    letter: &DeadLetter,
) -> mongodb::error::Result<bool> {
    let place = doc! {
        "consumer": consumer.as_str(), "topic": &*letter.record.topic, "partition": letter.record.partition,
        "offset": letter.record.offset, "log": log(letter), "message_id": "",
    };
    let dead = tx.database.collection::<Document>(DEAD);
    let found = dead.find_one(place).projection(doc! { "_id": 1 }).session(&mut tx.session).await?;
    Ok(found.is_some())
}

fn log(letter: &DeadLetter) -> &str {
    letter.record.log.as_ref().map_or("", LogId::as_str)
}

/// Which of these hashes are parked in the partition.
async fn parked_among<'k>(
    tx: &mut MongoTx,
    position: &PositionKey,
    hashes: impl Iterator<Item = &'k [u8; 32]>,
) -> mongodb::error::Result<Vec<Bson>> {
    let hashes: Vec<Bson> = hashes.map(|hash| binary(hash).into()).collect();
    let parked = doc! {
        "consumer": position.consumer.as_str(), "topic": &*position.topic, "partition": position.partition,
        "key_hash": { "$in": hashes },
    };
    let dead = tx.database.collection::<Document>(DEAD);
    dead.distinct("key_hash", parked).session(&mut tx.session).await
}

/// Removes the letter and renews its receipt.
async fn take_once(
    store: &MongoStore,
    txn: &mut MongoTxn,
    number: i64,
    doing: &str,
) -> StoreResult<Option<StoredDeadLetter>> {
    let Some(stored) = whole_letter(txn, number, doing).await? else { return Ok(None) };
    remove(txn, &[number]).await.context(doing)?;
    if let Some(id) = &stored.letter.message_id {
        let broken = |e| StoreError::new(ErrorClass::Failed, format!("reading dead letter {number}"), e);
        let consumer = ConsumerName::new(&*stored.consumer).map_err(broken)?;
        let id = MessageId::new(id.as_str()).map_err(broken)?;
        let tenant = &stored.letter.tenant;
        let key = ReceiptKey::of(&consumer, tenant, &id);
        let set = further_values(store, &stored.letter.record);
        let receipt =
            Claim { key, tenant: tenant.as_str(), message_id: id.as_str(), set: &set, fingerprint: None };
        match &store.inner.adopted {
            Some(collection) => adopted::renew(store, collection, txn, &consumer, receipt).await?,
            None => claim::renew(txn, &consumer, receipt).await?,
        }
    }
    Ok(Some(stored))
}

async fn whole_letter(tx: &mut MongoTx, number: i64, doing: &str) -> StoreResult<Option<StoredDeadLetter>> {
    let dead = tx.database.collection::<Document>(DEAD);
    let found = dead.find_one(doc! { "_id": number }).session(&mut tx.session).await.context(doing)?;
    let Some(mut letter) = found else { return Ok(None) };
    parts::restore(tx, number, &mut letter).await?;
    if let Ok(mut original) = letter.get_document("original").cloned() {
        parts::restore(tx, parts::of_original(number), &mut original).await?;
        letter.insert("original", original);
    }
    stored(number, &letter).map(Some)
}

/// Letters and their parts.
async fn remove(tx: &mut MongoTx, numbers: &[i64]) -> mongodb::error::Result<u64> {
    parts::remove(tx, numbers).await?;
    let dead = tx.database.collection::<Document>(DEAD);
    let removed = dead.delete_many(doc! { "_id": { "$in": numbers } }).session(&mut tx.session).await?;
    Ok(removed.deleted_count)
}

/// Drops the first letters that a filter means: the number of the last one, and how many. `None` if there is none.
async fn drop_once(store: &MongoStore, filter: &DeadFilter, doing: &str) -> StoreResult<Option<(i64, u32)>> {
    let mut txn = store.begin_aside().await?;
    let dropped = async {
        let tx: &mut MongoTx = &mut txn;
        let dead = tx.database.collection::<Document>(DEAD);
        let found = dead.find(matching(filter)).projection(doc! { "_id": 1 }).sort(doc! { "_id": 1 });
        let found = found.limit(i64::from(filter.limit)).session(&mut tx.session).await.context(doing);
        let found: Vec<Document> = found?.stream(&mut tx.session).try_collect().await.context(doing)?;
        let numbers: Vec<i64> =
            found.iter().filter_map(|letter| crate::position::whole(letter.get("_id"))).collect();
        let Some(last) = numbers.last() else { return Ok(None) };
        let removed = remove(tx, &numbers).await.context(doing)?;
        Ok(Some((*last, u32::try_from(removed).unwrap_or(u32::MAX))))
    };
    match dropped.await {
        Ok(Some(dropped)) => {
            txn.commit_own(doing).await?;
            Ok(Some(dropped))
        }
        other => {
            txn.rollback().await;
            other
        }
    }
}

/// What the field `key_hash` holds.
fn hash(key: &[u8]) -> [u8; 32] {
    Sha256::digest(key).into()
}

fn binary(bytes: &[u8]) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() }
}

/// Nobody reads a megabyte of error.
pub(crate) fn storable_error(error: &str) -> &str {
    &error[..error.floor_char_boundary(MAX_ERROR_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_cut_between_characters() {
        let long = "ü".repeat(MAX_ERROR_BYTES);
        assert_eq!(storable_error(&format!("x{long}")).len(), MAX_ERROR_BYTES - 1);
        assert_eq!(storable_error("short"), "short");
    }
}

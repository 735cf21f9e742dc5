//! From an adopted collection to oncebox's own: copied page by page while others write, then switched.
//!
//! A new name would stop nobody here: an insert makes the collection that is missing. So the collection keeps its name and gets a
//! validator that no document fulfils. That waits for the transactions that have touched it, and whoever comes later is refused.
//! Then the rest is copied. A process that ends in between has lost nothing: the next one finds the validator and goes on.

use std::collections::{BTreeMap, HashSet};

use futures_util::TryStreamExt;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, Document, doc};
use mongodb::options::Hint;
use oncebox_core::inbox::ReceiptKey;
use oncebox_core::names::ConsumerName;
use oncebox_core::store::{
    Adopt, CopiedPage, CopiedReceipt, CopyFrom, ErrorClass, PageMark, StoreError, StoreResult, Switched,
};

use super::{Table, collection, describe, stored_id};
use crate::claim::{INBOX, now_of};
use crate::classify::Context;
use crate::rerun::rerun;
use crate::store::MongoStore;
use crate::time::date;
use crate::tx::MongoTx;

/// Documents that one step reads.
const STEP_DOCUMENTS: usize = 500;
/// Whoever writes to the collection waits behind the switch, so it must not wait for long itself.
const SWITCH_MS: i32 = 30_000;

const DOING: &str = "copying receipts";

/// Copies the documents behind a key.
pub(super) async fn copy_receipts(
    store: &MongoStore,
    from: CopyFrom<'_>,
    page: &PageMark,
) -> StoreResult<CopiedPage> {
    let source = Source { table: describe::table_to_read(store, from.adopt).await?, consumer: from.consumer };
    let copied = rerun(store, async || {
        let mut txn = store.begin_aside().await?;
        let copied = source.copy(&mut txn, page, from.dry_run).await;
        if copied.is_err() || from.dry_run {
            txn.rollback().await;
        } else {
            txn.commit_own(DOING).await?;
        }
        copied
    });
    store.patiently(DOING, copied).await
}

/// Keeps everybody from writing to the collection, then copies what is missing.
pub(super) async fn switch_receipts(store: &MongoStore, from: CopyFrom<'_>) -> StoreResult<Switched> {
    let doing = "switching to oncebox's own collection";
    let before = is_switched(store, from.adopt).await?;
    if !before {
        let receipts = collection(&store.inner.aside, from.adopt);
        let close = doc! {
            "collMod": receipts.name(), "validator": describe::fence(), "validationLevel": "strict",
            "validationAction": "error", "writeConcern": { "w": "majority" }, "maxTimeMS": SWITCH_MS,
        };
        let database = receipts.client().database(&receipts.namespace().db);
        let closed = async { database.run_command(close).await.context_of_ddl(doing) };
        store.patiently(doing, closed).await?;
    }
    let (mut next, mut written) = (Some(PageMark::default()), 0);
    while let Some(page) = next {
        let copied = copy_receipts(store, from, &page).await?;
        written += copied.written;
        next = copied.next;
    }
    Ok(match (before, written) {
        (true, 0) => Switched::Before,
        _ => Switched::Now { written, name: from.adopt.to_string() },
    })
}

/// Whether the collection takes no more receipts already.
pub(super) async fn is_switched(store: &MongoStore, adopt: &Adopt) -> StoreResult<bool> {
    store.patiently(DOING, describe::is_fenced(store, adopt)).await
}

/// The collection, as it is copied from.
struct Source<'f> {
    table: Table,
    consumer: Option<&'f ConsumerName>,
}

impl Source<'_> {
    async fn copy(&self, tx: &mut MongoTx, page: &PageMark, dry_run: bool) -> StoreResult<CopiedPage> {
        let documents = self.next_documents(tx, page).await?;
        let Some(reached) = documents.last().and_then(|last| last.get("_id")) else {
            return Ok(CopiedPage::default());
        };
        let seen = documents.len() as u64;
        let mut skipped = 0;
        // In the order of their keys, as every batch writes them.
        let mut receipts = BTreeMap::new();
        for document in &documents {
            match self.receipt(document) {
                Some(receipt) => {
                    receipts.insert(receipt.key, receipt);
                }
                None => skipped += 1,
            }
        }
        let written = write(tx, receipts, dry_run).await?;
        let next = doc! { "_id": reached }.to_vec().map_err(|error| broken(&error))?;
        let uuids = self.table.id.is_uuid();
        Ok(CopiedPage { seen, written, skipped, uuids, next: Some(PageMark(next)), progress: (0, 0) })
    }

    /// In the order of `_id`, whatever kinds of values are in it; the first one is where the last page has ended.
    async fn next_documents(&self, tx: &mut MongoTx, page: &PageMark) -> StoreResult<Vec<Document>> {
        let by_key = doc! { "_id": 1 };
        let fields: Document =
            self.table.adopt.columns().map(|field| (field.to_owned(), Bson::Int32(1))).collect();
        let receipts = collection(&tx.database, &self.table.adopt);
        let mut find = receipts.find(doc! {}).projection(fields).sort(by_key.clone());
        find = find.hint(Hint::Keys(by_key)).limit(i64::try_from(STEP_DOCUMENTS + 1).unwrap_or(i64::MAX));
        let mut reached = None;
        if !page.0.is_empty() {
            let mark = Document::from_reader(page.0.as_slice()).map_err(|error| broken(&error))?;
            reached = mark.get("_id").cloned();
            find = find.min(mark);
        }
        let mut found = find.session(&mut tx.session).await.context(DOING)?;
        let mut found: Vec<Document> = found.stream(&mut tx.session).try_collect().await.context(DOING)?;
        if reached.is_some() && found.first().and_then(|first| first.get("_id")) == reached.as_ref() {
            found.remove(0);
        }
        found.truncate(STEP_DOCUMENTS);
        Ok(found)
    }

    fn receipt(&self, document: &Document) -> Option<CopiedReceipt> {
        let adopt = &self.table.adopt;
        let text = |field: Option<&str>| document.get_str(field?).ok().map(str::to_owned);
        let id = self.table.id.id_of(&stored_id(document.get(adopt.message_id_column())?)?)?;
        let consumer = text(adopt.consumer_column()).or_else(|| self.consumer.map(ToString::to_string));
        let tenant = text(adopt.tenant_column()).unwrap_or_default();
        let time = adopt.processed_at_column().and_then(|field| document.get_datetime(field).ok());
        let processed_at_us = time.map(|at| at.timestamp_millis().saturating_mul(1000));
        CopiedReceipt::new(consumer.unwrap_or_default(), tenant, id, processed_at_us)
    }
}

fn broken(error: &mongodb::bson::error::Error) -> StoreError {
    StoreError::new(ErrorClass::Failed, DOING, error.to_string())
}

/// Writes what is missing, each with its own time; those without one are as old as this.
async fn write(
    tx: &mut MongoTx,
    mut receipts: BTreeMap<ReceiptKey, CopiedReceipt>,
    dry_run: bool,
) -> StoreResult<u64> {
    let binary =
        |key: &ReceiptKey| Binary { subtype: BinarySubtype::Generic, bytes: key.as_bytes().to_vec() };
    let keys: Vec<Bson> = receipts.keys().map(|key| binary(key).into()).collect();
    let inbox = tx.database.collection::<Document>(INBOX);
    let there = inbox.find(doc! { "_id": { "$in": keys } }).projection(doc! { "_id": 1 });
    let mut there = there.session(&mut tx.session).await.context(DOING)?;
    let there: Vec<Document> = there.stream(&mut tx.session).try_collect().await.context(DOING)?;
    let there: HashSet<&[u8]> =
        there.iter().filter_map(|one| one.get_binary_generic("_id").ok().map(Vec::as_slice)).collect();
    receipts.retain(|key, _| !there.contains(key.as_bytes().as_slice()));
    let written = receipts.len() as u64;
    if !dry_run && written > 0 {
        let now = now_of(tx);
        let documents = receipts.into_values().map(|receipt| {
            let at = receipt.processed_at_us.map_or(now, |us| us / 1000);
            doc! {
                "_id": binary(&receipt.key), "consumer": receipt.consumer, "tenant": receipt.tenant,
                "message_id": receipt.message_id, "processed_at": date(at),
            }
        });
        inbox.insert_many(documents).session(&mut tx.session).await.context(DOING)?;
    }
    Ok(written)
}

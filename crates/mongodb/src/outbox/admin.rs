//! Events by filter, and what operators do with them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Document, RawDocumentBuf, doc};
use mongodb::error::Result;
use oncebox_core::outbox::events_committed;
use oncebox_core::store::{CausedEvents, EventFilter, EventState, OutboxEntry, StoreResult};

use super::deliveries::short;
use super::left_behind::free_left_behind;
use super::waiting::{self, HeldKey, behind};
use super::{
    COMMAND_NUMBERS, HELD, OUTBOX, PARKED, PUBLISHED, READY, RELAYS, change, fetch, numbers, read, shard,
};
use crate::classify::Context;
use crate::position::whole;
use crate::rerun::rerun;
use crate::store::{MongoStore, server_now};
use crate::time::{date, milliseconds};
use crate::tx::MongoTx;

/// Events by filter, ordered by `seq`.
pub(super) async fn events(store: &MongoStore, filter: &EventFilter) -> StoreResult<Vec<OutboxEntry>> {
    let doing = "reading the outbox";
    let mut txn = store.begin_aside().await?;
    let found = entries(&mut txn, filter).await.context(doing);
    txn.rollback().await;
    found
}

/// How many events of a message are shown.
const MAX_CAUSED: u32 = 1000;

/// The events that a message caused, among the newest.
pub(super) async fn events_caused_by(
    store: &MongoStore,
    message_id: &str,
    newest: u32,
) -> StoreResult<CausedEvents> {
    let doing = "reading the outbox";
    let mut txn = store.begin_aside().await?;
    let found = caused(&mut txn, message_id, newest).await.context(doing);
    txn.rollback().await;
    found
}

async fn caused(tx: &mut MongoTx, message_id: &str, newest: u32) -> Result<CausedEvents> {
    let (first, last) = (end(tx, 1).await?, end(tx, -1).await?);
    let after = last.unwrap_or_default().saturating_sub(newest.into());
    let pipeline = vec![
        doc! { "$match": { "_id": { "$gt": after }, "causation_id": { "$eq": message_id } } },
        doc! { "$sort": { "_id": 1 } },
        doc! { "$limit": i64::from(MAX_CAUSED) },
        doc! { "$project": { "_id": 1 } },
    ];
    let found: Vec<Document> = fetch(tx, pipeline).await?;
    let seqs: Vec<i64> = found.iter().filter_map(|event| whole(event.get("_id"))).collect();
    let events = if seqs.is_empty() {
        Vec::new()
    } else {
        entries(tx, &EventFilter { seqs, limit: MAX_CAUSED, ..EventFilter::default() }).await?
    };
    Ok(CausedEvents { events, looked_at_all: first.is_none_or(|first| first > after) })
}

/// The first place in the outbox that is in use, or the last.
async fn end(tx: &mut MongoTx, order: i32) -> Result<Option<i64>> {
    let pipeline =
        vec![doc! { "$sort": { "_id": order } }, doc! { "$limit": 1 }, doc! { "$project": { "_id": 1 } }];
    let found: Vec<Document> = fetch(tx, pipeline).await?;
    Ok(found.first().and_then(|event| whole(event.get("_id"))))
}

async fn entries(tx: &mut MongoTx, filter: &EventFilter) -> Result<Vec<OutboxEntry>> {
    let found = matching(tx, filter, in_state(filter.state)).await?;
    let mut entries = Vec::with_capacity(found.len());
    for part in found.chunks(COMMAND_NUMBERS) {
        let seqs: Vec<i64> = part.iter().map(|found| found.seq).collect();
        let whole =
            vec![doc! { "$match": { "_id": { "$in": numbers(&seqs) } } }, doc! { "$sort": { "_id": 1 } }];
        let documents: Vec<RawDocumentBuf> = fetch(tx, whole).await?;
        // From one snapshot, so they are the same ones.
        entries.extend(part.iter().zip(&documents).map(|(found, document)| entry(found, document)));
    }
    Ok(entries)
}

/// An event with its state. Headers that cannot be read are not shown; the error of such an event says so.
fn entry(found: &Found, document: &RawDocumentBuf) -> OutboxEntry {
    let text = |name: &str| document.get_str(name).ok().map(str::to_owned);
    let topic: Arc<str> = Arc::from(text("topic").unwrap_or_default());
    OutboxEntry {
        event: read::event(document, &topic).0,
        shard: shard(read::number(document, "shard")),
        consumer: text("consumer"),
        tenant: text("tenant"),
        state: found.state,
        state_at_ms: found.at.map(DateTime::timestamp_millis),
        error: text("error"),
    }
}

/// Makes parked and held events pending again, or delayed ones if they are asked for. Their attempts begin anew, so that a sink that gives up after some does not do
/// so at once. What waits behind another goes with it.
pub(super) async fn retry_events(store: &MongoStore, filter: &EventFilter) -> StoreResult<u64> {
    let retried = rerun(store, || retry_once(store, filter)).await?;
    if retried > 0 {
        events_committed();
    }
    Ok(retried)
}

async fn retry_once(store: &MongoStore, filter: &EventFilter) -> StoreResult<u64> {
    let doing = "retrying events";
    let mut txn = store.begin_aside().await?;
    match retry(&mut txn, filter).await.context(doing) {
        Ok(retried) => txn.commit_own(doing).await.map(|()| retried),
        Err(error) => {
            txn.rollback().await;
            Err(error)
        }
    }
}

async fn retry(tx: &mut MongoTx, filter: &EventFilter) -> Result<u64> {
    let asked = in_state(filter.state);
    let send_now = filter.state == Some(EventState::Delayed);
    let stands = |state: EventState| {
        asked(state) && (send_now || matches!(state, EventState::Held | EventState::Parked))
    };
    let found = matching(tx, filter, stands).await?;
    let seqs: Vec<i64> = found.iter().map(|found| found.seq).collect();
    let mut retried = 0;
    for part in seqs.chunks(COMMAND_NUMBERS) {
        let has_time = doc! { "$and": [{ "$eq": ["$state", HELD] }, { "$lt": ["$held_until", behind()] }] };
        let mut set = doc! {
            "attempts": 0,
            "parked_at": Bson::Null,
            "held_until": { "$cond": [has_time, "$$NOW", "$held_until"] },
            "state": { "$cond": [{ "$eq": ["$state", PARKED] }, READY, "$state"] },
        };
        if send_now {
            set.insert("deliver_at", "$$NOW");
        }
        retried += change(tx, doc! { "_id": { "$in": numbers(part) } }, set).await?;
    }
    Ok(retried)
}

/// Gives up events that wait to be published.
pub(super) async fn park_events(store: &MongoStore, filter: &EventFilter, reason: &str) -> StoreResult<u64> {
    let parked = rerun(store, || park_once(store, filter, reason)).await?;
    if parked > 0 {
        events_committed();
    }
    Ok(parked)
}

async fn park_once(store: &MongoStore, filter: &EventFilter, reason: &str) -> StoreResult<u64> {
    let doing = "parking events";
    let mut txn = store.begin_aside().await?;
    match park_in(&mut txn, filter, reason).await.context(doing) {
        Ok(parked) => txn.commit_own(doing).await.map(|()| parked),
        Err(error) => {
            txn.rollback().await;
            Err(error)
        }
    }
}

async fn park_in(tx: &mut MongoTx, filter: &EventFilter, reason: &str) -> Result<u64> {
    let asked = in_state(filter.state);
    let waits = |state: EventState| {
        asked(state) && matches!(state, EventState::Pending | EventState::Delayed | EventState::Held)
    };
    let found = matching(tx, filter, waits).await?;
    let seqs: Vec<i64> = found.iter().map(|found| found.seq).collect();
    let mut parked = 0;
    for part in seqs.chunks(COMMAND_NUMBERS) {
        let set = doc! {
            "state": PARKED, "parked_at": "$$NOW", "held_until": Bson::Null, "error": { "$literal": short(reason) },
        };
        parked += change(tx, doc! { "_id": { "$in": numbers(part) } }, set).await?;
    }
    waiting::follow(tx, found.into_iter().filter_map(|found| found.key).collect()).await?;
    Ok(parked)
}

/// Removes events for good.
pub(super) async fn drop_events(store: &MongoStore, filter: &EventFilter) -> StoreResult<u64> {
    rerun(store, || drop_once(store, filter)).await
}

async fn drop_once(store: &MongoStore, filter: &EventFilter) -> StoreResult<u64> {
    let doing = "dropping events";
    let mut txn = store.begin_aside().await?;
    match drop_in(&mut txn, filter).await.context(doing) {
        Ok(dropped) => txn.commit_own(doing).await.map(|()| dropped),
        Err(error) => {
            txn.rollback().await;
            Err(error)
        }
    }
}

async fn drop_in(tx: &mut MongoTx, filter: &EventFilter) -> Result<u64> {
    let found = matching(tx, filter, in_state(filter.state)).await?;
    let seqs: Vec<i64> = found.iter().map(|found| found.seq).collect();
    let outbox = tx.database.collection::<Document>(OUTBOX);
    let mut dropped = 0;
    for part in seqs.chunks(COMMAND_NUMBERS) {
        let these = doc! { "_id": { "$in": numbers(part) } };
        dropped += outbox.delete_many(these).session(&mut tx.session).await?.deleted_count;
    }
    waiting::follow(tx, found.into_iter().filter_map(|found| found.key).collect()).await?;
    Ok(dropped)
}

/// An event that matches.
struct Found {
    seq: i64,
    state: EventState,
    /// Since when, or until when.
    at: Option<DateTime>,
    /// The key of one that is held.
    key: Option<HeldKey>,
}

/// How many events are looked at together where not all of them may be meant.
const PAGE: usize = 1000;

/// Looks at events page by page, until there are as many as asked for. Whether a held event still waits is known only after a
/// look at the first one of its key.
async fn matching(
    tx: &mut MongoTx,
    filter: &EventFilter,
    is_meant: impl Fn(EventState) -> bool,
) -> Result<Vec<Found>> {
    let most = filter.limit as usize;
    let mut found = Vec::new();
    let mut after = filter.after;
    while found.len() < most {
        let page = if filter.state.is_none() { (most - found.len()).max(PAGE) } else { PAGE };
        let pipeline = vec![
            doc! { "$match": conditions(filter, after) },
            doc! { "$sort": { "_id": 1 } },
            doc! { "$limit": read::limit(page) },
            doc! { "$project": {
                "state": 1, "topic": 1, "key": 1, "held_until": 1, "parked_at": 1, "published_at": 1, "deliver_at": 1,
                "now": "$$NOW",
            } },
        ];
        let documents: Vec<Document> = fetch(tx, pipeline).await?;
        let waiting = documents.iter().filter(|document| waits(document));
        let firsts = waiting::firsts(tx, waiting.filter_map(HeldKey::of).collect()).await?;
        for document in &documents {
            let until = |key: &Option<HeldKey>| {
                let first = key.as_ref().and_then(|key| firsts.get(key)).filter(|_| waits(document));
                first.map(|first| first.until).or(document.get_datetime("held_until").ok().copied())
            };
            let event = of_document(document, until);
            after = event.seq;
            if is_meant(event.state) {
                found.push(event);
            }
        }
        if documents.len() < page {
            break;
        }
    }
    found.truncate(most);
    Ok(found)
}

fn waits(document: &Document) -> bool {
    document.get_datetime("held_until").is_ok_and(|until| *until == behind())
}

fn of_document(document: &Document, until: impl Fn(&Option<HeldKey>) -> Option<DateTime>) -> Found {
    let at = |name: &str| document.get_datetime(name).ok().copied();
    let seq = whole(document.get("_id")).unwrap_or_default();
    let (state, at, key) = match document.get_str("state").unwrap_or_default() {
        PUBLISHED => (EventState::Published, at("published_at"), None),
        PARKED => (EventState::Parked, at("parked_at"), None),
        // Its key too: others may wait for it.
        _ if at("deliver_at") > at("now") => (EventState::Delayed, at("deliver_at"), HeldKey::of(document)),
        HELD => {
            let key = HeldKey::of(document);
            let until = until(&key);
            let state = if until > at("now") { EventState::Held } else { EventState::Pending };
            (state, until.filter(|until| *until < behind()), key)
        }
        _ => (EventState::Pending, None, None),
    };
    Found { seq, state, at, key }
}

/// The conditions that are asked for and no others, so that the server sees which index helps.
fn conditions(filter: &EventFilter, after: i64) -> Document {
    let mut place = doc! { "$gt": after };
    if let Some(until) = filter.until {
        place.insert("$lte", until);
    }
    if !filter.seqs.is_empty() {
        place.insert("$in", numbers(&filter.seqs));
    }
    let mut conditions = doc! { "_id": place };
    if let Some(id) = filter.id {
        conditions.insert("id", id.to_string());
    }
    if let Some(topic) = &filter.topic {
        conditions.insert("topic", topic);
    }
    if let Some(key) = &filter.key {
        conditions.insert("key", Binary { subtype: BinarySubtype::Generic, bytes: key.clone() });
    }
    match filter.state {
        None => {}
        Some(EventState::Pending) => {
            conditions.insert("state", doc! { "$in": [READY, HELD] });
        }
        Some(EventState::Delayed) => {
            conditions.insert("state", doc! { "$in": [READY, HELD] });
            conditions.insert("deliver_at", doc! { "$type": "date" });
        }
        Some(EventState::Held) => {
            conditions.insert("state", HELD);
        }
        Some(EventState::Parked) => {
            conditions.insert("state", PARKED);
        }
        Some(EventState::Published) => {
            conditions.insert("state", PUBLISHED);
        }
    }
    conditions
}

fn in_state(asked: Option<EventState>) -> impl Fn(EventState) -> bool {
    move |state| asked.is_none_or(|asked| asked == state)
}

/// How many documents one step removes.
const STEP_DOCUMENTS: i64 = 1000;

const SWEEPS: &str = "oncebox_sweep";

/// A relay that was not heard of for a day does not come back.
const FORGET_AFTER_MS: i64 = 24 * 60 * 60 * 1000;

/// Removes what was published long enough ago; forgets relays that are gone and rows of sweeps whose window is over.
pub(super) async fn purge_published(store: &MongoStore, keep: Duration) -> StoreResult<u64> {
    let doing = "purging events";
    let now = store.patiently(doing, server_now(store, doing)).await?;
    let over = |ms: i64| doc! { "$lte": date(now - ms) };
    let old = doc! { "state": PUBLISHED, "published_at": over(milliseconds(keep)) };
    let purged = remove(store, OUTBOX, "published_at", &old, doing).await?;
    let doing = "forgetting sweeps and relays";
    remove(store, SWEEPS, "quiet_until", &doc! { "quiet_until": over(0) }, doing).await?;
    remove(store, RELAYS, "seen_until", &doc! { "seen_until": over(FORGET_AFTER_MS) }, doing).await?;
    free_left_behind(store).await?;
    Ok(purged)
}

/// Removes what matches, in bounded steps; what has changed meanwhile stays.
async fn remove(
    store: &MongoStore,
    name: &str,
    order: &str,
    filter: &Document,
    doing: &str,
) -> StoreResult<u64> {
    let mut removed = 0;
    loop {
        let step = async { remove_step(store, name, order, filter).await.context(doing) };
        let (looked_at, gone) = store.patiently(doing, step).await?;
        removed += gone;
        if looked_at < STEP_DOCUMENTS as usize {
            return Ok(removed);
        }
    }
}

async fn remove_step(store: &MongoStore, name: &str, order: &str, filter: &Document) -> Result<(usize, u64)> {
    let collection = store.aside(name);
    let found = collection
        .find(filter.clone())
        .sort(doc! { order: 1 })
        .limit(STEP_DOCUMENTS)
        .projection(doc! { "_id": 1 });
    let found: Vec<Document> = found.await?.try_collect().await?;
    if found.is_empty() {
        return Ok((0, 0));
    }
    let mut these = filter.clone();
    these.insert(
        "_id",
        doc! { "$in": found.iter().filter_map(|at| at.get("_id").cloned()).collect::<Vec<_>>() },
    );
    Ok((found.len(), collection.delete_many(these).await?.deleted_count))
}

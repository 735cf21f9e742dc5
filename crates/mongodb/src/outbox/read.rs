//! What there is to publish.
//!
//! Reading needs no transaction unless something of the topic is held: a shard belongs to one relay, so nobody else holds or
//! gives up events in it, and what others take away or add meanwhile was there a moment earlier or comes with the next batch.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use mongodb::Database;
use mongodb::bson::raw::RawBsonRef;
use mongodb::bson::{Bson, DateTime, Document, RawDocument, RawDocumentBuf, doc};
use mongodb::error::Result;
use oncebox_core::inbox::BatchBounds;
use oncebox_core::outbox::check_topic;
use oncebox_core::store::{Ready, StoreResult, StoredEvent, headers_json};
use uuid::Uuid;

use super::{HELD, ONE_ANSWER, OUTBOX, PARKED, READY, change, numbers, shard, shard_list, union, waiting};
use crate::classify::Context;
use crate::position::whole;
use crate::rerun::rerun;
use crate::store::{MongoStore, server_now};
use crate::tx::MongoTx;

/// More topics than this are not looked at in one go by those who look only once, and so many in one command.
pub(super) const MAX_TOPICS: u16 = 1000;
const COMMAND_TOPICS: usize = 100;

/// The topics and shards that have something to publish now.
pub(super) async fn ready_from(
    store: &MongoStore,
    shards: &[u16],
    from: &str,
    most: u16,
) -> StoreResult<Ready> {
    let doing = "looking for events";
    if shards.is_empty() {
        return Ok(Ready::default());
    }
    // One more, so that the last one is another than the first.
    let looked_at = most.saturating_add(1);
    let states = topics(&store.inner.messages, &[READY, HELD], from, looked_at).await.context(doing)?;
    let cut = |state: &str| {
        let of_state = states.iter().filter(|at| at.state == state);
        (of_state.clone().count() == usize::from(looked_at)).then(|| of_state.map(|at| &at.topic).max())?
    };
    let more_from = cut(READY).into_iter().chain(cut(HELD)).min().cloned();
    let parts: Vec<_> = states.iter().map(|at| shards_with_events(at, shards)).collect();
    let mut ready = Vec::new();
    for part in parts.chunks(COMMAND_TOPICS) {
        let found: Vec<Document> =
            collect(&store.inner.messages, union(part.to_vec())).await.context(doing)?;
        ready.extend(found.iter().map(|at| {
            let topic = at.get_str("topic").unwrap_or_default().to_owned();
            (topic, shard(whole(at.get("_id"))))
        }));
    }
    ready.sort_unstable();
    ready.dedup();
    Ok(Ready { places: ready, more_from })
}

/// A topic that has events in this state.
#[derive(Debug, Clone)]
pub(super) struct InState {
    pub(super) state: &'static str,
    pub(super) topic: String,
}

/// The server goes from one topic to the next along the index, however many events there are. The first ones, from a topic on.
pub(super) async fn topics(
    database: &Database,
    states: &[&'static str],
    from: &str,
    most: u16,
) -> Result<Vec<InState>> {
    let of_state = |state: &&str| {
        vec![
            doc! { "$match": { "state": *state, "topic": { "$gte": from } } },
            doc! { "$group": { "_id": "$topic" } },
            doc! { "$sort": { "_id": 1 } },
            doc! { "$limit": i64::from(most) },
            doc! { "$project": { "state": *state } },
        ]
    };
    let found: Vec<Document> = collect(database, union(states.iter().map(of_state).collect())).await?;
    let read = |document: &Document| {
        let state = document.get_str("state").ok()?;
        let state = *states.iter().find(|known| **known == state)?;
        Some(InState { state, topic: document.get_str("_id").ok()?.to_owned() })
    };
    Ok(found.iter().filter_map(read).collect())
}

/// Those of the shards with an event that can go: any that is ready, or a held one that is due. Of those the first to be due
/// is looked at, and the index has them in that order.
fn shards_with_events(at: &InState, shards: &[u16]) -> Vec<Document> {
    let mut first = doc! { "shard": 1 };
    let mut group = doc! { "_id": "$shard" };
    if at.state == HELD {
        first.insert("held_until", 1);
        group.insert("until", doc! { "$first": "$held_until" });
    }
    let mut pipeline =
        vec![doc! { "$match": in_shards(at.state, &at.topic, &shard_list(shards)) }, doc! { "$sort": first }];
    pipeline.push(doc! { "$group": group });
    if at.state == HELD {
        pipeline.push(doc! { "$match": { "$expr": { "$lte": ["$until", "$$NOW"] } } });
    }
    pipeline.push(doc! { "$project": { "topic": { "$literal": &at.topic } } });
    pipeline
}

/// What the indexes `ready` and `due` begin with.
pub(super) fn in_shards(state: &str, topic: &str, shards: &[Bson]) -> Document {
    doc! { "state": state, "topic": topic, "shard": { "$in": shards.to_vec() } }
}

pub(super) async fn collect<T>(database: &Database, pipeline: Vec<Document>) -> Result<Vec<T>>
where
    T: serde::de::DeserializeOwned + Send + Sync + Unpin,
{
    if pipeline.is_empty() {
        return Ok(Vec::new());
    }
    let outbox = database.collection::<Document>(OUTBOX);
    let found = outbox.aggregate(pipeline).batch_size(ONE_ANSWER).with_type::<T>().await?;
    found.try_collect().await
}

/// The database's clock.
pub(super) async fn clock_ms(store: &MongoStore) -> StoreResult<i64> {
    server_now(store, "reading the clock").await
}

/// What to read.
#[derive(Debug, Clone)]
pub(super) struct Wanted<'a> {
    pub(super) topic: &'a str,
    pub(super) shards: Vec<Bson>,
    pub(super) events: usize,
    pub(super) bytes: i64,
}

/// The next events of a topic.
pub(super) async fn next_events(
    store: &MongoStore,
    topic: &str,
    shards: &[u16],
    bounds: BatchBounds,
) -> StoreResult<Vec<StoredEvent>> {
    let doing = "reading events";
    if shards.is_empty() {
        return Ok(Vec::new());
    }
    let bytes = i64::try_from(bounds.bytes).unwrap_or(i64::MAX);
    let wanted = Wanted { topic, shards: shard_list(shards), events: bounds.messages.max(1), bytes };
    let documents = match fresh(store, &wanted).await.context(doing)? {
        Fresh::Events(documents) => documents,
        Fresh::SomeHeld { now } => {
            let around = || waiting::around_held_once(store, &wanted, now);
            rerun(store, around).await?
        }
    };
    let (fit, unfit) = read(&documents, topic);
    if !unfit.is_empty() {
        rerun(store, || park_unfit_once(store, &unfit)).await?;
    }
    Ok(fit)
}

/// The next events if none of the topic is held.
enum Fresh {
    Events(Vec<RawDocumentBuf>),
    SomeHeld { now: DateTime },
}

/// The way of nearly all events: nothing of this topic is held, and that is asked along. The events come first: what was held
/// when they were read, and is not when that is asked, has gone before them.
async fn fresh(store: &MongoStore, wanted: &Wanted<'_>) -> Result<Fresh> {
    let ready = vec![
        doc! { "$match": in_shards(READY, wanted.topic, &wanted.shards) },
        doc! { "$sort": { "_id": 1 } },
        doc! { "$limit": limit(wanted.events) },
    ];
    let held = vec![
        doc! { "$match": in_shards(HELD, wanted.topic, &wanted.shards) },
        doc! { "$limit": 1 },
        doc! { "$project": { "_id": { "$literal": Bson::Null }, "now": "$$NOW" } },
    ];
    let outbox = store.inner.messages.collection::<Document>(OUTBOX);
    // All in one answer, unless they are more than the 16 MB that one holds. Then the rest is not asked for if the batch is full.
    let found = outbox.aggregate(union(vec![ready, held.clone()])).batch_size(ONE_ANSWER);
    let mut found = found.with_type::<RawDocumentBuf>().await?;
    let (mut events, mut bytes) = (Vec::new(), 0_i64);
    while let Some(document) = found.try_next().await? {
        if let Some(now) = marked(&document) {
            return Ok(Fresh::SomeHeld { now });
        }
        bytes = bytes.saturating_add(number(&document, "bytes").unwrap_or_default());
        if bytes > wanted.bytes && !events.is_empty() {
            drop(found);
            let marker: Vec<RawDocumentBuf> = collect(&store.inner.messages, held).await?;
            let now = marker.first().and_then(marked);
            return Ok(now.map_or(Fresh::Events(events), |now| Fresh::SomeHeld { now }));
        }
        events.push(document);
    }
    Ok(Fresh::Events(events))
}

/// The time of the server, if this says that something is held.
fn marked(document: &RawDocumentBuf) -> Option<DateTime> {
    let is_mark = matches!(document.get("_id"), Ok(Some(RawBsonRef::Null)));
    document.get_datetime("now").ok().filter(|_| is_mark)
}

pub(super) fn limit(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// What an event that cannot leave the outbox holds back follows, as behind any other that is parked.
async fn park_unfit_once(store: &MongoStore, unfit: &[(i64, Unfit)]) -> StoreResult<()> {
    let doing = "parking events";
    let mut txn = store.begin().await?;
    if let Err(error) = park_unfit(&mut txn, unfit).await.context(doing) {
        txn.rollback().await;
        return Err(error);
    }
    txn.commit_own(doing).await?;
    for (seq, why) in unfit {
        tracing::warn!(seq, why, "parked an event that cannot be published");
    }
    Ok(())
}

async fn park_unfit(tx: &mut MongoTx, unfit: &[(i64, Unfit)]) -> Result<()> {
    let seqs: Vec<i64> = unfit.iter().map(|(seq, _)| *seq).collect();
    let keys = waiting::held_keys(tx, &seqs).await?;
    for (seq, why) in unfit {
        let set = doc! { "state": PARKED, "parked_at": "$$NOW", "held_until": Bson::Null, "error": { "$literal": *why } };
        change(tx, pending(&[*seq]), set).await?;
    }
    waiting::follow(tx, keys).await
}

/// Those of the events that wait to be published.
pub(super) fn pending(seqs: &[i64]) -> Document {
    doc! { "_id": { "$in": numbers(seqs) }, "state": { "$in": [READY, HELD] } }
}

type FitAndUnfit = (Vec<StoredEvent>, Vec<(i64, Unfit)>);

fn read(documents: &[RawDocumentBuf], topic: &str) -> FitAndUnfit {
    // The collection takes no others, unless somebody has taken its validator away.
    let no_topic = check_topic(topic)
        .err()
        .map(|_| "its topic is not a valid name: 1 to 249 letters, digits, dots, underscores or dashes");
    let topic = Arc::from(topic);
    let mut fit = Vec::with_capacity(documents.len());
    let mut unfit = Vec::new();
    for document in documents {
        let (event, unreadable) = event(document, &topic);
        match no_topic.or(unreadable) {
            None => fit.push(event),
            Some(why) => unfit.push((event.seq, why)),
        }
    }
    (fit, unfit)
}

/// Why an event cannot leave the outbox: its document says what no event can say.
pub(super) type Unfit = &'static str;

const UNREADABLE: Unfit = "its headers are neither a JSON object of texts nor an array of [name, text]";
const NO_ID: Unfit = "its id is not a UUID";
const NO_BYTES: Unfit = "its key or its payload is neither binary nor null";
const NO_TIME: Unfit = "its deliver_at is neither a date nor null";

/// The event of a document.
pub(super) fn event(document: &RawDocument, topic: &Arc<str>) -> (StoredEvent, Option<Unfit>) {
    let text = |name: &str| document.get_str(name).ok();
    let id = text("id").and_then(|id| id.parse::<Uuid>().ok());
    let headers = headers_json::from_either(text("headers").unwrap_or_default());
    let (key, payload) = (bytes(document, "key"), bytes(document, "payload"));
    let deliver_at = time(document, "deliver_at");
    let unfit = headers
        .is_none()
        .then_some(UNREADABLE)
        .or(id.is_none().then_some(NO_ID))
        .or((key.is_err() || payload.is_err()).then_some(NO_BYTES))
        .or(deliver_at.is_err().then_some(NO_TIME));
    let event = StoredEvent {
        seq: number(document, "_id").unwrap_or_default(),
        id: id.unwrap_or_default(),
        topic: Arc::clone(topic),
        key: key.unwrap_or_default(),
        payload: payload.unwrap_or_default(),
        headers: headers.unwrap_or_default(),
        created_at_ms: document.get_datetime("created_at").map_or(0, DateTime::timestamp_millis),
        deliver_at_ms: deliver_at.unwrap_or_default(),
        causation_id: text("causation_id").map(str::to_owned),
        attempts: number(document, "attempts").and_then(|n| u32::try_from(n).ok()).unwrap_or_default(),
    };
    (event, unfit)
}

/// A number of a document, however it is stored.
pub(super) fn number(document: &RawDocument, name: &str) -> Option<i64> {
    match document.get(name).ok()?? {
        RawBsonRef::Int64(n) => Some(n),
        RawBsonRef::Int32(n) => Some(i64::from(n)),
        _ => None,
    }
}

/// Neither a date nor nothing is an error.
fn time(document: &RawDocument, name: &str) -> std::result::Result<Option<i64>, ()> {
    match document.get(name) {
        Ok(None | Some(RawBsonRef::Null)) => Ok(None),
        Ok(Some(RawBsonRef::DateTime(at))) => Ok(Some(at.timestamp_millis())),
        _ => Err(()),
    }
}

/// Neither bytes nor nothing is an error.
fn bytes(document: &RawDocument, name: &str) -> std::result::Result<Option<Bytes>, ()> {
    match document.get(name) {
        Ok(None | Some(RawBsonRef::Null)) => Ok(None),
        Ok(Some(RawBsonRef::Binary(binary))) => Ok(Some(Bytes::copy_from_slice(binary.bytes))),
        _ => Err(()),
    }
}

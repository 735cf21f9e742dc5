//! Held events, and those that wait behind them.
//!
//! A held event holds back the later events of its topic and key. The first held event of a key has a time, and so has one
//! that failed on its own; the others wait for it, however long ([`behind`]). Those that are found waiting leave the ready
//! events, so that a million of them cannot stand before the others. When the first one is gone, the next one gets its time: now.

use std::collections::{BTreeMap, HashMap};
use std::iter;

use mongodb::bson::{Binary, Bson, DateTime, Document, RawDocumentBuf, doc};
use mongodb::error::Result;
use oncebox_core::store::StoreResult;

use super::read::{Wanted, in_shards, limit, pending};
use super::{COMMAND_NUMBERS, HELD, READY, change, fetch, numbers};
use crate::classify::Context;
use crate::position::whole;
use crate::store::MongoStore;
use crate::time::LAST_MS;
use crate::tx::MongoTx;

/// The `held_until` of an event that waits behind another. There is no later time.
pub(super) fn behind() -> DateTime {
    DateTime::from_millis(LAST_MS)
}

/// How many events are looked at in the later steps, and how many steps are made before the caller is told that there is nothing
/// for now.
const STEP_EVENTS: usize = 4000;
const MAX_STEPS: usize = 8;

/// How many keys whose time has come go with one batch.
const MAX_DUE_KEYS: usize = 250;

/// The most keys of one command, and about the most bytes of them.
const COMMAND_KEYS: usize = 4000;
const COMMAND_KEY_BYTES: usize = 4 * 1024 * 1024;

/// The topic and the key of a held event.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct HeldKey {
    pub(super) topic: String,
    pub(super) key: Binary,
}

impl HeldKey {
    /// `None` for an event without a key: nobody waits for it.
    pub(super) fn of(document: &Document) -> Option<Self> {
        match document.get("key") {
            Some(Bson::Binary(key)) => {
                Some(Self { topic: document.get_str("topic").ok()?.to_owned(), key: key.clone() })
            }
            _ => None,
        }
    }
}

/// Reads events of a topic of which some are held. Those that have to wait leave the ready ones. All of it is from one
/// moment, and what is written fails if somebody else has changed it since.
pub(super) async fn around_held_once(
    store: &MongoStore,
    wanted: &Wanted<'_>,
    now: DateTime,
) -> StoreResult<Vec<RawDocumentBuf>> {
    let doing = "reading events around held ones";
    let mut txn = store.begin().await?;
    match around_held(&mut txn, wanted, now).await.context(doing) {
        // Also where nothing was written: only with the commit it is known that what was read has the majority. An event that a
        // failover takes back must not be published.
        Ok(events) => txn.commit_own(doing).await.map(|()| events),
        Err(error) => {
            txn.rollback().await;
            Err(error)
        }
    }
}

async fn around_held(tx: &mut MongoTx, wanted: &Wanted<'_>, now: DateTime) -> Result<Vec<RawDocumentBuf>> {
    // First as if most events could go; then past many that wait.
    let steps = iter::once(wanted.events).chain(iter::repeat(STEP_EVENTS.max(wanted.events)));
    let mut chosen = Vec::new();
    for look_at in steps.take(MAX_STEPS) {
        let waits;
        (chosen, waits) = choose(tx, wanted, look_at, now).await?;
        let put_behind = put_behind(tx, &waits).await?;
        if !chosen.is_empty() || put_behind == 0 {
            break;
        }
    }
    read_events(tx, &fitting(&chosen, wanted.bytes)).await
}

/// An event that may be read.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    seq: i64,
    bytes: i64,
}

/// The first ones, as many as fit. One always does.
fn fitting(chosen: &[Candidate], most: i64) -> Vec<i64> {
    let mut bytes = 0_i64;
    let fits = |event: &&Candidate| {
        bytes = bytes.saturating_add(event.bytes);
        bytes <= most
    };
    let count = chosen.iter().take_while(fits).count().max(1);
    chosen.iter().take(count).map(|event| event.seq).collect()
}

async fn read_events(tx: &mut MongoTx, seqs: &[i64]) -> Result<Vec<RawDocumentBuf>> {
    let mut events = Vec::with_capacity(seqs.len());
    for part in seqs.chunks(COMMAND_NUMBERS) {
        let found = vec![doc! { "$match": pending(part) }, doc! { "$sort": { "_id": 1 } }];
        events.append(&mut fetch(tx, found).await?);
    }
    Ok(events)
}

/// An event that must wait, and the held one that it waits for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waits {
    pub(super) seq: i64,
    pub(super) first: i64,
}

/// A ready or a due event, and its key.
struct Found {
    event: Candidate,
    key: Option<HeldKey>,
}

impl Found {
    fn read(document: &Document) -> Self {
        Self { event: candidate(document), key: HeldKey::of(document) }
    }
}

fn candidate(document: &Document) -> Candidate {
    let number = |name: &str| whole(document.get(name)).unwrap_or_default();
    Candidate { seq: number("_id"), bytes: number("bytes") }
}

/// Ready events that wait for nothing; held ones that are due; and what waits behind those. Of each key they are the first
/// ones: where not all ready events were looked at, nothing beyond the last one is taken.
async fn choose(
    tx: &mut MongoTx,
    wanted: &Wanted<'_>,
    look_at: usize,
    now: DateTime,
) -> Result<(Vec<Candidate>, Vec<Waits>)> {
    let ready = found(tx, doc! { "_id": 1 }, in_shards(READY, wanted.topic, &wanted.shards), look_at).await?;
    let mut is_due = in_shards(HELD, wanted.topic, &wanted.shards);
    is_due.insert("held_until", doc! { "$lte": now });
    let due = found(tx, doc! { "held_until": 1 }, is_due, look_at).await?;
    let keys = ready.iter().chain(&due).filter_map(|found| found.key.clone());
    let firsts = firsts(tx, keys.collect()).await?;
    let keys = keys_of(tx, &firsts, wanted, now).await?;

    let mut chosen: BTreeMap<i64, Candidate> = BTreeMap::new();
    let mut waits = Vec::new();
    let going = keys.values().flat_map(|key| match key {
        Key::Goes { events, .. } => events.as_slice(),
        Key::Waits | Key::Later => &[],
    });
    chosen.extend(going.map(|event| (event.seq, *event)));
    for Found { event, key } in &ready {
        let first = key.as_ref().and_then(|key| firsts.get(key)).map(|first| first.seq);
        let Some(first) = first.filter(|first| *first < event.seq) else {
            chosen.insert(event.seq, *event);
            continue;
        };
        match keys.get(&first) {
            Some(Key::Waits) => waits.push(Waits { seq: event.seq, first }),
            Some(Key::Goes { before, .. }) if *before <= event.seq => {
                waits.push(Waits { seq: event.seq, first });
            }
            Some(Key::Goes { .. }) => {
                chosen.insert(event.seq, *event);
            }
            Some(Key::Later) | None => {}
        }
    }
    for Found { event, key } in &due {
        let Some(key) = key else {
            chosen.insert(event.seq, *event);
            continue;
        };
        // It has a time of its own although it is not the first.
        let first = firsts.get(key).map(|first| first.seq).filter(|first| *first < event.seq);
        waits.extend(
            first
                .filter(|first| matches!(keys.get(first), Some(Key::Waits)))
                .map(|first| Waits { seq: event.seq, first }),
        );
    }

    // Beyond the last ready event that was looked at there may be one that comes first for its key.
    let looked_at = ready.last().filter(|_| ready.len() >= look_at).map_or(i64::MAX, |last| last.event.seq);
    let within = chosen.into_values().take_while(|event| event.seq <= looked_at);
    Ok((within.take(wanted.events).collect(), waits))
}

async fn found(tx: &mut MongoTx, order: Document, filter: Document, most: usize) -> Result<Vec<Found>> {
    let pipeline = vec![
        doc! { "$match": filter },
        doc! { "$sort": order },
        doc! { "$limit": limit(most) },
        doc! { "$project": { "bytes": 1, "topic": 1, "key": 1 } },
    ];
    let documents: Vec<Document> = fetch(tx, pipeline).await?;
    Ok(documents.iter().map(Found::read).collect())
}

/// The first held event of a key, and whether it may go. One that waits behind nobody may: what it waited for was taken away
/// by hand.
#[derive(Debug, Clone, Copy)]
pub(super) struct First {
    pub(super) seq: i64,
    pub(super) until: DateTime,
    is_due: bool,
    pub(super) waits: bool,
}

/// Of those keys that have held events. The server goes along the index from the first event of one key to that of the next,
/// however many there are.
pub(super) async fn firsts(tx: &mut MongoTx, keys: Vec<HeldKey>) -> Result<HashMap<HeldKey, First>> {
    let mut of_topic: HashMap<String, Vec<Binary>> = HashMap::new();
    for HeldKey { topic, key } in keys {
        of_topic.entry(topic).or_default().push(key);
    }
    let mut firsts = HashMap::new();
    for (topic, keys) in of_topic {
        for part in parts(keys) {
            let pipeline = vec![
                doc! { "$match": { "state": HELD, "topic": &topic, "key": { "$in": part } } },
                doc! { "$sort": { "key": 1, "_id": 1 } },
                doc! { "$group": { "_id": "$key", "seq": { "$first": "$_id" }, "until": { "$first": "$held_until" } } },
                doc! { "$set": { "due": { "$lte": ["$until", "$$NOW"] } } },
            ];
            let found: Vec<Document> = fetch(tx, pipeline).await?;
            for document in &found {
                let Some(Bson::Binary(key)) = document.get("_id") else { continue };
                let key = HeldKey { topic: topic.clone(), key: key.clone() };
                let until = document.get_datetime("until").map_or(behind(), |until| *until);
                let waits = until == behind();
                let is_due = waits || document.get_bool("due").unwrap_or_default();
                let seq = whole(document.get("seq")).unwrap_or_default();
                firsts.insert(key, First { seq, until, is_due, waits });
            }
        }
    }
    Ok(firsts)
}

/// Each key once, as many together as a command takes.
fn parts(mut keys: Vec<Binary>) -> Vec<Vec<Bson>> {
    keys.sort_unstable_by(|a, b| a.bytes.cmp(&b.bytes));
    keys.dedup();
    let (mut parts, mut bytes) = (Vec::<Vec<Bson>>::new(), 0);
    for key in keys {
        bytes += key.bytes.len();
        match parts.last_mut() {
            Some(part) if part.len() < COMMAND_KEYS && bytes <= COMMAND_KEY_BYTES => {
                part.push(Bson::Binary(key));
            }
            _ => {
                bytes = key.bytes.len();
                parts.push(vec![Bson::Binary(key)]);
            }
        }
    }
    parts
}

/// What becomes of the events of a key with held ones.
enum Key {
    /// The first held event is not due.
    Waits,
    /// It is due: these held events go, and ready ones that come before the number.
    Goes { events: Vec<Candidate>, before: i64 },
    /// It is due, but this batch has enough.
    Later,
}

/// By the number of the first held event.
async fn keys_of(
    tx: &mut MongoTx,
    firsts: &HashMap<HeldKey, First>,
    wanted: &Wanted<'_>,
    now: DateTime,
) -> Result<HashMap<i64, Key>> {
    let mut keys = HashMap::new();
    let mut due: Vec<i64> = Vec::new();
    for first in firsts.values() {
        if first.is_due {
            due.push(first.seq);
        } else {
            keys.insert(first.seq, Key::Waits);
        }
    }
    due.sort_unstable();
    let most = (wanted.events / due.len().clamp(1, MAX_DUE_KEYS)).max(1);
    keys.extend(due.iter().skip(MAX_DUE_KEYS).map(|first| (*first, Key::Later)));
    due.truncate(MAX_DUE_KEYS);
    if due.is_empty() {
        return Ok(keys);
    }
    for document in held_of_keys(tx, wanted.topic, &due, most).await? {
        let first = whole(document.get("_id")).unwrap_or_default();
        let (mut events, mut before) = (Vec::new(), i64::MAX);
        let held = document.get_array("held").map_or(&[][..], Vec::as_slice);
        for document in held.iter().filter_map(Bson::as_document) {
            let event = candidate(document);
            let until = document.get_datetime("held_until").map_or(behind(), |until| *until);
            // Behind one that failed on its own and is not due nothing goes.
            if event.seq != first && until > now && until < behind() {
                before = event.seq;
                break;
            }
            events.push(event);
            if events.len() >= most {
                before = event.seq;
                break;
            }
        }
        keys.insert(first, Key::Goes { events, before });
    }
    Ok(keys)
}

/// The held events of the keys of these, from the first on.
async fn held_of_keys(tx: &mut MongoTx, topic: &str, firsts: &[i64], most: usize) -> Result<Vec<Document>> {
    let of_key = doc! { "state": HELD, "topic": topic, "$expr": { "$eq": ["$key", "$$key"] } };
    let pipeline = vec![
        doc! { "$match": { "_id": { "$in": numbers(firsts) } } },
        doc! { "$lookup": { "from": super::OUTBOX, "let": { "key": "$key" }, "as": "held", "pipeline": [
            { "$match": of_key },
            { "$sort": { "_id": 1 } },
            { "$limit": limit(most) },
            { "$project": { "bytes": 1, "held_until": 1 } },
        ] } },
        doc! { "$project": { "held": 1 } },
    ];
    fetch(tx, pipeline).await
}

/// Lets events wait. Those that they wait for are changed too: who takes one of those away at the same time fails, or makes this
/// transaction fail, and comes again to find what is there then. Returns how many wait now.
pub(super) async fn put_behind(tx: &mut MongoTx, waits: &[Waits]) -> Result<u64> {
    if waits.is_empty() {
        return Ok(0);
    }
    let mut firsts: Vec<i64> = waits.iter().map(|waits| waits.first).collect();
    firsts.sort_unstable();
    firsts.dedup();
    rely_on(tx, &firsts).await?;
    let seqs: Vec<i64> = waits.iter().map(|waits| waits.seq).collect();
    let mut changed = 0;
    for part in seqs.chunks(COMMAND_NUMBERS) {
        changed += change(tx, pending(part), doc! { "state": HELD, "held_until": behind() }).await?;
    }
    Ok(changed)
}

/// Changes events that others wait for, so that this transaction and whoever takes one of them away cannot both commit.
async fn rely_on(tx: &mut MongoTx, firsts: &[i64]) -> Result<()> {
    for part in firsts.chunks(COMMAND_NUMBERS) {
        let followed = doc! { "$add": [{ "$ifNull": ["$followed", 0] }, 1] };
        change(tx, doc! { "_id": { "$in": numbers(part) } }, doc! { "followed": followed }).await?;
    }
    Ok(())
}

/// The keys of those of the events that are held. Others may wait for them: after they are gone, [`follow`].
pub(super) async fn held_keys(tx: &mut MongoTx, seqs: &[i64]) -> Result<Vec<HeldKey>> {
    let mut keys = Vec::new();
    for part in seqs.chunks(COMMAND_NUMBERS) {
        let pipeline = vec![
            doc! { "$match": { "_id": { "$in": numbers(part) }, "state": HELD } },
            doc! { "$project": { "topic": 1, "key": 1 } },
        ];
        let found: Vec<Document> = fetch(tx, pipeline).await?;
        keys.extend(found.iter().filter_map(HeldKey::of));
    }
    Ok(keys)
}

/// The first of those that wait goes on, if it waits for nobody any more. If another with a time of its own is before it, that one
/// is relied on: two that go at once would each take the other for the one that is waited for.
pub(super) async fn follow(tx: &mut MongoTx, keys: Vec<HeldKey>) -> Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let firsts = firsts(tx, keys).await?;
    let (waiting, others): (Vec<First>, Vec<First>) = firsts.into_values().partition(|first| first.waits);
    rely_on(tx, &others.iter().map(|first| first.seq).collect::<Vec<_>>()).await?;
    let waiting: Vec<i64> = waiting.iter().map(|first| first.seq).collect();
    for part in waiting.chunks(COMMAND_NUMBERS) {
        change(tx, doc! { "_id": { "$in": numbers(part) } }, doc! { "held_until": "$$NOW" }).await?;
    }
    Ok(())
}

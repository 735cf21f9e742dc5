//! What became of the deliveries of a batch.

use std::collections::{BTreeMap, HashMap, HashSet};

use mongodb::bson::{Bson, Document, doc};
use mongodb::error::Result;
use oncebox_core::store::{Deliveries, HeldEvent, ParkedEvent, StoreResult};

use super::read::pending;
use super::waiting::{self, HeldKey, Waits};
use super::{
    COMMAND_NUMBERS, HELD, OUTBOX, PARKED, PUBLISHED, READY, SHARDS_OF_RELAYS, change, change_all, fetch,
    numbers, shard, shard_list,
};
use crate::classify::Context;
use crate::position::whole;
use crate::rerun::rerun;
use crate::store::MongoStore;
use crate::time::milliseconds;
use crate::tx::MongoTx;

/// The most bytes of an error that are kept.
const MAX_ERROR_BYTES: usize = 4000;

/// How many updates go in one command: with the longest errors they are far below what a command takes.
const COMMAND_UPDATES: usize = 1000;

/// Writes it down. Where all went well no transaction is needed: that each of the events was delivered is true whatever becomes
/// of the others.
pub(super) async fn record_deliveries(store: &MongoStore, deliveries: &Deliveries) -> StoreResult<()> {
    if deliveries.held.is_empty() && deliveries.parked.is_empty() {
        let done = publish_ready(store, deliveries).await.context("removing published events")?;
        if done >= deliveries.published.len() as u64 {
            return Ok(());
        }
    }
    rerun(store, || record_once(store, deliveries)).await
}

/// Nearly no event that is published was held, so those that were not are taken first; how many they are.
async fn publish_ready(store: &MongoStore, deliveries: &Deliveries) -> Result<u64> {
    let outbox = store.inner.messages.collection::<Document>(OUTBOX);
    let mut done = 0;
    for part in deliveries.published.chunks(COMMAND_NUMBERS) {
        let ready = doc! { "_id": { "$in": numbers(part) }, "state": READY };
        done += if deliveries.keep {
            outbox.update_many(ready, vec![doc! { "$set": published() }]).await?.matched_count
        } else {
            outbox.delete_many(ready).await?.deleted_count
        };
    }
    Ok(done)
}

fn published() -> Document {
    doc! { "state": PUBLISHED, "published_at": "$$NOW", "held_until": Bson::Null, "parked_at": Bson::Null }
}

async fn record_once(store: &MongoStore, deliveries: &Deliveries) -> StoreResult<()> {
    let doing = "recording deliveries";
    let mut txn = store.begin().await?;
    if let Err(error) = record_in(&mut txn, deliveries).await.context(doing) {
        txn.rollback().await;
        return Err(error);
    }
    txn.commit_own(doing).await
}

async fn record_in(tx: &mut MongoTx, deliveries: &Deliveries) -> Result<()> {
    let mut keys = publish(tx, deliveries).await?;
    if !deliveries.held.is_empty() || !deliveries.parked.is_empty() {
        let events = pending_events(tx, deliveries).await?;
        let shards = still_leased(tx, deliveries, &events).await?;
        let mine: HashMap<i64, Event> =
            events.into_iter().filter(|(_, event)| shards.contains(&event.shard)).collect();
        keys.extend(park_events(tx, &deliveries.parked, &mine).await?);
        hold(tx, &deliveries.held, &mine).await?;
    }
    waiting::follow(tx, keys).await
}

/// Removes published events, or marks them. Returns the keys of those that were held.
async fn publish(tx: &mut MongoTx, deliveries: &Deliveries) -> Result<Vec<HeldKey>> {
    let keys = waiting::held_keys(tx, &deliveries.published).await?;
    for part in deliveries.published.chunks(COMMAND_NUMBERS) {
        let mut filter = doc! { "_id": { "$in": numbers(part) } };
        if deliveries.keep {
            filter.insert("state", doc! { "$ne": PUBLISHED });
            change(tx, filter, published()).await?;
        } else {
            let outbox = tx.database.collection::<Document>(OUTBOX);
            outbox.delete_many(filter).session(&mut tx.session).await?;
        }
    }
    Ok(keys)
}

/// An event that waits to be published.
struct Event {
    shard: u16,
    is_held: bool,
    key: Option<HeldKey>,
}

async fn pending_events(tx: &mut MongoTx, deliveries: &Deliveries) -> Result<HashMap<i64, Event>> {
    let held = deliveries.held.iter().map(|event| event.seq);
    let seqs: Vec<i64> = held.chain(deliveries.parked.iter().map(|event| event.seq)).collect();
    let mut events = HashMap::with_capacity(seqs.len());
    for part in seqs.chunks(COMMAND_NUMBERS) {
        let columns = doc! { "shard": 1, "state": 1, "topic": 1, "key": 1 };
        let pipeline = vec![doc! { "$match": pending(part) }, doc! { "$project": columns }];
        for document in fetch::<Document>(tx, pipeline).await? {
            let event = Event {
                shard: shard(whole(document.get("shard"))),
                is_held: document.get_str("state").is_ok_and(|state| state == HELD),
                key: HeldKey::of(&document),
            };
            events.insert(whole(document.get("_id")).unwrap_or_default(), event);
        }
    }
    Ok(events)
}

/// Those of the events' shards that still belong to whoever read the batch. They are changed: a take-over changes them too, so
/// it and this transaction cannot both commit. One that came before is seen, and one that comes after waits for the end of
/// this transaction or makes it look again. So a relay that has lost a shard holds and parks nothing of it.
async fn still_leased(
    tx: &mut MongoTx,
    deliveries: &Deliveries,
    events: &HashMap<i64, Event>,
) -> Result<HashSet<u16>> {
    let leases: HashMap<u16, i64> =
        deliveries.leases.iter().map(|lease| (lease.shard, lease.epoch)).collect();
    let mut shards: Vec<u16> = events.values().map(|event| event.shard).collect();
    shards.sort_unstable();
    shards.dedup();
    let of_relays = tx.database.collection::<Document>(SHARDS_OF_RELAYS);
    let wanted = doc! { "_id": { "$in": shard_list(&shards) } };
    let mut cursor = of_relays.find(wanted).session(&mut tx.session).await?;
    let mut mine = HashSet::new();
    while let Some(document) = cursor.next(&mut tx.session).await.transpose()? {
        let shard = shard(whole(document.get("_id")));
        if leases.get(&shard).is_some_and(|epoch| whole(document.get("epoch")) == Some(*epoch)) {
            mine.insert(shard);
        }
    }
    let fenced = doc! { "_id": { "$in": shard_list(&mine.iter().copied().collect::<Vec<_>>()) } };
    let recorded = doc! { "$inc": { "recorded": 1_i64 } };
    of_relays.update_many(fenced, recorded).session(&mut tx.session).await?;
    Ok(mine)
}

/// Returns the keys of those that were held.
async fn park_events(
    tx: &mut MongoTx,
    parked: &[ParkedEvent],
    mine: &HashMap<i64, Event>,
) -> Result<Vec<HeldKey>> {
    let mut alike: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    let mut keys = Vec::new();
    for event in parked {
        if let Some(found) = mine.get(&event.seq) {
            alike.entry(short(&event.error)).or_default().push(event.seq);
            keys.extend(found.key.clone().filter(|_| found.is_held));
        }
    }
    let set = |error: &str| {
        let mut set = failed(Some(error));
        set.extend(doc! { "state": PARKED, "parked_at": "$$NOW", "held_until": Bson::Null });
        set
    };
    update(tx, alike.iter().map(|(error, seqs)| (set(error), seqs))).await?;
    Ok(keys)
}

/// First all of them get their times; then those that were not tried and are behind a held one lose theirs again.
async fn hold(tx: &mut MongoTx, held: &[HeldEvent], mine: &HashMap<i64, Event>) -> Result<()> {
    let mut alike: BTreeMap<(i64, Option<&str>), Vec<i64>> = BTreeMap::new();
    let mut untried: Vec<(i64, HeldKey)> = Vec::new();
    for event in held {
        let Some(found) = mine.get(&event.seq) else { continue };
        let how = (milliseconds(event.delay), event.error.as_deref().map(short));
        alike.entry(how).or_default().push(event.seq);
        if event.error.is_none() {
            untried.extend(found.key.clone().map(|key| (event.seq, key)));
        }
    }
    let set = |(ms, error): &(i64, Option<&str>)| {
        let mut set = failed(*error);
        set.extend(doc! { "state": HELD, "held_until": { "$add": ["$$NOW", *ms] } });
        set
    };
    update(tx, alike.iter().map(|(how, seqs)| (set(how), seqs))).await?;
    let firsts = waiting::firsts(tx, untried.iter().map(|(_, key)| key.clone()).collect()).await?;
    let behind = untried.iter().filter_map(|(seq, key)| {
        let first = firsts.get(key)?.seq;
        (first < *seq).then_some(Waits { seq: *seq, first })
    });
    waiting::put_behind(tx, &behind.collect::<Vec<_>>()).await?;
    Ok(())
}

/// What a failure leaves behind. Without an error the event was not tried.
fn failed(error: Option<&str>) -> Document {
    error.map_or_else(Document::new, |error| {
        doc! { "attempts": { "$add": ["$attempts", 1] }, "error": { "$literal": error } }
    })
}

/// Runs an update for each, by the numbers of its events, in as few commands as they fit into.
async fn update<'e>(tx: &mut MongoTx, updates: impl Iterator<Item = (Document, &'e Vec<i64>)>) -> Result<()> {
    let statements: Vec<Document> = updates
        .flat_map(|(set, seqs)| {
            seqs.chunks(COMMAND_NUMBERS).map(move |part| {
                doc! { "q": pending(part), "u": [{ "$set": set.clone() }], "multi": true }
            })
        })
        .collect();
    for part in statements.chunks(COMMAND_UPDATES) {
        change_all(tx, part.to_vec()).await?;
    }
    Ok(())
}

/// The beginning of an error.
pub(super) fn short(error: &str) -> &str {
    &error[..error.floor_char_boundary(MAX_ERROR_BYTES)]
}

//! How the outbox is.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::Result;
use oncebox_core::store::{OutboxStatus, ShardStatus};

use super::waiting::behind;
use super::{HELD, PARKED, READY, RELAYS, SHARDS_OF_RELAYS, read, shard, union};
use crate::position::whole;
use crate::store::MongoStore;

/// How many topics are looked at in one command.
const COMMAND_TOPICS: usize = 100;

/// Counts, ages and owners.
pub(crate) async fn status(store: &MongoStore, cap: i64) -> Result<OutboxStatus> {
    let cap = cap.max(0);
    let counted = counts(store, cap.max(1)).await?;
    let count = |name: &str| counted.get(name).copied().unwrap_or_default().min(cap);
    let oldest = oldest_ready(store).await?.max(counted.get("oldest").copied());
    let oldest = oldest.max(counted.get("oldest of the delayed").copied());
    Ok(OutboxStatus {
        pending: count(READY).saturating_add(count(HELD)).min(cap).unsigned_abs(),
        delayed: count("delayed").unsigned_abs(),
        held: [FAILED, FAILED_LATER, "behind"].into_iter().map(count).sum::<i64>().min(cap).unsigned_abs(),
        parked: count(PARKED).unsigned_abs(),
        // An event may carry the time of a clock that was set back since.
        oldest: oldest.map(|ms| Duration::from_millis(ms.max(0).unsigned_abs())),
        shards: shards(store).await?,
    })
}

/// Each by its own index, and no further than the cap.
async fn counts(store: &MongoStore, cap: i64) -> Result<HashMap<String, i64>> {
    let counted = |name: &str, filter: Document| {
        vec![
            doc! { "$match": filter },
            doc! { "$limit": cap },
            doc! { "$group": { "_id": name, "n": { "$sum": 1 } } },
        ]
    };
    let is = |operator: &str, field: &str| doc! { "$expr": { operator: [format!("${field}"), "$$NOW"] } };
    let and = |conditions: Vec<Document>| doc! { "$and": conditions };
    let still_held = || is("$gt", "held_until");
    let parts = vec![
        counted(READY, doc! { "state": READY }),
        counted(HELD, doc! { "state": HELD }),
        counted("delayed", and(vec![was_delayed(), is("$gt", "deliver_at")])),
        counted(FAILED, and(vec![has_time(doc! { "deliver_at": Bson::Null }), still_held()])),
        counted(FAILED_LATER, and(vec![was_delayed(), is("$lte", "deliver_at"), still_held()])),
        vec![
            doc! { "$match": { "state": HELD } },
            doc! { "$limit": cap },
            doc! { "$match": { "held_until": behind() } },
            doc! { "$group": { "_id": "behind", "n": { "$sum": 1 } } },
        ],
        counted(PARKED, doc! { "state": PARKED }),
        first("oldest", has_time(doc! { "deliver_at": Bson::Null }), "created_at"),
        first("oldest of the delayed", and(vec![was_delayed(), is("$lte", "deliver_at")]), "deliver_at"),
    ];
    let found: Vec<Document> = read::collect(&store.inner.aside, union(parts)).await?;
    let read = |count: &Document| Some((count.get_str("_id").ok()?.to_owned(), whole(count.get("n"))?));
    Ok(found.iter().filter_map(read).collect())
}

/// Held events that failed, those that were delayed before apart: an index orders by one field only.
const FAILED: &str = "failed";
const FAILED_LATER: &str = "failed after their time";

/// Held events that do not wait behind another. What the indexes `failed` and `delayed` hold.
fn has_time(further: Document) -> Document {
    let mut held = doc! { "state": HELD, "held_until": { "$lt": behind() } };
    held.extend(further);
    held
}

fn was_delayed() -> Document {
    has_time(doc! { "deliver_at": { "$type": "date" } })
}

/// The age of the one that is first in this order.
fn first(name: &str, filter: Document, order: &str) -> Vec<Document> {
    vec![
        doc! { "$match": filter },
        doc! { "$sort": { "state": 1, order: 1 } },
        doc! { "$limit": 1 },
        doc! { "$project": { "_id": { "$literal": name }, "n": age() } },
    ]
}

/// In milliseconds, since it was written or since its time. One that is early counts from when it was written: that no relay has
/// looked at it is what this is about.
fn age() -> Document {
    let early = doc! { "$gt": ["$deliver_at", "$$NOW"] };
    let since = doc! { "$cond": [early, "$created_at", { "$max": ["$created_at", "$deliver_at"] }] };
    doc! { "$subtract": ["$$NOW", since] }
}

/// The age of the oldest of those that come first in their topic and shard.
async fn oldest_ready(store: &MongoStore) -> Result<Option<i64>> {
    let topics = read::topics(&store.inner.aside, &[READY], "", read::MAX_TOPICS).await?;
    let mut oldest = None;
    for part in topics.chunks(COMMAND_TOPICS) {
        let firsts = part.iter().map(|at| {
            vec![
                doc! { "$match": { "state": READY, "topic": &at.topic } },
                doc! { "$sort": { "shard": 1, "_id": 1 } },
                doc! { "$group": {
                    "_id": "$shard",
                    "created_at": { "$first": "$created_at" },
                    "deliver_at": { "$first": "$deliver_at" },
                } },
                doc! { "$project": { "age": age() } },
            ]
        });
        let found: Vec<Document> = read::collect(&store.inner.aside, union(firsts.collect())).await?;
        oldest = oldest.max(found.iter().filter_map(|first| whole(first.get("age"))).max());
    }
    Ok(oldest)
}

async fn shards(store: &MongoStore) -> Result<Vec<ShardStatus>> {
    let named = doc! { "from": RELAYS, "localField": "relay", "foreignField": "_id", "as": "relays" };
    let pipeline = [
        doc! { "$sort": { "_id": 1 } },
        doc! { "$lookup": named },
        doc! { "$set": { "left": { "$subtract": ["$leased_until", "$$NOW"] } } },
    ];
    let found = store.aside(SHARDS_OF_RELAYS).aggregate(pipeline).await?;
    let found: Vec<Document> = found.try_collect().await?;
    Ok(found.iter().map(of_shard).collect())
}

fn of_shard(document: &Document) -> ShardStatus {
    let left = whole(document.get("left")).filter(|ms| *ms > 0);
    let expires_in = left.map(|ms| Duration::from_millis(ms.unsigned_abs()));
    let relay = document.get_array("relays").ok().and_then(|relays| relays.first());
    let name = relay.and_then(Bson::as_document).and_then(|relay| relay.get_str("name").ok());
    ShardStatus {
        shard: shard(whole(document.get("_id"))),
        owner: name.filter(|_| expires_in.is_some()).map(str::to_owned),
        epoch: whole(document.get("epoch")).unwrap_or_default(),
        expires_in,
    }
}

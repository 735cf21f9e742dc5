//! What a relay does with a store, by hand.
#![allow(dead_code, unreachable_pub, missing_docs)]

use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::Collection;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, DateTime, Document, doc};
use oncebox_core::inbox::BatchBounds;
use oncebox_core::outbox::{Emit, Event};
use oncebox_core::store::{
    Deliveries, EventFilter, HeldEvent, Leases, Outbox, OutboxAdmin, OutboxEntry, ParkedEvent, Store,
    StoredEvent,
};
use oncebox_mongodb::MongoStore;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::support::stock;

pub const HOUR: Duration = Duration::from_secs(3600);

pub const MANY: BatchBounds = BatchBounds { messages: 1000, bytes: 4 * 1024 * 1024 };

/// A relay that owns all shards.
pub struct HandRelay {
    pub store: MongoStore,
    pub id: Uuid,
    pub leases: Leases,
}

impl HandRelay {
    pub async fn start(store: &MongoStore) -> Self {
        let id = Uuid::now_v7();
        let leases = store.lease(id, "by hand", HOUR).await.unwrap();
        Self { store: store.clone(), id, leases }
    }

    pub fn shards(&self) -> Vec<u16> {
        self.leases.held.iter().map(|lease| lease.shard).collect()
    }

    pub async fn next(&self, topic: &str) -> Vec<StoredEvent> {
        self.store.next_events(topic, &self.shards(), MANY).await.unwrap()
    }

    pub async fn texts(&self, topic: &str) -> Vec<String> {
        self.next(topic).await.iter().map(text).collect()
    }

    pub async fn record_deliveries(&self, deliveries: Deliveries) {
        let leases = self.leases.held.clone();
        self.store.record_deliveries(&Deliveries { leases, ..deliveries }).await.unwrap();
    }

    pub async fn publish(&self, seqs: Vec<i64>) {
        self.record_deliveries(Deliveries { published: seqs, ..Deliveries::default() }).await;
    }

    pub async fn hold(&self, seq: i64, delay: Duration) {
        let error = Some("the broker said no".to_owned());
        self.record_deliveries(Deliveries {
            held: vec![HeldEvent { seq, delay, error }],
            ..Deliveries::default()
        })
        .await;
    }

    pub async fn park(&self, seq: i64) {
        let error = "never".to_owned();
        self.record_deliveries(Deliveries {
            parked: vec![ParkedEvent { seq, error }],
            ..Deliveries::default()
        })
        .await;
    }

    pub async fn entries(&self) -> Vec<OutboxEntry> {
        self.store.events(&every()).await.unwrap()
    }
}

pub fn every() -> EventFilter {
    EventFilter { limit: 1000, ..EventFilter::default() }
}

pub fn text(event: &StoredEvent) -> String {
    String::from_utf8(event.payload.as_ref().unwrap().to_vec()).unwrap()
}

/// Commits events of these keys and texts; returns their places.
pub async fn emit(store: &MongoStore, topic: &str, events: &[(&str, &str)]) -> Vec<i64> {
    let events: Vec<Event> =
        events.iter().map(|(key, text)| Event::to(topic).key(key).bytes((*text).to_owned())).collect();
    let mut txn = store.claim(&stock(), &[]).await.unwrap().txn;
    txn.emit_all(&events).await.unwrap();
    store.commit(txn, None).await.unwrap();
    let ids: Vec<String> = events.iter().map(|event| event.id().to_string()).collect();
    let outbox = store.database().collection::<Document>("oncebox_outbox");
    let found = outbox.find(doc! { "id": { "$in": ids } }).sort(doc! { "_id": 1 }).await.unwrap();
    let found: Vec<Document> = found.try_collect().await.unwrap();
    found.iter().map(|event| event.get_i64("_id").unwrap()).collect()
}

/// An event as a program in any language writes it.
pub fn plain(seq: i64, topic: &str, key: Option<&str>, payload: &str) -> Document {
    let id = Uuid::now_v7().to_string();
    let hash: [u8; 32] = Sha256::digest(key.unwrap_or(&id).as_bytes()).into();
    let binary = |text: &str| Binary { subtype: BinarySubtype::Generic, bytes: text.as_bytes().to_vec() };
    doc! {
        "_id": seq, "topic": topic, "key": key.map(binary), "payload": binary(payload), "headers": "{}",
        "created_at": DateTime::now(), "attempts": 0, "state": "ready", "shard": i32::from(hash[0] & 15),
        "bytes": i64::try_from(key.map_or(0, str::len) + payload.len() + 2).unwrap(), "id": id,
    }
}

/// Draws numbers, and returns the first.
pub async fn draw(store: &MongoStore, count: i64) -> i64 {
    let counter = store.database().collection::<Document>("oncebox_counter");
    let drawn = counter.find_one_and_update(doc! { "_id": "outbox" }, doc! { "$inc": { "last": count } });
    drawn.await.unwrap().unwrap().get_i64("last").unwrap() + 1
}

/// Commits many events without going through the store.
pub async fn insert(store: &MongoStore, events: impl IntoIterator<Item = (String, Option<String>, String)>) {
    let events: Vec<_> = events.into_iter().collect();
    let first = draw(store, i64::try_from(events.len()).unwrap()).await;
    let documents = events
        .iter()
        .zip(first..)
        .map(|((topic, key, payload), seq)| plain(seq, topic, key.as_deref(), payload));
    outbox(store).insert_many(documents).await.unwrap();
}

pub fn outbox(store: &MongoStore) -> Collection<Document> {
    store.database().collection("oncebox_outbox")
}

//! What a relay does with a store, by hand.
#![allow(dead_code, unreachable_pub, missing_docs)]

use std::time::Duration;

use oncebox_core::inbox::BatchBounds;
use oncebox_core::outbox::{Emit, Event};
use oncebox_core::store::{
    Deliveries, EventFilter, HeldEvent, Leases, Outbox, OutboxAdmin, OutboxEntry, ParkedEvent, Store,
    StoredEvent,
};
use oncebox_mysql::MysqlStore;
use uuid::Uuid;

use super::support::consumer;

pub const HOUR: Duration = Duration::from_secs(3600);

pub const MANY: BatchBounds = BatchBounds { messages: 1000, bytes: 4 * 1024 * 1024 };

/// A relay that owns all shards.
pub struct HandRelay {
    pub store: MysqlStore,
    pub id: Uuid,
    pub leases: Leases,
}

impl HandRelay {
    pub async fn start(store: &MysqlStore) -> Self {
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
pub async fn emit(store: &MysqlStore, topic: &str, events: &[(&str, &str)]) -> Vec<i64> {
    let events: Vec<Event> =
        events.iter().map(|(key, text)| Event::to(topic).key(key).bytes((*text).to_owned())).collect();
    let mut txn = store.claim(&consumer(), &[]).await.unwrap().txn;
    txn.emit_all(&events).await.unwrap();
    let mut seqs = Vec::new();
    for event in &events {
        let sql = "SELECT seq FROM oncebox_outbox WHERE id = ?";
        seqs.push(sqlx::query_scalar(sql).bind(event.id().to_string()).fetch_one(&mut *txn).await.unwrap());
    }
    store.commit(txn, None).await.unwrap();
    seqs
}

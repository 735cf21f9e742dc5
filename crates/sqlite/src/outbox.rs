//! The outbox: events that commit with the application's own writes, and what a relay does with them.

mod admin;
mod deliveries;
mod emit;
mod lease;
mod left_behind;
mod read;
pub(crate) mod status;
mod sweep;
mod waiting;

use std::time::Duration;

use oncebox_core::inbox::BatchBounds;
use oncebox_core::outbox::EventRow;
use oncebox_core::store::{
    CausedEvents, Deliveries, EventFilter, Leases, Outbox, OutboxAdmin, OutboxEntry, Ready, StoreResult,
    StoredEvent, Sweep,
};
use sqlx::SqliteConnection;
use uuid::Uuid;

use crate::store::SqliteStore;

pub(crate) use read::{is_held, is_ready};

impl Outbox for SqliteStore {
    async fn write_events(conn: &mut SqliteConnection, events: &[EventRow<'_>]) -> StoreResult<()> {
        emit::write_events(conn, events).await
    }

    async fn lease(&self, relay: Uuid, name: &str, duration: Duration) -> StoreResult<Leases> {
        lease::lease(self, relay, name, duration).await
    }

    async fn release_shards(&self, relay: Uuid, shards: &[u16], leaving: bool) -> StoreResult<()> {
        lease::release_shards(self, relay, shards, leaving).await
    }

    async fn ready_from(&self, shards: &[u16], from: &str, topics: u16) -> StoreResult<Ready> {
        read::ready_from(self, shards, from, topics).await
    }

    async fn next_events(
        &self,
        topic: &str,
        shards: &[u16],
        bounds: BatchBounds,
    ) -> StoreResult<Vec<StoredEvent>> {
        read::next_events(self, topic, shards, bounds).await
    }

    async fn clock_ms(&self) -> StoreResult<i64> {
        read::clock_ms(self).await
    }

    async fn record_deliveries(&self, deliveries: &Deliveries) -> StoreResult<()> {
        deliveries::record_deliveries(self, deliveries).await
    }
}

impl OutboxAdmin for SqliteStore {
    async fn events(&self, filter: &EventFilter) -> StoreResult<Vec<OutboxEntry>> {
        admin::events(self, filter).await
    }

    async fn events_caused_by(&self, message_id: &str, newest: u32) -> StoreResult<CausedEvents> {
        admin::events_caused_by(self, message_id, newest).await
    }

    async fn retry_events(&self, filter: &EventFilter) -> StoreResult<u64> {
        admin::retry_events(self, filter).await
    }

    async fn park_events(&self, filter: &EventFilter, reason: &str) -> StoreResult<u64> {
        admin::park_events(self, filter, reason).await
    }

    async fn drop_events(&self, filter: &EventFilter) -> StoreResult<u64> {
        admin::drop_events(self, filter).await
    }

    async fn purge_published(&self, keep: Duration) -> StoreResult<u64> {
        admin::purge_published(self, keep).await
    }

    async fn sweep(&self, sweep: &Sweep) -> StoreResult<u64> {
        sweep::sweep(self, sweep).await
    }

    async fn check_sweep(&self, sweep: &Sweep) -> StoreResult<()> {
        sweep::check_sweep(self, sweep).await
    }
}

/// A list as the JSON that a statement takes apart again.
fn json<T: Into<serde_json::Value>>(items: impl IntoIterator<Item = T>) -> String {
    serde_json::Value::from_iter(items).to_string()
}

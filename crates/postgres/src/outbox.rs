//! The outbox: events that commit with the application's own writes, and what a relay does with them.
//!
//! A held event is out of the index of ready ones. Of the held events of a key only the first has a time; those behind it
//! wait until infinity, and follow it when it is due. Whoever takes the first one away makes the next one due: a trigger
//! does, so that an operator's own DELETE does it too. What gets past the trigger, [`left_behind`] finds.

mod admin;
mod deliveries;
mod emit;
mod emit_as_begun;
pub(crate) mod floors;
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
use sqlx::PgConnection;
use uuid::Uuid;

use crate::store::PgStore;

impl Outbox for PgStore {
    async fn write_events(conn: &mut PgConnection, events: &[EventRow<'_>]) -> StoreResult<()> {
        emit::write_events(conn, events).await
    }

    async fn lease(&self, relay: Uuid, name: &str, duration: Duration) -> StoreResult<Leases> {
        self.patiently("leasing shards", lease::lease(self, relay, name, duration)).await
    }

    async fn release_shards(&self, relay: Uuid, shards: &[u16], leaving: bool) -> StoreResult<()> {
        self.patiently("releasing shards", lease::release_shards(self, relay, shards, leaving)).await
    }

    async fn ready_from(&self, shards: &[u16], from: &str, topics: u16) -> StoreResult<Ready> {
        let ready = read::ready_from(self, shards, from, topics);
        self.or_forget(self.patiently("looking for events", ready).await)
    }

    async fn next_events(
        &self,
        topic: &str,
        shards: &[u16],
        bounds: BatchBounds,
    ) -> StoreResult<Vec<StoredEvent>> {
        self.or_forget(self.patiently("reading events", read::next_events(self, topic, shards, bounds)).await)
    }

    async fn clock_ms(&self) -> StoreResult<i64> {
        read::clock_ms(self).await
    }

    async fn record_deliveries(&self, deliveries: &Deliveries) -> StoreResult<()> {
        let recorded = deliveries::record_deliveries(self, deliveries);
        self.or_forget(self.patiently("recording deliveries", recorded).await)
    }
}

impl OutboxAdmin for PgStore {
    async fn events(&self, filter: &EventFilter) -> StoreResult<Vec<OutboxEntry>> {
        self.patiently("reading the outbox", admin::events(self, filter)).await
    }

    async fn events_caused_by(&self, message_id: &str, newest: u32) -> StoreResult<CausedEvents> {
        self.patiently("reading the outbox", admin::events_caused_by(self, message_id, newest)).await
    }

    async fn retry_events(&self, filter: &EventFilter) -> StoreResult<u64> {
        self.patiently("retrying events", admin::retry_events(self, filter)).await
    }

    async fn park_events(&self, filter: &EventFilter, reason: &str) -> StoreResult<u64> {
        self.patiently("parking events", admin::park_events(self, filter, reason)).await
    }

    async fn drop_events(&self, filter: &EventFilter) -> StoreResult<u64> {
        self.patiently("dropping events", admin::drop_events(self, filter)).await
    }

    async fn purge_published(&self, keep: Duration) -> StoreResult<u64> {
        admin::purge_published(self, keep).await
    }

    async fn sweep(&self, sweep: &Sweep) -> StoreResult<u64> {
        self.patiently("sweeping", sweep::sweep(self, sweep)).await
    }

    async fn check_sweep(&self, sweep: &Sweep) -> StoreResult<()> {
        self.patiently("checking a sweep", sweep::check_sweep(self, sweep)).await
    }
}

impl PgStore {
    /// After an error nobody knows whether it is still the same server.
    fn or_forget<T>(&self, result: StoreResult<T>) -> StoreResult<T> {
        if result.is_err() {
            self.inner.floors.forget();
        }
        result
    }
}

fn numbers(shards: &[u16]) -> Vec<i32> {
    shards.iter().map(|shard| i32::from(*shard)).collect()
}

fn shard(number: i32) -> u16 {
    // The database computes it from four bits.
    u16::try_from(number).unwrap_or_default()
}

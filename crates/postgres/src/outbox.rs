//! The outbox: events that commit with the application's own writes, and what a relay does with them.
//!
//! A held event is out of the index of ready ones. Of the held events of a key only the first has a time; those behind it
//! wait until infinity, and follow it when it is due. Whoever takes the first one away makes the next one due: a trigger
//! does, so that an operator's own DELETE does it too. What gets past the trigger, [`left_behind`] finds.

mod admin;
mod emit;
mod emit_as_begun;
mod lease;
mod left_behind;
mod read;
mod row;
mod settle;
mod sweep;
mod waiting;

use std::time::Duration;

use oncebox_core::inbox::BatchBounds;
use oncebox_core::outbox::EventRow;
use oncebox_core::store::{
    EventFilter, Leases, Outbox, OutboxAdmin, OutboxEntry, Settlement, StoreResult, StoredEvent, Sweep,
};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::store::PgStore;

impl Outbox for PgStore {
    async fn write_events(conn: &mut PgConnection, events: &[EventRow<'_>]) -> StoreResult<()> {
        emit::write(conn, events).await
    }

    async fn lease(&self, relay: Uuid, name: &str, duration: Duration) -> StoreResult<Leases> {
        self.patiently("leasing shards", self.lease_shards(relay, name, duration)).await
    }

    async fn release_shards(&self, relay: Uuid, shards: &[u16], leaving: bool) -> StoreResult<()> {
        self.patiently("releasing shards", self.give_back(relay, shards, leaving)).await
    }

    async fn ready(&self, shards: &[u16]) -> StoreResult<Vec<(String, u16)>> {
        self.patiently("looking for events", self.ready_topics(shards)).await
    }

    async fn next_events(
        &self,
        topic: &str,
        shards: &[u16],
        bounds: BatchBounds,
    ) -> StoreResult<Vec<StoredEvent>> {
        self.patiently("reading events", self.read_events(topic, shards, bounds)).await
    }

    async fn settle(&self, settlement: &Settlement) -> StoreResult<()> {
        self.patiently("settling events", self.settle_batch(settlement)).await
    }
}

impl OutboxAdmin for PgStore {
    async fn events(&self, filter: &EventFilter) -> StoreResult<Vec<OutboxEntry>> {
        self.patiently("reading the outbox", self.entries(filter)).await
    }

    async fn retry_events(&self, filter: &EventFilter) -> StoreResult<u64> {
        self.patiently("retrying events", self.retry_matching(filter)).await
    }

    async fn drop_events(&self, filter: &EventFilter) -> StoreResult<u64> {
        self.patiently("dropping events", self.drop_matching(filter)).await
    }

    async fn purge_published(&self, keep: Duration) -> StoreResult<u64> {
        self.purge_outbox(keep).await
    }

    async fn sweep(&self, sweep: &Sweep) -> StoreResult<u64> {
        self.patiently("sweeping", self.run_sweep(sweep)).await
    }

    async fn check_sweep(&self, sweep: &Sweep) -> StoreResult<()> {
        self.patiently("checking a sweep", self.look_at_sweep(sweep)).await
    }
}

fn numbers(shards: &[u16]) -> Vec<i32> {
    shards.iter().map(|shard| i32::from(*shard)).collect()
}

pub(crate) fn shard(number: i32) -> u16 {
    // The database computes it from four bits.
    u16::try_from(number).unwrap_or_default()
}

fn milliseconds(duration: Duration) -> i64 {
    // A century, so that adding it to the clock never overflows.
    const LONGEST: i64 = 100 * 365 * 24 * 60 * 60 * 1000;
    i64::try_from(duration.as_millis()).unwrap_or(LONGEST).min(LONGEST)
}

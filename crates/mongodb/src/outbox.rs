//! The outbox: events that commit with the application's own writes, and what a relay does with them.
//!
//! A document says where it stands in `state`, because an index can only be partial by what is there: `ready`, `held`, `parked` or
//! `published`. Of the held events of a key the first has a time; those behind it wait until the end of all times ([`waiting`]),
//! and follow it when it is due. Whoever takes the first one away makes the next one due, in the same transaction. An operator's
//! own delete does not, so the housekeeping looks for what it left behind ([`left_behind`]).
//!
//! Nothing is locked here. Two transactions that must not both commit change the same document:
//!
//! | one | and the other | both change |
//! |---|---|---|
//! | records that an event failed | takes the shard over | the shard: `recorded`, `epoch` |
//! | puts events behind a held one | takes that one away | the held one: `followed` |
//! | makes an event due | takes it away | the event |
//! | sweeps a row | sweeps the same row | what is remembered of it |
//!
//! The one that comes second is run again, and sees what the first has done.

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

use futures_util::TryStreamExt;
use mongodb::Collection;
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::Result;
use oncebox_core::inbox::BatchBounds;
use oncebox_core::outbox::EventRow;
use oncebox_core::store::{
    CausedEvents, Deliveries, EventFilter, Leases, Outbox, OutboxAdmin, OutboxEntry, Ready, StoreResult,
    StoredEvent, Sweep,
};
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::store::MongoStore;
use crate::tx::{MongoTx, refused};

pub(crate) const OUTBOX: &str = "oncebox_outbox";
const RELAYS: &str = "oncebox_relay";
const SHARDS_OF_RELAYS: &str = "oncebox_shard";

/// Where an event stands.
const READY: &str = "ready";
const HELD: &str = "held";
const PARKED: &str = "parked";
const PUBLISHED: &str = "published";

impl Outbox for MongoStore {
    async fn write_events(conn: &mut MongoTx, events: &[EventRow<'_>]) -> StoreResult<()> {
        emit::write_events(conn, events).await
    }

    async fn lease(&self, relay: Uuid, name: &str, duration: Duration) -> StoreResult<Leases> {
        self.patiently("leasing shards", lease::lease(self, relay, name, duration)).await
    }

    async fn release_shards(&self, relay: Uuid, shards: &[u16], leaving: bool) -> StoreResult<()> {
        self.patiently("releasing shards", lease::release_shards(self, relay, shards, leaving)).await
    }

    async fn ready_from(&self, shards: &[u16], from: &str, topics: u16) -> StoreResult<Ready> {
        self.patiently("looking for events", read::ready_from(self, shards, from, topics)).await
    }

    async fn next_events(
        &self,
        topic: &str,
        shards: &[u16],
        bounds: BatchBounds,
    ) -> StoreResult<Vec<StoredEvent>> {
        self.patiently("reading events", read::next_events(self, topic, shards, bounds)).await
    }

    async fn clock_ms(&self) -> StoreResult<i64> {
        read::clock_ms(self).await
    }

    async fn record_deliveries(&self, deliveries: &Deliveries) -> StoreResult<()> {
        self.patiently("recording deliveries", deliveries::record_deliveries(self, deliveries)).await
    }
}

impl OutboxAdmin for MongoStore {
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
        self.patiently("sweeping", Box::pin(sweep::sweep(self, sweep))).await
    }

    async fn check_sweep(&self, sweep: &Sweep) -> StoreResult<()> {
        self.patiently("checking a sweep", sweep::check_sweep(self, sweep)).await
    }
}

/// How many numbers one command holds.
const COMMAND_NUMBERS: usize = 10_000;

/// What a pipeline over the outbox yields inside a transaction, all of it in as few answers as possible.
async fn fetch<T>(tx: &mut MongoTx, pipeline: Vec<Document>) -> Result<Vec<T>>
where
    T: DeserializeOwned + Send + Sync + Unpin,
{
    let outbox: Collection<Document> = tx.database.collection(OUTBOX);
    let found = outbox.aggregate(pipeline).batch_size(ONE_ANSWER).with_type::<T>();
    let mut cursor = found.session(&mut tx.session).await?;
    cursor.stream(&mut tx.session).try_collect().await
}

/// As much as fits into an answer, instead of the first 101.
const ONE_ANSWER: u32 = 100_000;

/// Changes all documents that match, inside a transaction; how many they were.
async fn change(tx: &mut MongoTx, filter: Document, set: Document) -> Result<u64> {
    let outbox: Collection<Document> = tx.database.collection(OUTBOX);
    let changed = outbox.update_many(filter, vec![doc! { "$set": set }]).session(&mut tx.session).await?;
    Ok(changed.matched_count)
}

/// Runs many updates of the outbox as one command, inside a transaction.
async fn change_all(tx: &mut MongoTx, updates: Vec<Document>) -> Result<()> {
    if updates.is_empty() {
        return Ok(());
    }
    let command = doc! { "update": OUTBOX, "updates": updates, "ordered": true };
    let answer = tx.database.run_command(command).session(&mut tx.session).await?;
    refused(&answer)
}

/// A pipeline that yields what all of these yield. Not for transactions, which do not take it.
fn union(parts: Vec<Vec<Document>>) -> Vec<Document> {
    let mut parts = parts.into_iter();
    let mut all = parts.next().unwrap_or_default();
    all.extend(parts.map(|pipeline| doc! { "$unionWith": { "coll": OUTBOX, "pipeline": pipeline } }));
    all
}

/// Numbers for an `$in`.
fn numbers(seqs: &[i64]) -> Vec<Bson> {
    seqs.iter().map(|seq| Bson::Int64(*seq)).collect()
}

/// Shards for an `$in`.
fn shard_list(shards: &[u16]) -> Vec<Bson> {
    shards.iter().map(|shard| Bson::Int32(i32::from(*shard))).collect()
}

fn shard(number: Option<i64>) -> u16 {
    // The validator takes nothing but 0 to 15.
    number.and_then(|number| u16::try_from(number).ok()).unwrap_or_default()
}

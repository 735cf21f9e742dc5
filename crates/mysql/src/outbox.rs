//! The outbox: events that commit with the application's own writes, and what a relay does with them.
//!
//! A held event is out of the ready ones. Of the held events of a key the first has a time; those behind it wait until the
//! end of all times ([`waiting`]), and follow it when it is due. Whoever takes the first one away makes the next one due, in
//! the same transaction. There is no trigger for it: under a binary log that takes a right that few have. An operator's own
//! DELETE does not, so the housekeeping looks for what it left behind ([`left_behind`]).
//!
//! Rows are locked by their number, in ascending order, and looked at again under the lock. No statement that locks may search:
//! InnoDB locks what it looks at, and waits for rows that nobody has committed yet. So rows are found first, by plain reads.
//!
//! Lists of numbers differ in length. The statements that hold them go as text, which the driver does not prepare.

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
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, MySqlConnection};
use uuid::Uuid;

use crate::store::MysqlStore;

impl Outbox for MysqlStore {
    async fn write_events(conn: &mut MySqlConnection, events: &[EventRow<'_>]) -> StoreResult<()> {
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

impl OutboxAdmin for MysqlStore {
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

/// How many numbers, or parts of a UNION, one statement holds.
const STATEMENT_NUMBERS: usize = 5000;
const STATEMENT_PARTS: usize = 250;

/// The rows that a text finds.
async fn fetch(conn: &mut MySqlConnection, sql: String) -> sqlx::Result<Vec<MySqlRow>> {
    sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(conn).await
}

/// Runs a text; how many rows it has changed. Rows that were as wanted already count too.
async fn change(conn: &mut MySqlConnection, sql: String) -> sqlx::Result<u64> {
    Ok(sqlx::raw_sql(AssertSqlSafe(sql)).execute(conn).await?.rows_affected())
}

/// The events with these numbers, which must not be none, as `o`: one after another by the primary key, ascending, because that
/// is the order of the locks. A plain `IN` is no good: where it names much of a small table both servers read all of it, whatever
/// index they are told to use, and wait for rows that are not committed.
fn events_by_seq(seqs: &[i64]) -> String {
    format!(
        "JSON_TABLE('[{}]', '$[*]' COLUMNS (seq BIGINT PATH '$')) AS l \
         STRAIGHT_JOIN oncebox_outbox AS o FORCE INDEX (PRIMARY) ON o.seq = l.seq",
        list(seqs)
    )
}

/// The end of a query that locks the rows of [`events_by_seq`]. MySQL would also lock the list, which it cannot; MariaDB knows no
/// names here, and skips the comment.
const LOCKED: &str = "FOR UPDATE /*!80001 OF o */";

/// Numbers with commas between them, ascending.
fn list<N: ToString + Ord + Copy>(numbers: &[N]) -> String {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.iter().map(N::to_string).collect::<Vec<_>>().join(",")
}

fn shard(number: i64) -> u16 {
    // The database computes it from four bits.
    u16::try_from(number).unwrap_or_default()
}

//! A database in a directory of its own, and short words for what the tests do with it.

use std::time::Duration;

use oncebox_core::error::BoxError;
use oncebox_core::inbox::BatchBounds;
use oncebox_core::outbox::{Emit, Event};
use oncebox_core::store::{Deliveries, HeldEvent, Lease, Outbox, ParkedEvent, SHARDS, StoredEvent};
use oncebox_sqlite::SqliteStore;
use oncebox_testkit::conformance::ready;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, SqliteConnection};
use uuid::Uuid;

pub(crate) type TestResult = Result<(), BoxError>;

pub(crate) const BOUNDS: BatchBounds = BatchBounds { messages: 1000, bytes: 4 * 1024 * 1024 };
pub(crate) const LONG: Duration = Duration::from_secs(3600);

pub(crate) struct File {
    pub(crate) store: SqliteStore,
    directory: tempfile::TempDir,
}

impl File {
    pub(crate) async fn new() -> Result<Self, BoxError> {
        let directory = tempfile::tempdir()?;
        let store = SqliteStore::connect(&format!("sqlite://{}/app.db", directory.path().display())).await?;
        store.migrate().await?;
        Ok(Self { store, directory })
    }

    /// A connection beside the store's, as an application has it.
    pub(crate) async fn beside(&self) -> sqlx::Result<SqliteConnection> {
        SqliteConnectOptions::new().filename(self.directory.path().join("app.db")).connect().await
    }

    /// Runs statements as an application.
    pub(crate) async fn run(&self, sql: &str) -> sqlx::Result<()> {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut self.beside().await?).await.map(|_| ())
    }

    pub(crate) async fn number(&self, sql: &'static str) -> sqlx::Result<i64> {
        sqlx::query_scalar(sql).fetch_one(&mut self.beside().await?).await
    }

    /// Events with these keys; the payload is the place in the list.
    pub(crate) async fn emit(&self, topic: &str, keys: &[&str]) -> TestResult {
        let event = |(at, key): (usize, &&str)| Event::to(topic).key(key).bytes(at.to_string());
        let events: Vec<Event> = keys.iter().enumerate().map(event).collect();
        self.beside().await?.emit_all(&events).await?;
        Ok(())
    }

    /// A relay that owns all shards.
    pub(crate) async fn lease_all(&self) -> Result<Vec<Lease>, BoxError> {
        Ok(self.store.lease(Uuid::now_v7(), "one", LONG).await?.held)
    }

    pub(crate) async fn next(&self, topic: &str) -> Result<Vec<i64>, BoxError> {
        Ok(seqs(&self.store.next_events(topic, &all_shards(), BOUNDS).await?))
    }

    /// The topics that have something to publish.
    pub(crate) async fn ready(&self) -> Result<Vec<String>, BoxError> {
        let mut topics: Vec<_> =
            ready(&self.store, &all_shards()).await?.into_iter().map(|(topic, _)| topic).collect();
        topics.dedup();
        Ok(topics)
    }

    pub(crate) async fn hold(
        &self,
        leases: &[Lease],
        seq: i64,
        delay: Duration,
        error: Option<&str>,
    ) -> TestResult {
        let held = vec![HeldEvent { seq, delay, error: error.map(str::to_owned) }];
        Ok(self
            .store
            .record_deliveries(&Deliveries { leases: leases.to_vec(), held, ..Deliveries::default() })
            .await?)
    }

    pub(crate) async fn park(&self, leases: &[Lease], seq: i64, error: &str) -> TestResult {
        let parked = vec![ParkedEvent { seq, error: error.to_owned() }];
        Ok(self
            .store
            .record_deliveries(&Deliveries { leases: leases.to_vec(), parked, ..Deliveries::default() })
            .await?)
    }

    pub(crate) async fn publish(&self, seqs: &[i64], keep: bool) -> TestResult {
        let published = seqs.to_vec();
        Ok(self.store.record_deliveries(&Deliveries { published, keep, ..Deliveries::default() }).await?)
    }

    /// Lets the time of all held events come that have one.
    pub(crate) async fn let_time_pass(&self) -> TestResult {
        let sql =
            "UPDATE oncebox_outbox SET held_until = strftime('%Y-%m-%dT%H:%M:%fZ', held_until, '-1 day')
                   WHERE held_until < '9999'";
        Ok(self.run(sql).await?)
    }
}

pub(crate) fn all_shards() -> Vec<u16> {
    (0..SHARDS).collect()
}

pub(crate) fn seqs(events: &[StoredEvent]) -> Vec<i64> {
    events.iter().map(|event| event.seq).collect()
}

//! A store in a temporary folder, a source driven by hand, and an effect table.

use std::time::{Duration, Instant};

use bytes::Bytes;
use oncebox::source::start_at;
use oncebox::source::{Intake, OpenStream, Stream};
use oncebox::sqlite::SqliteStore;
use oncebox::{Inbox, Message, Record, StartPolicy, Worker};
use sqlx::{Connection, SqliteConnection};
use tempfile::TempDir;

pub(crate) struct Fixture {
    pub(crate) store: SqliteStore,
    pub(crate) url: String,
    _folder: TempDir,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("test.sqlite").display());
        let store = SqliteStore::connect(&url).await.unwrap();
        store.migrate().await.unwrap();
        let fixture = Self { store, url, _folder: folder };
        fixture.execute("CREATE TABLE effect (n INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT, key TEXT)").await;
        fixture
    }

    pub(crate) fn inbox(&self) -> Inbox<SqliteStore> {
        Inbox::new("test", self.store.clone()).unwrap()
    }

    pub(crate) async fn execute(&self, sql: &'static str) {
        let mut conn = SqliteConnection::connect(&self.url).await.unwrap();
        sqlx::query(sql).execute(&mut conn).await.unwrap();
    }

    pub(crate) async fn texts(&self, sql: &'static str) -> Vec<String> {
        let mut conn = SqliteConnection::connect(&self.url).await.unwrap();
        sqlx::query_scalar(sql).fetch_all(&mut conn).await.unwrap()
    }

    /// The ids of the effects, in the order in which they were applied.
    pub(crate) async fn effects(&self) -> Vec<String> {
        self.texts("SELECT id FROM effect ORDER BY n").await
    }

    pub(crate) async fn dead(&self) -> Vec<String> {
        self.texts("SELECT message_id FROM oncebox_dead ORDER BY number").await
    }

    pub(crate) async fn errors(&self) -> Vec<String> {
        self.texts("SELECT error FROM oncebox_dead ORDER BY number").await
    }
}

/// The handler of most tests: one row per message.
pub(crate) async fn record_effect(tx: &mut SqliteConnection, message: &Message) -> oncebox::Result {
    sqlx::query("INSERT INTO effect (id, key) VALUES (?, ?)")
        .bind(message.id().as_str())
        .bind(message.key().map(|k| String::from_utf8_lossy(k).into_owned()))
        .execute(tx)
        .await?;
    Ok(())
}

/// A record whose key is the id, unless `key` says otherwise: most tests use `header:id`.
pub(crate) fn record(offset: i64, id: &str, key: &str) -> Record {
    let mut record = Record::at("t", 0, offset);
    record.key = Some(Bytes::copy_from_slice(key.as_bytes()));
    record.payload = Some(Bytes::from_static(b"{}"));
    record.headers.push("id", Some(Bytes::copy_from_slice(id.as_bytes())));
    record
}

/// One partition, driven as the Kafka thread would.
pub(crate) struct Partition {
    pub(crate) stream: Stream,
}

impl Partition {
    /// Opens partition 0 and starts it where a broker with everything still there would.
    pub(crate) async fn open(worker: &Worker<SqliteStore>) -> Self {
        Self::open_at(worker.intake(), None).await
    }

    /// The same, with an offset committed at the broker.
    pub(crate) async fn open_at(intake: Intake, committed: Option<i64>) -> Self {
        let partition = Self::acquire_with(intake).await;
        let stored = partition.stream.acquired().unwrap();
        let known = oncebox::source::Known { stored, committed, log: None, low: 0, high: i64::MAX };
        partition.stream.start(start_at(known, StartPolicy::Group).unwrap());
        partition
    }

    /// Opens partition 0 and leaves it to the test where it begins.
    pub(crate) async fn acquire(worker: &Worker<SqliteStore>) -> Self {
        Self::acquire_with(worker.intake()).await
    }

    async fn acquire_with(intake: Intake) -> Self {
        let stream =
            intake.open(OpenStream { topic: "t".into(), partition: 0, positioned: true, on_settled: None });
        eventually("the position is acquired", || stream.acquired().is_some()).await;
        Self { stream }
    }

    pub(crate) fn push(&self, records: impl IntoIterator<Item = Record>) {
        for record in records {
            assert!(self.stream.push(record));
        }
    }

    pub(crate) async fn settled(&self, next: i64) {
        eventually(&format!("settled up to {next}"), || self.stream.settled() == Some(next)).await;
    }

    pub(crate) async fn close(&self) {
        self.stream.close();
        let stream = self.stream.clone();
        let closed = tokio::task::spawn_blocking(move || stream.wait_closed(Duration::from_secs(20)));
        assert!(closed.await.unwrap(), "the lanes ended");
    }
}

pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

//! A store in a temporary folder, a source driven by hand, and an effect table.

use std::ops::Deref;

use bytes::Bytes;
use oncebox::message::Record;
use oncebox::source::Intake;
use oncebox::sqlite::SqliteStore;
use oncebox::testing::TemporarySqlite;
use oncebox::{Inbox, Message, Worker};
pub(crate) use oncebox_testkit::eventually;
use sqlx::SqliteConnection;

pub(crate) struct Fixture {
    pub(crate) store: SqliteStore,
    pub(crate) url: String,
    db: TemporarySqlite,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        let db = TemporarySqlite::new().await;
        let fixture = Self { store: db.store(), url: db.url().to_owned(), db };
        fixture.execute("CREATE TABLE effect (n INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT, key TEXT)").await;
        fixture
    }

    pub(crate) fn inbox(&self) -> Inbox<SqliteStore> {
        Inbox::new("test", self.store.clone()).unwrap()
    }

    pub(crate) async fn execute(&self, sql: &'static str) {
        sqlx::query(sql).execute(&mut self.db.connect().await).await.unwrap();
    }

    pub(crate) async fn texts(&self, sql: &'static str) -> Vec<String> {
        sqlx::query_scalar(sql).fetch_all(&mut self.db.connect().await).await.unwrap()
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

/// Partition 0 of `t`, driven as the Kafka thread would.
pub(crate) struct Partition(oncebox_testkit::Partition);

impl Deref for Partition {
    type Target = oncebox_testkit::Partition;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Partition {
    /// Opens it and starts it where a broker with everything still there would.
    pub(crate) async fn open(worker: &Worker<SqliteStore>) -> Self {
        Self::open_at(worker.intake(), None).await
    }

    /// The same, with an offset committed at the broker.
    pub(crate) async fn open_at(intake: Intake, committed: Option<i64>) -> Self {
        Self(oncebox_testkit::Partition::open(&intake, "t", committed).await)
    }

    /// Opens it and leaves it to the test where it begins.
    pub(crate) async fn acquire(worker: &Worker<SqliteStore>) -> Self {
        Self(oncebox_testkit::Partition::acquire(&worker.intake(), "t", None).await)
    }
}

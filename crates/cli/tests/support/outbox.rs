//! Applications that write events in transactions of their own, and what must have become of the events in the end.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use oncebox_core::outbox::{Emit, Event};
use oncebox_core::store::Store;
use oncebox_mongodb::MongoStore;
use sqlx::{MySqlConnection, PgConnection};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::daemon::Daemon;
use super::database::{Kind, Session};
use super::endpoint::Endpoint;
use super::eventually;
use super::records::Record;
use super::topic::Topic;
use super::world::World;

/// An event whose transaction has committed.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    pub(crate) id: String,
    pub(crate) key: String,
    /// Ascending per key.
    pub(crate) n: i64,
}

/// An application with keys of its own, so that the order of each key is the order in which it commits.
pub(crate) struct Writer {
    session: Session,
    topic: String,
    keys: Vec<String>,
    next: i64,
    pub(crate) written: Vec<Written>,
}

impl Writer {
    /// The same application with another topic.
    pub(crate) fn to(self, topic: &str) -> Self {
        Self { topic: topic.to_owned(), ..self }
    }

    /// Writes events in one transaction, for one key after the other.
    pub(crate) async fn write(&mut self, events: i64) {
        let written = self.emit(events, "COMMIT").await;
        self.written.extend(written);
    }

    /// The same in a transaction that is rolled back. Later events have the same numbers, but not the same ids.
    pub(crate) async fn roll_back(&mut self, events: i64) {
        self.emit(events, "ROLLBACK").await;
    }

    async fn emit(&mut self, events: i64, end: &'static str) -> Vec<Written> {
        let numbers: Vec<i64> = (self.next..self.next + events).collect();
        let key = |n: &i64| self.keys[usize::try_from(*n).expect("a number") % self.keys.len()].clone();
        let keys: Vec<String> = numbers.iter().map(key).collect();
        let ids = if let Session::Mongodb(store) = &self.session {
            emit_on_mongodb(store, &self.topic, &keys, &numbers, end == "COMMIT").await
        } else {
            self.session.execute("BEGIN").await;
            let ids = match &mut self.session {
                Session::Mysql(conn) => emit_on_mysql(conn, &self.topic, &keys, &numbers).await,
                Session::Postgres(conn) => emit_on_postgres(conn, &self.topic, &keys, &numbers).await,
                Session::Mongodb(_) => panic!("MongoDB speaks no SQL"),
            };
            self.session.execute(end).await;
            ids.expect("the events are written")
        };
        if end == "COMMIT" {
            self.next += events;
        }
        ids.into_iter().zip(keys).zip(numbers).map(|((id, key), n)| Written { id, key, n }).collect()
    }
}

async fn emit_on_postgres(
    conn: &mut PgConnection,
    topic: &str,
    keys: &[String],
    numbers: &[i64],
) -> sqlx::Result<Vec<String>> {
    sqlx::query_scalar(
        "SELECT CAST(oncebox_emit($1, key, json_build_object('n', n)) AS text) FROM (SELECT * FROM \
         unnest($2::text[], $3::bigint[]) WITH ORDINALITY AS e (key, n, nth) ORDER BY nth) AS e",
    )
    .bind(topic)
    .bind(keys)
    .bind(numbers)
    .fetch_all(conn)
    .await
}

async fn emit_on_mysql(
    conn: &mut MySqlConnection,
    topic: &str,
    keys: &[String],
    numbers: &[i64],
) -> sqlx::Result<Vec<String>> {
    let mut ids = Vec::with_capacity(keys.len());
    for (key, n) in keys.iter().zip(numbers) {
        let call = sqlx::query("CALL oncebox_emit(?, ?, JSON_OBJECT('n', ?), NULL, @id)");
        call.bind(topic).bind(key).bind(n).execute(&mut *conn).await?;
        ids.push(
            sqlx::query_scalar("SELECT CAST(@id AS CHAR CHARACTER SET utf8mb4)")
                .fetch_one(&mut *conn)
                .await?,
        );
    }
    Ok(ids)
}

/// No function on the server does it: applications in Rust have the library.
async fn emit_on_mongodb(
    store: &MongoStore,
    topic: &str,
    keys: &[String],
    numbers: &[i64],
    commit: bool,
) -> Vec<String> {
    let mut txn = store.transaction().await.expect("a transaction");
    let event = |(key, n): (&String, &i64)| {
        Event::to(topic).key(key).json(&serde_json::json!({ "n": n })).expect("a payload")
    };
    let events: Vec<Event> = keys.iter().zip(numbers).map(event).collect();
    txn.emit_all(&events).await.expect("the events are written");
    if commit {
        txn.commit().await.expect("the transaction commits");
    } else {
        store.rollback(txn).await;
    }
    events.iter().map(|event| event.id().to_string()).collect()
}

/// Applications at work, until they are told to stop.
pub(crate) struct Load {
    stop: CancellationToken,
    writers: JoinSet<Writer>,
}

impl Load {
    /// Stops them; returns everything they have committed.
    pub(crate) async fn end(mut self) -> Vec<Written> {
        self.stop.cancel();
        let mut written = Vec::new();
        while let Some(writer) = self.writers.join_next().await {
            written.extend(writer.expect("the application ends well").written);
        }
        written
    }
}

impl World {
    /// A database with our tables, and daemons that have nothing to do but to publish its events.
    pub(crate) async fn with_relay(partitions: i32) -> Self {
        Self::with_relay_on(Kind::Postgres, partitions).await
    }

    /// The same on another database.
    pub(crate) async fn with_relay_on(kind: Kind, partitions: i32) -> Self {
        let mut world = Self::new(kind, partitions).await;
        world.config.inboxes.clear();
        // Small batches, so that there are many to interrupt.
        for (name, value) in [("relay", "true"), ("lease", "\"2s\""), ("batch", "{ messages = 20 }")] {
            world.outbox(name, value);
        }
        world.oncebox(&["migrate"]).exits(0);
        world
    }

    /// Sets a key of `[outbox]` to a value, as it stands in the file.
    pub(crate) fn outbox(&mut self, name: &str, value: &str) {
        self.config.outbox.insert(name.to_owned(), value.to_owned());
    }

    /// An application that writes events to the topic of this world.
    pub(crate) async fn writer(&self, name: &str, keys: usize) -> Writer {
        Writer {
            session: self.db.connect().await,
            topic: self.topic.name.clone(),
            keys: (0..keys).map(|key| format!("{name}-{key}")).collect(),
            next: 0,
            written: Vec::new(),
        }
    }

    /// Applications that write all the time, in transactions of one to seven events. One in four is rolled back.
    pub(crate) async fn load(&self, writers: usize) -> Load {
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        for nth in 0..writers {
            let mut writer = self.writer(&format!("load-{nth}"), 7).await;
            let stop = stop.clone();
            tasks.spawn(async move {
                for turn in 0.. {
                    if stop.is_cancelled() {
                        break;
                    }
                    match turn % 4 {
                        3 => writer.roll_back(3).await,
                        _ => writer.write(turn % 7 + 1).await,
                    }
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                writer
            });
        }
        Load { stop, writers: tasks }
    }

    /// How many events wait in the outbox.
    pub(crate) async fn outbox_rows(&self) -> i64 {
        self.db.rows("oncebox_outbox").await
    }

    /// Waits until nothing is left in the outbox.
    pub(crate) async fn outbox_empties(&self) {
        eventually("the outbox is empty", async || self.outbox_rows().await == 0).await;
    }

    /// Waits until the topic has at least this many records.
    pub(crate) async fn topic_reaches(&self, records: i64) {
        eventually(&format!("{records} records"), async || self.topic_records() >= records).await;
    }

    pub(crate) fn topic_records(&self) -> i64 {
        self.topic.ends().iter().sum()
    }

    /// Waits until the daemon has read events and waits for Kafka to take them.
    pub(crate) async fn waits_for_kafka(&self, daemon: &Daemon) {
        eventually("the relay waits for Kafka", async || {
            let Some((_, health)) = daemon.health().await else { return false };
            let loops = health["loops"].as_array().cloned().unwrap_or_default();
            let busy = |l: &serde_json::Value| {
                (l["name"].as_str(), l["detail"].as_str()) == (Some("relay"), Some("*"))
                    && l["last_success_age_seconds"].as_f64().is_some_and(|age| age > 0.5)
            };
            loops.iter().any(busy)
        })
        .await;
        assert!(self.outbox_rows().await > 0);
    }

    /// Nothing is lost, nothing else is there, the first copies of each key are in its order, and all copies of an event are
    /// the same. Returns how many copies there are beyond the first.
    #[track_caller]
    pub(crate) fn has_published(&self, written: &[Written]) -> usize {
        self.topic.has_published(written)
    }
}

impl Topic {
    /// See [`World::has_published`].
    #[track_caller]
    pub(crate) fn has_published(&self, written: &[Written]) -> usize {
        copies(&self.read(), written)
    }
}

impl Endpoint {
    /// Each of these events has come, no others, and those of each key came in their order for the first time.
    #[track_caller]
    pub(crate) fn has_received(&self, written: &[Written]) {
        let wanted: HashMap<&str, &Written> =
            written.iter().map(|event| (event.id.as_str(), event)).collect();
        let requests = self.requests();
        let mut seen: HashSet<&str> = HashSet::new();
        let mut last_of_key: HashMap<&str, i64> = HashMap::new();
        for request in requests.iter().filter(|request| seen.insert(request.id())) {
            let event = wanted.get(request.id()).unwrap_or_else(|| panic!("nobody wrote it: {request:#?}"));
            let before = last_of_key.insert(&event.key, event.n);
            assert!(before.is_none_or(|before| before < event.n), "{event:?} comes after {before:?}");
        }
        let lost: Vec<&Written> = written.iter().filter(|event| !seen.contains(event.id.as_str())).collect();
        assert!(lost.is_empty(), "{} of {} events are lost: {:?}", lost.len(), written.len(), lost.first());
    }
}

#[track_caller]
fn copies(records: &[Record], written: &[Written]) -> usize {
    let wanted: HashMap<&str, &Written> = written.iter().map(|event| (event.id.as_str(), event)).collect();
    assert_eq!(wanted.len(), written.len(), "each event has an id of its own");
    let mut first: HashMap<&str, &Record> = HashMap::new();
    let mut last_of_key: HashMap<&str, i64> = HashMap::new();
    for record in records {
        let id = record.id();
        let event =
            wanted.get(id).unwrap_or_else(|| panic!("published, but nobody has committed it: {record:?}"));
        if let Some(first) = first.get(id) {
            assert_eq!(*first, record, "two copies of one event differ");
            continue;
        }
        first.insert(id, record);
        assert_eq!(record.key.as_deref(), Some(event.key.as_str()), "{record:?}");
        let payload: serde_json::Value =
            serde_json::from_str(record.payload.as_deref().unwrap_or_default()).expect("JSON");
        assert_eq!(payload, serde_json::json!({ "n": event.n }));
        let before = last_of_key.insert(&event.key, event.n);
        assert!(before.is_none_or(|before| before < event.n), "{event:?} comes after {before:?}");
    }
    let published: HashSet<&str> = first.into_keys().collect();
    let lost: Vec<&Written> = written.iter().filter(|event| !published.contains(event.id.as_str())).collect();
    assert!(lost.is_empty(), "{} of {} events are lost: {:?}", lost.len(), written.len(), lost.first());
    records.len() - written.len()
}

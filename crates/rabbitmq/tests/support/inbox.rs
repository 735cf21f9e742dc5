//! An inbox on SQLite, whose handler writes down what it has seen and can be held up.

use std::sync::Arc;
use std::time::Duration;

use oncebox::monitor::LoopReport;
use oncebox::sqlite::SqliteStore;
use oncebox::store::{PositionStatus, Status};
use oncebox::{Backoff, BatchBounds, Inbox, Message, Monitor, RetryPolicy, Selector, Worker};
use oncebox_rabbitmq::RabbitmqSource;
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{SqliteConnection, SqlitePool};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::broker::Broker;
use super::eventually;

pub struct Scene {
    pub store: SqliteStore,
    pub monitor: Monitor,
    pool: SqlitePool,
    gate: Arc<watch::Sender<bool>>,
    entered: Arc<watch::Sender<usize>>,
    _folder: TempDir,
}

/// A worker that runs.
pub struct Running {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    pub async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

impl Scene {
    pub async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("test.sqlite").display());
        let store = SqliteStore::connect(&url).await.unwrap();
        store.migrate().await.unwrap();
        let pool = SqlitePoolOptions::new().max_connections(1).connect(&url).await.unwrap();
        let table =
            "CREATE TABLE effect (n INTEGER PRIMARY KEY, id TEXT, key TEXT, body TEXT, redelivered INT)";
        sqlx::query(table).execute(&pool).await.unwrap();
        let (gate, entered) = (Arc::new(watch::channel(true).0), Arc::new(watch::channel(0).0));
        Self { store, monitor: Monitor::default(), pool, gate, entered, _folder: folder }
    }

    pub fn inbox(&self) -> Inbox<SqliteStore> {
        let retry = RetryPolicy { attempts: 3, backoff: Backoff::new(Duration::ZERO, Duration::ZERO) };
        let inbox = Inbox::new("test", self.store.clone()).unwrap().retry(retry);
        inbox.id(Selector::Property("message_id".to_owned())).monitor(self.monitor.clone())
    }

    pub fn worker(&self) -> Worker<SqliteStore> {
        self.worker_of(self.inbox())
    }

    /// With a handler that writes an effect, and waits while the gate is closed.
    pub fn worker_of(&self, inbox: Inbox<SqliteStore>) -> Worker<SqliteStore> {
        let (gate, entered) = (Arc::clone(&self.gate), Arc::clone(&self.entered));
        inbox.each(async move |tx: &mut SqliteConnection, message: &Message| {
            entered.send_modify(|count| *count += 1);
            gate.subscribe().wait_for(|open| *open).await.ok();
            let text = |bytes: Option<&[u8]>| bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            sqlx::query("INSERT INTO effect (id, key, body, redelivered) VALUES (?, ?, ?, ?)")
                .bind(message.id().as_str())
                .bind(text(message.key()))
                .bind(text(message.payload()))
                .bind(message.record().redelivered)
                .execute(tx)
                .await?;
            Ok(())
        })
    }

    pub fn start(&self, source: RabbitmqSource) -> Running {
        self.start_worker(self.worker(), source)
    }

    pub fn start_worker(&self, worker: Worker<SqliteStore>, source: RabbitmqSource) -> Running {
        let stop = CancellationToken::new();
        let task = tokio::spawn(worker.serve(source, stop.clone()));
        Running { stop, task }
    }

    /// Stops it when everything is acknowledged. A broker tells only how many messages wait, not how many are out; those that are
    /// out wait again when it has stopped.
    pub async fn drain(&self, mut running: Running, broker: &Broker, source: &RabbitmqSource) {
        for _ in 0..20 {
            eventually("the queue is empty", async || broker.count(source.queue()).await == 0).await;
            running.stop().await;
            if broker.count(source.queue()).await == 0 {
                return;
            }
            running = self.start(source.clone());
        }
        panic!("{} is not drained", source.queue());
    }

    /// Handlers wait from now on.
    pub fn close_gate(&self) {
        self.gate.send_replace(false);
    }

    pub fn open_gate(&self) {
        self.gate.send_replace(true);
    }

    /// Waits until a handler has been called so often.
    pub async fn entered(&self, times: usize) {
        self.entered.subscribe().wait_for(|count| *count >= times).await.unwrap();
    }

    /// The ids of all effects, in their order.
    pub async fn effects(&self) -> Vec<String> {
        sqlx::query_scalar("SELECT id FROM effect ORDER BY n").fetch_all(&self.pool).await.unwrap()
    }

    /// Id, key, payload and whether it was delivered before, of all effects.
    pub async fn details(&self) -> Vec<(String, Option<String>, Option<String>, bool)> {
        let all = "SELECT id, key, body, redelivered FROM effect ORDER BY n";
        sqlx::query_as(all).fetch_all(&self.pool).await.unwrap()
    }

    pub async fn effects_become(&self, count: usize) {
        eventually(&format!("{count} effects"), async || self.effects().await.len() >= count).await;
    }

    /// How many messages were applied and how many were duplicates, as written down.
    pub async fn counts(&self) -> (u64, u64) {
        let positions = self.store.status(1).await.unwrap().positions;
        let sum = |(applied, duplicates), position: &PositionStatus| {
            (applied + position.applied, duplicates + position.duplicates.total())
        };
        positions.iter().fold((0, 0), sum)
    }

    /// Until when the queue is caught up, as written down.
    pub async fn caught_up_ms(&self) -> Option<i64> {
        self.store.status(1).await.unwrap().positions.first()?.caught_up_ms
    }

    /// Waits until the source has looked at its queue so often.
    pub async fn looked_at(&self, times: usize) {
        let (mut looks, mut last) = (0, Duration::ZERO);
        eventually("the queue is looked at", async || {
            let age = |report: LoopReport| (report.name == "rabbitmq:test").then_some(report.age);
            let age = self.monitor.report().into_iter().find_map(age).unwrap_or_default();
            looks += usize::from(age < last);
            last = age;
            looks >= times
        })
        .await;
    }

    /// What goes wrong at the moment.
    pub fn trouble(&self) -> String {
        self.monitor.report().into_iter().filter_map(|report| report.error).collect::<Vec<_>>().join("; ")
    }
}

/// Batches of this many.
pub fn batches_of(messages: usize) -> BatchBounds {
    BatchBounds { messages, bytes: 4 * 1024 * 1024 }
}

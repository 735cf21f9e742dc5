//! A store in a temporary folder, sinks that take notes, and relays that run until they are stopped.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use oncebox::sink::{ByEvent, OutgoingEvent, SinkFn};
use oncebox::sqlite::SqliteStore;
use oncebox::store::{EventFilter, EventState, OutboxAdmin, OutboxEntry};
use oncebox::testing::TemporarySqlite;
use oncebox::{Backoff, Emit, Event, Relay, RetryPolicy};
pub(crate) use oncebox_testkit::eventually;
use sqlx::{Connection, SqliteConnection};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) struct Fixture {
    pub(crate) store: SqliteStore,
    db: TemporarySqlite,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        let db = TemporarySqlite::new().await;
        Self { store: db.store(), db }
    }

    pub(crate) async fn connect(&self) -> SqliteConnection {
        let mut conn = self.db.connect().await;
        sqlx::query("PRAGMA busy_timeout = 20000").execute(&mut conn).await.unwrap();
        conn
    }

    /// Commits events `key:number` to a topic.
    pub(crate) async fn emit(&self, topic: &str, keys: &[&str], numbers: std::ops::Range<u32>) {
        let mut conn = self.connect().await;
        let mut tx = conn.begin_with("BEGIN IMMEDIATE").await.unwrap();
        for number in numbers {
            for key in keys {
                let event = Event::to(topic).key(key).bytes(format!("{key}:{number}"));
                tx.emit(event).await.unwrap();
            }
        }
        tx.commit().await.unwrap();
    }

    pub(crate) async fn events(&self, state: Option<EventState>) -> Vec<OutboxEntry> {
        let filter = EventFilter { state, limit: 10_000, ..EventFilter::default() };
        self.store.events(&filter).await.unwrap()
    }

    /// Waits until the outbox holds nothing, or nothing but what was parked or published.
    pub(crate) async fn drained(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let entries = self.events(None).await;
            let waiting =
                |entry: &&OutboxEntry| matches!(entry.state, EventState::Pending | EventState::Held);
            let Some(first) = entries.iter().find(waiting) else { return };
            assert!(Instant::now() < deadline, "still waits: {first:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) fn relay(&self) -> Relay<SqliteStore> {
        // A short lease, so that tests see leases end.
        Relay::new(self.store.clone()).lease(Duration::from_secs(3))
    }
}

/// A relay at work.
pub(crate) struct Running {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    pub(crate) fn start(relay: Relay<SqliteStore>) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(relay.serve(stop.clone()));
        Self { stop, task }
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }

    /// Ends it at once, as a crash would: leases stay behind.
    pub(crate) fn crash(self) {
        self.task.abort();
    }
}

/// What a sink was given, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notes(Arc<Mutex<Vec<OutgoingEvent>>>);

impl Notes {
    pub(crate) fn take(&self, event: &OutgoingEvent) {
        self.0.lock().unwrap().push(event.clone());
    }

    pub(crate) fn all(&self) -> Vec<OutgoingEvent> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn payloads(&self) -> Vec<String> {
        self.all().iter().map(payload).collect()
    }

    /// The numbers of each key, first occurrences only.
    pub(crate) fn first_numbers(&self) -> HashMap<String, Vec<u32>> {
        let mut numbers: HashMap<String, Vec<u32>> = HashMap::new();
        for payload in self.payloads() {
            let (key, number) = payload.split_once(':').unwrap();
            let number = number.parse().unwrap();
            let of_key = numbers.entry(key.to_owned()).or_default();
            if !of_key.contains(&number) {
                of_key.push(number);
            }
        }
        numbers
    }
}

pub(crate) fn payload(event: &OutgoingEvent) -> String {
    String::from_utf8(event.payload().unwrap().to_vec()).unwrap()
}

/// A sink that asks `answer` about each event before it takes a note of it.
pub(crate) fn sink<A>(
    notes: &Notes,
    answer: A,
) -> ByEvent<SinkFn<impl Fn(OutgoingEvent) -> std::future::Ready<oncebox::Result> + Send + Sync + 'static>>
where
    A: Fn(&OutgoingEvent) -> oncebox::Result + Send + Sync + 'static,
{
    let notes = notes.clone();
    let quick = RetryPolicy {
        attempts: u32::MAX,
        backoff: Backoff::new(Duration::from_millis(20), Duration::from_millis(200)),
    };
    ByEvent::from_fn(move |event: OutgoingEvent| {
        let answered = answer(&event);
        if answered.is_ok() {
            notes.take(&event);
        }
        std::future::ready(answered)
    })
    .retry(quick)
}

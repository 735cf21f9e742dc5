//! What is wrong with the database is not blamed on the messages, through the engine, with a handler in SQL.

use std::time::{Duration, Instant};

use bytes::Bytes;
use oncebox_core::backoff::Backoff;
use oncebox_core::error::BoxError;
use oncebox_core::inbox::{Inbox, RetryPolicy, StartPolicy, Worker};
use oncebox_core::message::Record;
use oncebox_core::monitor::Monitor;
use oncebox_core::source::{Known, start_at};
use oncebox_core::source::{OpenStream, Stream};
use oncebox_core::store::{DeadFilter, DeadLetters};
use oncebox_sql::SqlInbox;
use oncebox_sqlite::SqliteStore;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Executor, SqliteConnection};

type TestResult = Result<(), BoxError>;

const MESSAGES: i64 = 300;

struct File {
    store: SqliteStore,
    directory: tempfile::TempDir,
}

impl File {
    async fn new() -> Result<Self, BoxError> {
        let directory = tempfile::tempdir()?;
        let store = SqliteStore::connect(&format!("sqlite://{}/app.db", directory.path().display())).await?;
        store.migrate().await?;
        let file = Self { store, directory };
        file.beside().await?.execute("CREATE TABLE ledger (id TEXT PRIMARY KEY, qty INTEGER)").await?;
        Ok(file)
    }

    async fn beside(&self) -> sqlx::Result<SqliteConnection> {
        let options = SqliteConnectOptions::new().filename(self.directory.path().join("app.db"));
        options.busy_timeout(Duration::from_secs(30)).connect().await
    }

    fn inbox(&self, monitor: &Monitor) -> Result<Inbox<SqliteStore>, BoxError> {
        let quick = RetryPolicy {
            attempts: 2,
            backoff: Backoff::new(Duration::from_millis(1), Duration::from_millis(5)),
        };
        Ok(Inbox::new("stock", self.store.clone())?.retry(quick).monitor(monitor.clone()))
    }

    async fn letters(&self) -> Result<usize, BoxError> {
        let all = DeadFilter { limit: 1000, ..DeadFilter::default() };
        Ok(self.store.dead_letters(&all).await?.len())
    }
}

async fn open(worker: &Worker<SqliteStore>) -> Result<Stream, BoxError> {
    let stream = worker.intake().open(OpenStream::new("orders", 0));
    until("the position is acquired", || stream.acquired().is_some()).await?;
    let stored = stream.acquired().ok_or("it was acquired")?;
    let known = Known { stored, committed: None, log: None, low: 0, high: i64::MAX };
    stream.start(start_at(known, StartPolicy::Earliest)?);
    Ok(stream)
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) -> TestResult {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        if Instant::now() > deadline {
            return Err(format!("never: {what}").into());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// The table is renamed away in the middle, and comes back.
async fn outlives_a_missing_table(file: &File, worker: Worker<SqliteStore>, monitor: &Monitor) -> TestResult {
    let stream = open(&worker).await?;
    let push = |offsets: std::ops::Range<i64>| {
        for offset in offsets {
            let mut record = Record::at("orders", 0, offset);
            record.key = Some(Bytes::from(format!("m{offset}")));
            record.payload = Some(Bytes::from_static(b"{\"qty\":1}"));
            assert!(stream.push(record));
        }
    };
    push(0..10);
    until("the first ones are applied", || stream.settled() == Some(10)).await?;
    file.beside().await?.execute("ALTER TABLE ledger RENAME TO elsewhere").await?;
    push(10..MESSAGES);
    let red = || monitor.report().iter().any(|entry| entry.error.is_some() || !entry.problems.is_empty());
    until("the lane is red", red).await?;
    // Many times as long as a message of its own fault would live.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!((file.letters().await?, stream.settled()), (0, Some(10)));
    assert_eq!(stream.stopped(), None, "it stands still and is not given up");

    file.beside().await?.execute("ALTER TABLE elsewhere RENAME TO ledger").await?;
    until("all are applied", || stream.settled() == Some(MESSAGES)).await?;
    let applied: i64 =
        sqlx::query_scalar("SELECT count(*) FROM ledger").fetch_one(&mut file.beside().await?).await?;
    assert_eq!((applied, file.letters().await?), (MESSAGES, 0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_table_parks_nothing_and_all_is_applied_when_it_is_back() -> TestResult {
    let (file, monitor) = (File::new().await?, Monitor::default());
    let sql = "INSERT INTO ledger VALUES (:id, :payload->>'qty')";
    let worker = file.inbox(&monitor)?.sql_each([sql]).await?;
    outlives_a_missing_table(&file, worker, &monitor).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_for_a_handler_of_whole_batches() -> TestResult {
    let (file, monitor) = (File::new().await?, Monitor::default());
    let sql = "INSERT INTO ledger SELECT id, payload->>'qty' FROM messages";
    let worker = file.inbox(&monitor)?.sql_batch([sql]).await?;
    outlives_a_missing_table(&file, worker, &monitor).await
}

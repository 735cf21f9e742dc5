//! Starts without progress, and the message that ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use oncebox::settings::{Identity, Turn};
use oncebox::sqlite::SqliteStore;
use oncebox::store::Positions;
use oncebox::{Backoff, BatchBounds, Inbox, Message, OnFailure, RetryPolicy, Selector, Settings, Worker};
use sqlx::SqliteConnection;

use crate::fixture::{Fixture, Partition, eventually, record, record_effect};

fn position() -> oncebox::store::PositionKey {
    let consumer = oncebox::message::ConsumerName::new("test").unwrap();
    oncebox::store::PositionKey { consumer, topic: "t".into(), partition: 0 }
}

/// What a process leaves behind that dies before it commits anything: a start.
async fn die_without_progress(fixture: &Fixture) {
    fixture.store.acquire(&position()).await.unwrap();
}

/// What it leaves behind that dies while it runs this offset alone.
async fn die_at(fixture: &Fixture, offset: i64) {
    let owner = fixture.store.acquire(&position()).await.unwrap();
    fixture.store.record_attempt(&owner, offset).await.unwrap();
}

fn worker(fixture: &Fixture) -> Worker<SqliteStore> {
    fixture.inbox().id(Selector::Header("id".into())).each(record_effect)
}

#[tokio::test(flavor = "multi_thread")]
async fn innocent_messages_survive_many_kills() {
    let fixture = Fixture::new().await;
    for _ in 0..10 {
        die_without_progress(&fixture).await;
    }
    let partition = Partition::open(&worker(&fixture)).await;
    partition.push((0..5).map(|i| record(i, &format!("m{i}"), "k")));
    partition.settled(5).await;
    assert_eq!(fixture.effects().await.len(), 5);
    assert_eq!(fixture.dead().await, Vec::<String>::new());
    let left = fixture.texts("SELECT CAST(COUNT(*) AS TEXT) FROM oncebox_attempt").await;
    assert_eq!(left, ["0"], "attempts are settled with their messages");
    let starts = fixture.texts("SELECT CAST(starts AS TEXT) FROM oncebox_position").await;
    assert_eq!(starts, ["0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_message_that_ends_the_process_is_parked_and_the_rest_goes_on() {
    let fixture = Fixture::new().await;
    for _ in 0..3 {
        die_at(&fixture, 1).await;
    }
    let partition = Partition::open(&worker(&fixture)).await;
    partition.push((0..4).map(|i| record(i, &format!("m{i}"), "k")));
    partition.settled(4).await;
    assert_eq!(fixture.effects().await, ["m0", "m2", "m3"]);
    assert_eq!(fixture.dead().await, ["m1"]);
    assert!(fixture.errors().await[0].contains("the process ended 3 times"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orderly_stop_is_no_crash() {
    let fixture = Fixture::new().await;
    for _ in 0..5 {
        Partition::open(&worker(&fixture)).await.close().await;
    }
    assert_eq!(fixture.texts("SELECT CAST(starts AS TEXT) FROM oncebox_position").await, ["0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_halt_stays_a_halt_however_often_the_process_is_restarted() {
    let fixture = Fixture::new().await;
    let quick = RetryPolicy { attempts: 2, backoff: Backoff::new(Duration::ZERO, Duration::ZERO) };
    for _ in 0..12 {
        let inbox =
            fixture.inbox().id(Selector::Header("id".into())).on_failure(OnFailure::Halt).retry(quick);
        let worker = inbox.each(async |_: &mut SqliteConnection, _: &Message| Err("cannot".into()));
        let partition = Partition::open(&worker).await;
        partition.push([record(0, "bad", "k")]);
        eventually("it halts", || partition.stream.stopped().is_some()).await;
        // Killed, not stopped in good order: only what is in the database counts.
        eventually_starts(&fixture, "0").await;
        assert_eq!(fixture.dead().await, Vec::<String>::new());
    }
    assert_eq!(left_attempts(&fixture).await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_ends_the_process_halts_where_nothing_may_be_parked() {
    let fixture = Fixture::new().await;
    for _ in 0..3 {
        die_at(&fixture, 0).await;
    }
    let halting = || {
        let inbox = fixture.inbox().id(Selector::Header("id".into())).on_failure(OnFailure::Halt);
        inbox.each(record_effect)
    };
    for _ in 0..3 {
        let partition = Partition::open(&halting()).await;
        partition.push([record(0, "bad", "k")]);
        eventually("it halts", || partition.stream.stopped().is_some()).await;
        let reason = partition.stream.stopped().unwrap().to_owned();
        assert!(reason.contains("the process ended 3 times") && reason.contains("position move"), "{reason}");
        assert_eq!((fixture.dead().await, fixture.effects().await), (vec![], vec![]));
        partition.close().await;
    }
    // The way out that it names.
    fixture.store.move_position(&position(), 0, None).await.unwrap();
    let partition = Partition::open(&halting()).await;
    partition.push([record(0, "bad", "k")]);
    partition.settled(1).await;
    assert_eq!(fixture.effects().await, ["bad"]);
    assert_eq!(left_attempts(&fixture).await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orderly_stop_while_a_suspect_is_retried_is_no_crash() {
    let fixture = Fixture::new().await;
    for _ in 0..4 {
        die_without_progress(&fixture).await;
    }
    let slow = RetryPolicy { attempts: 9, backoff: Backoff::new(Duration::from_secs(600), Duration::MAX) };
    for _ in 0..6 {
        let calls = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&calls);
        let inbox = fixture.inbox().id(Selector::Header("id".into())).retry(slow);
        let worker = inbox.each(async move |_: &mut SqliteConnection, _: &Message| {
            counted.fetch_add(1, Ordering::SeqCst);
            Err("not yet".into())
        });
        let partition = Partition::open(&worker).await;
        partition.push([record(0, "m", "k")]);
        eventually("it was tried", || calls.load(Ordering::SeqCst) == 1).await;
        partition.close().await;
        assert_eq!(left_attempts(&fixture).await, "0");
        die_without_progress(&fixture).await;
    }
    let partition = Partition::open(&worker(&fixture)).await;
    partition.push([record(0, "m", "k")]);
    partition.settled(1).await;
    assert_eq!((fixture.effects().await, fixture.dead().await), (vec!["m".to_owned()], vec![]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_suspect_runs_alone_in_the_process() {
    let fixture = Fixture::new().await;
    for _ in 0..4 {
        die_without_progress(&fixture).await;
    }
    let turn = Turn::new();
    let running = Arc::new(AtomicU32::new(0));
    let company = Arc::new(AtomicU32::new(0));
    // `test` has the suspects; `neighbour` is another inbox of the same process.
    let handler = |suspect: bool| {
        let (running, company) = (Arc::clone(&running), Arc::clone(&company));
        async move |tx: &mut SqliteConnection, message: &Message| {
            let others = running.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(2)).await;
            let left = running.fetch_sub(1, Ordering::SeqCst) - 1;
            if suspect {
                company.fetch_max(others.max(left), Ordering::SeqCst);
            }
            record_effect(tx, message).await
        }
    };
    let mut settings = Settings::default();
    settings.identity = Identity::new(Selector::Header("id".into()), None);
    settings.turn = turn;
    settings.batch = BatchBounds { messages: 5, bytes: 1 << 20 };
    let suspects = fixture.inbox().settings(settings.clone()).each(handler(true));
    let neighbour = Inbox::new("neighbour", fixture.store.clone()).unwrap().settings(settings);
    let neighbour = neighbour.each(handler(false));
    let (one, other) = (Partition::open(&suspects).await, Partition::open(&neighbour).await);
    for i in 0..60 {
        other.push([record(i, &format!("n{i}"), "k")]);
        if i < 5 {
            one.push([record(i, &format!("m{i}"), "k")]);
        }
    }
    one.settled(5).await;
    other.settled(60).await;
    assert_eq!(company.load(Ordering::SeqCst), 0, "nobody ran beside a suspect");
}

async fn eventually_starts(fixture: &Fixture, expected: &str) {
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while fixture.texts("SELECT CAST(starts AS TEXT) FROM oncebox_position").await != [expected] {
        assert!(std::time::Instant::now() < deadline, "never {expected} starts");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn left_attempts(fixture: &Fixture) -> String {
    fixture.texts("SELECT CAST(COUNT(*) AS TEXT) FROM oncebox_attempt").await.remove(0)
}

//! A failing message does not hurt its neighbours.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use oncebox::Selector;
use oncebox::sqlite::SqliteStore;
use oncebox::{Backoff, BatchBounds, Inbox, Message, OnFailure, RetryPolicy, reject, retry_after};
use sqlx::SqliteConnection;

use crate::fixture::{Fixture, Partition, eventually, record, record_effect};

fn quick() -> RetryPolicy {
    RetryPolicy { attempts: 3, backoff: Backoff::new(Duration::from_millis(1), Duration::from_millis(5)) }
}

fn inbox(fixture: &Fixture) -> Inbox<SqliteStore> {
    fixture.inbox().id(Selector::Header("id".into())).retry(quick())
}

/// Fails for ids that begin with `bad`, after having written: the write must not stay.
async fn picky(tx: &mut SqliteConnection, message: &Message) -> oncebox::Result {
    record_effect(tx, message).await?;
    if message.id().as_str().starts_with("bad") {
        return Err("cannot".into());
    }
    Ok(())
}

async fn picky_batch(tx: &mut SqliteConnection, batch: &[Message]) -> oncebox::Result {
    for message in batch {
        picky(tx, message).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn poison_among_good_ones_is_parked_and_the_good_ones_are_applied_in_order() {
    let fixture = Fixture::new().await;
    let worker = inbox(&fixture).each(picky);
    let partition = Partition::open(&worker).await;
    partition
        .push((0..40).map(|i| record(i, &if i == 17 { "bad".to_owned() } else { format!("m{i}") }, "k")));
    partition.settled(40).await;
    let good: Vec<String> = (0..40).filter(|i| *i != 17).map(|i| format!("m{i}")).collect();
    assert_eq!(fixture.effects().await, good);
    assert_eq!(fixture.dead().await, ["bad"]);
    assert_eq!(fixture.texts("SELECT attempts || error FROM oncebox_dead").await, ["3cannot"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_handler_that_tells_no_culprit_is_halved() {
    let fixture = Fixture::new().await;
    let worker = inbox(&fixture).batch(picky_batch);
    let partition = Partition::open(&worker).await;
    partition.push(
        (0..64).map(|i| record(i, &if i % 31 == 5 { format!("bad{i}") } else { format!("m{i}") }, "k")),
    );
    partition.settled(64).await;
    assert_eq!(fixture.effects().await.len(), 62);
    assert_eq!(fixture.dead().await, ["bad5", "bad36"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panicking_handler_takes_only_its_message_with_it() {
    let fixture = Fixture::new().await;
    let worker = inbox(&fixture).each(async |tx: &mut SqliteConnection, message: &Message| {
        record_effect(tx, message).await?;
        assert!(message.id().as_str() != "bad", "boom");
        Ok(())
    });
    let partition = Partition::open(&worker).await;
    partition.push([record(0, "a", "k"), record(1, "bad", "k"), record(2, "b", "k")]);
    partition.settled(3).await;
    assert_eq!(fixture.effects().await, ["a", "b"]);
    assert!(fixture.errors().await[0].contains("boom"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_message_is_not_tried_again_and_a_retried_one_is() {
    let fixture = Fixture::new().await;
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let worker = inbox(&fixture).each(async move |tx: &mut SqliteConnection, message: &Message| {
        match (message.id().as_str(), counted.fetch_add(1, Ordering::SeqCst)) {
            ("never", _) => Err(reject("no such article")),
            ("later", call) if call < 3 => Err(retry_after(Duration::from_millis(1), "not yet")),
            _ => record_effect(tx, message).await,
        }
    });
    let partition = Partition::open(&worker).await;
    partition.push([record(0, "never", "k")]);
    partition.settled(1).await;
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    partition.push([record(1, "later", "k")]);
    partition.settled(2).await;
    assert_eq!(fixture.effects().await, ["later"]);
    assert_eq!(fixture.errors().await, ["no such article"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn park_key_parks_the_later_messages_of_that_key_and_only_those() {
    let fixture = Fixture::new().await;
    let worker = inbox(&fixture).on_failure(OnFailure::ParkKey).each(picky);
    let partition = Partition::open(&worker).await;
    partition.push([
        record(0, "a1", "a"),
        record(1, "bad", "a"),
        record(2, "b1", "b"),
        record(3, "a2", "a"),
        record(4, "b2", "b"),
    ]);
    partition.settled(5).await;
    partition.push([record(5, "a3", "a"), record(6, "b3", "b")]);
    partition.settled(7).await;
    assert_eq!(fixture.effects().await, ["a1", "b1", "b2", "b3"]);
    assert_eq!(fixture.dead().await, ["bad", "a2", "a3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn halt_stops_at_the_message_and_a_restart_goes_on_there() {
    let fixture = Fixture::new().await;
    let worker = inbox(&fixture).on_failure(OnFailure::Halt).each(picky);
    let partition = Partition::open(&worker).await;
    partition.push([record(0, "a", "k"), record(1, "bad", "k"), record(2, "b", "k")]);
    eventually("the partition stands still", || partition.stream.stopped().is_some()).await;
    let reason = partition.stream.stopped().unwrap().to_owned();
    assert!(reason.contains("bad at t/0/1") && reason.contains("cannot"), "{reason}");
    assert_eq!(fixture.effects().await, ["a"]);
    assert_eq!(fixture.dead().await, Vec::<String>::new());
    partition.close().await;

    let mended = inbox(&fixture).each(record_effect);
    let partition = Partition::open(&mended).await;
    partition.push([record(1, "bad", "k"), record(2, "b", "k")]);
    partition.settled(3).await;
    assert_eq!(fixture.effects().await, ["a", "bad", "b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_in_the_way_is_tried_again() {
    let fixture = Fixture::new().await;
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    // A real busy answer, from a second writer that finds the lock held.
    let url = fixture.url.clone();
    let worker = inbox(&fixture).each(async move |tx: &mut SqliteConnection, message: &Message| {
        if counted.fetch_add(1, Ordering::SeqCst) < 2 {
            busy(&url).await?;
        }
        record_effect(tx, message).await
    });
    let partition = Partition::open(&worker).await;
    partition.push([record(0, "a", "k")]);
    partition.settled(1).await;
    assert_eq!(fixture.effects().await, ["a"]);
    assert_eq!(fixture.dead().await, Vec::<String>::new());
    assert_eq!(calls.load(Ordering::SeqCst), 3);
}

/// A second writer that does not wait: SQLite answers SQLITE_BUSY while our transaction is open.
async fn busy(url: &str) -> oncebox::Result {
    use sqlx::ConnectOptions;
    let options: sqlx::sqlite::SqliteConnectOptions = url.parse()?;
    let mut other = options.busy_timeout(Duration::ZERO).connect().await?;
    sqlx::query("BEGIN IMMEDIATE").execute(&mut other).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn small_batches_and_failures_keep_the_order_of_a_key() {
    let fixture = Fixture::new().await;
    let worker =
        inbox(&fixture).batch_bounds(BatchBounds { messages: 7, bytes: 1 << 20 }).lanes(3).each(picky);
    let partition = Partition::open(&worker).await;
    partition.push((0..200).map(|i| {
        let id = if i % 23 == 3 { format!("bad{i}") } else { format!("{i}") };
        record(i, &id, &format!("k{}", i % 5))
    }));
    partition.settled(200).await;
    let rows = fixture.texts("SELECT key || ' ' || id FROM effect ORDER BY n").await;
    for key in 0..5 {
        let of_key: Vec<i64> = rows
            .iter()
            .filter_map(|row| row.strip_prefix(&format!("k{key} ")).and_then(|id| id.parse().ok()))
            .collect();
        assert!(of_key.is_sorted(), "key {key}: {of_key:?}");
    }
    assert_eq!(rows.len() + fixture.dead().await.len(), 200);
}

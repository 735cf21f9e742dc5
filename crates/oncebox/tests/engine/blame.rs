//! Whose fault is it? The message's, the environment's, or nobody's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use oncebox::Selector;
use oncebox::sqlite::SqliteStore;
use oncebox::store::{Adopt, ErrorClass, StoreError};
use oncebox::{Backoff, BatchBounds, Inbox, Message, Monitor, OnFailure, RetryPolicy};
use sqlx::SqliteConnection;

use crate::fixture::{Fixture, Partition, eventually, record, record_effect};

fn inbox(fixture: &Fixture) -> Inbox<SqliteStore> {
    let quick = RetryPolicy {
        attempts: 3,
        backoff: Backoff::new(Duration::from_millis(1), Duration::from_millis(5)),
    };
    fixture.inbox().id(Selector::Header("id".into())).retry(quick)
}

/// An error as a store makes it of its database's code.
fn of_class(class: ErrorClass) -> oncebox::BoxError {
    StoreError::new(class, "deducting", "the database said so").into()
}

fn red(monitor: &Monitor) -> bool {
    monitor.report().iter().any(|report| !report.problems.is_empty())
}

/// Fails every message with an error of this class until it is mended.
struct Broken {
    class: ErrorClass,
    mended: Arc<AtomicBool>,
}

impl oncebox::Handler<SqliteStore> for Broken {
    async fn handle(&self, tx: &mut SqliteConnection, message: &Message) -> oncebox::Result {
        record_effect(tx, message).await?;
        if self.mended.load(Ordering::SeqCst) { Ok(()) } else { Err(of_class(self.class)) }
    }
}

async fn nothing_is_parked_and_it_heals(class: ErrorClass, on_failure: OnFailure) {
    let fixture = Fixture::new().await;
    let (monitor, mended) = (Monitor::default(), Arc::new(AtomicBool::new(false)));
    let handler = Broken { class, mended: Arc::clone(&mended) };
    let worker = inbox(&fixture).on_failure(on_failure).monitor(monitor.clone()).with(handler);
    let partition = Partition::open(&worker).await;
    partition.push((0..30).map(|i| record(i, &format!("m{i}"), &format!("k{i}"))));
    eventually("it is red", || red(&monitor)).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(fixture.dead().await, Vec::<String>::new());
    assert_eq!(partition.stream.stopped(), None);

    mended.store(true, Ordering::SeqCst);
    partition.settled(30).await;
    assert_eq!(fixture.effects().await, (0..30).map(|i| format!("m{i}")).collect::<Vec<_>>());
    assert_eq!(fixture.dead().await, Vec::<String>::new());
    assert!(!red(&monitor), "it is green again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_environment_parks_nothing_and_heals() {
    nothing_is_parked_and_it_heals(ErrorClass::Environment, OnFailure::Park).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_environment_halts_nothing() {
    nothing_is_parked_and_it_heals(ErrorClass::Environment, OnFailure::Halt).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_in_everybodys_way_parks_nothing() {
    nothing_is_parked_and_it_heals(ErrorClass::Transient, OnFailure::Park).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_takes_nothing_of_a_topic_is_not_fed_it() {
    let fixture = Fixture::new().await;
    fixture.execute("CREATE TABLE taken (id CHAR(32) PRIMARY KEY)").await;
    let adopt = Adopt::table("taken", "id").unwrap();
    let store = SqliteStore::builder(&fixture.url).adopt(adopt).connect().await.unwrap();
    let monitor = Monitor::default();
    let inbox = Inbox::new("test", store).unwrap().id(Selector::Header("id".into()));
    let worker = inbox.monitor(monitor.clone()).each(record_effect);
    let partition = Partition::open(&worker).await;
    // They are no UUIDs, and the column holds nothing else.
    partition.push((0..100).map(|i| record(i, &format!("m{i}"), &format!("k{i}"))));
    eventually("it is red", || red(&monitor)).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(fixture.dead().await.len() <= 10, "{:?}", fixture.dead().await);
    assert_eq!(partition.stream.stopped(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_without_a_schema_holds_back_nobody() {
    let fixture = Fixture::new().await;
    let inbox = inbox(&fixture).tenant(Selector::Header("tenant".into()));
    let worker = inbox.each(async |tx: &mut SqliteConnection, message: &Message| {
        record_effect(tx, message).await?;
        match message.tenant().as_str() {
            "ghost" => Err(of_class(ErrorClass::Environment)),
            _ => Ok(()),
        }
    });
    let partition = Partition::open(&worker).await;
    partition.push((0..20).map(|i| {
        let mut record = record(i, &format!("m{i}"), &format!("k{i}"));
        let tenant: &[u8] = if (5..9).contains(&i) { b"ghost" } else { b"acme" };
        record.headers.push("tenant", Some(tenant.to_vec().into()));
        record
    }));
    partition.settled(20).await;
    assert_eq!(fixture.dead().await, ["m5", "m6", "m7", "m8"]);
    assert_eq!(fixture.effects().await.len(), 16);
}

#[tokio::test(flavor = "multi_thread")]
async fn when_every_message_fails_only_some_are_parked() {
    let fixture = Fixture::new().await;
    let (monitor, mended) = (Monitor::default(), Arc::new(AtomicBool::new(false)));
    let handler = Broken { class: ErrorClass::Failed, mended: Arc::clone(&mended) };
    let worker = inbox(&fixture).monitor(monitor.clone()).with(handler);
    let partition = Partition::open(&worker).await;
    partition.push((0..50).map(|i| record(i, &format!("m{i}"), &format!("k{i}"))));
    eventually("it is red", || red(&monitor)).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let parked = fixture.dead().await;
    assert_eq!(parked, (0..10).map(|i| format!("m{i}")).collect::<Vec<_>>());

    mended.store(true, Ordering::SeqCst);
    partition.settled(50).await;
    assert_eq!(fixture.dead().await, parked, "no more");
    assert_eq!(fixture.effects().await.len(), 40);
    assert!(!red(&monitor));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_row_of_bad_messages_is_parked_if_others_succeed() {
    let fixture = Fixture::new().await;
    let worker = inbox(&fixture).each(async |tx: &mut SqliteConnection, message: &Message| {
        record_effect(tx, message).await?;
        if message.id().as_str().starts_with("bad") { Err("cannot".into()) } else { Ok(()) }
    });
    let partition = Partition::open(&worker).await;
    // The last four of the row are all that a probe looks at first; then a good one is among them.
    partition.push((0..30).map(|i| {
        let id = if i < 13 { format!("bad{i}") } else { format!("m{i}") };
        record(i, &id, &format!("k{i}"))
    }));
    partition.settled(30).await;
    assert_eq!(fixture.dead().await.len(), 13);
    assert_eq!(fixture.effects().await.len(), 17);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_is_too_large_for_something_is_made_smaller() {
    let fixture = Fixture::new().await;
    let worker = inbox(&fixture).batch(async |tx: &mut SqliteConnection, batch: &[Message]| {
        for message in batch {
            record_effect(tx, message).await?;
        }
        if batch.len() > 3 { Err(of_class(ErrorClass::Transient)) } else { Ok(()) }
    });
    let partition = Partition::open(&worker).await;
    partition.push((0..40).map(|i| record(i, &format!("m{i}"), "k")));
    partition.settled(40).await;
    assert_eq!(fixture.effects().await, (0..40).map(|i| format!("m{i}")).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_in_its_own_way_uses_up_its_attempts() {
    let fixture = Fixture::new().await;
    let worker = inbox(&fixture).each(async |tx: &mut SqliteConnection, message: &Message| {
        record_effect(tx, message).await?;
        if message.id().as_str() == "bad" { Err(of_class(ErrorClass::Transient)) } else { Ok(()) }
    });
    let partition = Partition::open(&worker).await;
    // Alone, with nobody to compare it with; and in company.
    partition.push([record(0, "bad", "k")]);
    partition.settled(1).await;
    assert_eq!(fixture.texts("SELECT message_id || attempts FROM oncebox_dead").await, ["bad3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_away_while_others_are_tried_parks_nothing() {
    let fixture = Fixture::new().await;
    let tries = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&tries);
    let one_by_one = BatchBounds { messages: 1, bytes: 1 << 20 };
    let inbox = inbox(&fixture).batch_bounds(one_by_one);
    let worker = inbox.each(async move |tx: &mut SqliteConnection, message: &Message| {
        record_effect(tx, message).await?;
        // As many failures as it has attempts, and then no more.
        let blocked = message.id().as_str() == "m0" && counted.fetch_add(1, Ordering::SeqCst) < 3;
        if blocked { Err(of_class(ErrorClass::Transient)) } else { Ok(()) }
    });
    let partition = Partition::open(&worker).await;
    partition.push((0..5).map(|i| record(i, &format!("m{i}"), &format!("k{i}"))));
    partition.settled(5).await;
    assert_eq!(fixture.dead().await, Vec::<String>::new());
    assert_eq!(fixture.effects().await, ["m0", "m1", "m2", "m3", "m4"]);
    assert_eq!(tries.load(Ordering::SeqCst), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_away_never_counts() {
    let fixture = Fixture::new().await;
    let mended = Arc::new(AtomicBool::new(false));
    let handler = Broken { class: ErrorClass::Away, mended: Arc::clone(&mended) };
    let worker = inbox(&fixture).with(handler);
    let partition = Partition::open(&worker).await;
    partition.push([record(0, "m", "k")]);
    // Longer than its attempts would have lasted.
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(fixture.dead().await, Vec::<String>::new());
    mended.store(true, Ordering::SeqCst);
    partition.settled(1).await;
    assert_eq!(fixture.effects().await, ["m"]);
}

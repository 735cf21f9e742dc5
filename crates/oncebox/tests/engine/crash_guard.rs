//! Starts without progress, and the message that ends the process.

use oncebox::selector::Selector;
use oncebox::{Store, Worker};

use crate::fixture::{Fixture, Partition, record, record_effect};

/// What a process leaves behind that dies before it commits anything: a start.
async fn die_without_progress(fixture: &Fixture) {
    let key = oncebox::PositionKey {
        consumer: oncebox::ConsumerName::new("test").unwrap(),
        topic: "t".into(),
        partition: 0,
    };
    fixture.store.acquire(&key).await.unwrap();
}

/// What it leaves behind that dies while it runs this offset alone.
async fn die_at(fixture: &Fixture, offset: i64) {
    let key = oncebox::PositionKey {
        consumer: oncebox::ConsumerName::new("test").unwrap(),
        topic: "t".into(),
        partition: 0,
    };
    let owner = fixture.store.acquire(&key).await.unwrap();
    fixture.store.record_attempt(&owner, offset).await.unwrap();
}

fn worker(
    fixture: &Fixture,
) -> Worker<oncebox::sqlite::SqliteStore, impl oncebox::Apply<oncebox::sqlite::SqliteStore>> {
    fixture.inbox().id(Selector::Header("id".into())).handler(record_effect)
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

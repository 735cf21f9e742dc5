//! A position belongs to one log, and to one history of the database.

use oncebox::Selector;
use oncebox::Worker;
use oncebox::source::{LogId, LogMark, Start};
use oncebox::sqlite::SqliteStore;
use oncebox::store::PositionKey;
use oncebox::store::Positions;
use tokio::time::Instant;

use crate::fixture::{Fixture, Partition, eventually, record, record_effect};

fn worker(fixture: &Fixture) -> Worker<SqliteStore> {
    fixture.inbox().id(Selector::Header("id".into())).each(record_effect)
}

fn key() -> PositionKey {
    let consumer = oncebox::message::ConsumerName::new("test").unwrap();
    PositionKey { consumer, topic: "t".into(), partition: 0 }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_settled_message_is_remembered() {
    let fixture = Fixture::new().await;
    let partition = Partition::open(&worker(&fixture)).await;
    partition.push((0..5).map(|i| record(i, &format!("m{i}"), "k")));
    partition.settled(5).await;
    partition.close().await;
    let again = Partition::acquire(&worker(&fixture)).await;
    let stored = again.stream.acquired().unwrap();
    assert_eq!(stored.mark, Some(LogMark::of(&record(4, "m4", "k"))));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_message_at_the_same_place_stops_the_partition() {
    let fixture = Fixture::new().await;
    let partition = Partition::open(&worker(&fixture)).await;
    partition.push((0..5).map(|i| record(i, &format!("m{i}"), "k")));
    partition.settled(5).await;
    partition.close().await;

    let same = Partition::open(&worker(&fixture)).await;
    assert!(!same.stream.push(record(4, "m4", "k")), "only looked at");
    assert_eq!(same.stream.stopped(), None);
    same.push([record(5, "m5", "k")]);
    same.settled(6).await;
    same.close().await;

    let rewritten = Partition::open(&worker(&fixture)).await;
    assert!(!rewritten.stream.push(record(5, "n5", "k")));
    assert!(!rewritten.stream.push(record(6, "n6", "k")));
    let reason = rewritten.stream.stopped().unwrap().to_owned();
    assert!(
        reason.contains("written anew") && reason.contains("oncebox position move --consumer test"),
        "{reason}"
    );
    assert_eq!(fixture.effects().await.len(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_partition_notices_that_its_position_was_moved() {
    let fixture = Fixture::new().await;
    let partition = Partition::acquire(&worker(&fixture)).await;
    partition.stream.stop("another log");
    fixture.store.move_position(&key(), 3, Some(&LogId::new("c/t"))).await.unwrap();
    eventually("it is handed back", || partition.stream.is_fenced()).await;
    partition.close().await;
    let anew = Partition::open(&worker(&fixture)).await;
    assert_eq!(anew.stream.acquired().unwrap().next_offset, Some(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_failed_over_to_an_older_state_is_not_jumped_over() {
    let fixture = Fixture::new().await;
    let partition = Partition::open(&worker(&fixture)).await;
    partition.push((0..5).map(|i| record(i, &format!("m{i}"), "k")));
    partition.settled(5).await;
    // What the last transaction wrote is gone, while its owner lives on.
    fixture.execute("DELETE FROM effect WHERE id IN ('m3', 'm4')").await;
    fixture.execute("DELETE FROM oncebox_inbox WHERE message_id IN ('m3', 'm4')").await;
    fixture.execute("UPDATE oncebox_position SET next_offset = 3, mark_offset = NULL").await;
    partition.push([record(5, "m5", "k")]);
    eventually("it is fenced", || partition.stream.is_fenced()).await;
    partition.close().await;

    let anew = Partition::open(&worker(&fixture)).await;
    anew.push((3..6).map(|i| record(i, &format!("m{i}"), "k")));
    anew.settled(6).await;
    assert_eq!(fixture.effects().await, ["m0", "m1", "m2", "m3", "m4", "m5"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_is_caught_up_when_it_has_reached_the_end_that_was_seen() {
    let fixture = Fixture::new().await;
    let partition = Partition::acquire(&worker(&fixture)).await;
    partition.stream.start(Start::at(0));
    partition.stream.log_ends_at(3, Instant::now());
    partition.push([record(0, "a", "k"), record(1, "b", "k")]);
    partition.settled(2).await;
    let caught_up = "SELECT CAST(caught_up_at AS TEXT) FROM oncebox_position WHERE caught_up_at IS NOT NULL";
    assert_eq!(fixture.texts(caught_up).await, Vec::<String>::new(), "one is missing");
    partition.push([record(2, "c", "k")]);
    partition.settled(3).await;
    assert_eq!(fixture.texts(caught_up).await.len(), 1);
}

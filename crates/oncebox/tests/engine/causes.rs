//! Why copies came: redelivered, rewound, or published twice.

use std::sync::Arc;
use std::time::Duration;

use oncebox::message::{ConsumerName, Record};
use oncebox::source::{LogId, Start};
use oncebox::sqlite::SqliteStore;
use oncebox::store::{Cause, Duplicates, PositionKey, Positions, Status};
use oncebox::{BatchBounds, Message, Selector, Worker};
use oncebox_testkit::MemoryQueue;
use sqlx::SqliteConnection;
use tokio::sync::Semaphore;

use crate::fixture::{Fixture, Partition, record, record_effect};

fn worker(fixture: &Fixture) -> Worker<SqliteStore> {
    fixture.inbox().id(Selector::Header("id".into())).each(record_effect)
}

fn key() -> PositionKey {
    PositionKey { consumer: ConsumerName::new("test").unwrap(), topic: "t".into(), partition: 0 }
}

fn records(offsets: std::ops::Range<i64>) -> Vec<Record> {
    offsets.map(|offset| record(offset, &format!("m{offset}"), "k")).collect()
}

async fn counted(fixture: &Fixture) -> Duplicates {
    fixture.store.status(10).await.unwrap().positions[0].duplicates
}

/// So many of each known cause.
fn causes(redelivered: u64, rewound: u64, published_twice: u64) -> Duplicates {
    Duplicates::stored(redelivered + rewound + published_twice, redelivered, rewound, published_twice)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_at_a_place_that_was_never_read_was_published_twice() {
    let fixture = Fixture::new().await;
    let worker = worker(&fixture);
    let partition = Partition::open(&worker).await;
    partition.push([record(0, "a", "k"), record(1, "a", "k"), record(2, "b", "k")]);
    partition.settled(3).await;
    partition.push([record(3, "b", "k")]);
    partition.settled(4).await;
    assert_eq!(counted(&fixture).await, causes(0, 0, 2));
    partition.close().await;
    let again = Partition::open(&worker).await;
    again.push([record(4, "a", "k")]);
    again.settled(5).await;
    assert_eq!(counted(&fixture).await, causes(0, 0, 3), "after a restart too");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_new_owner_reads_again_was_redelivered() {
    let fixture = Fixture::new().await;
    let worker = worker(&fixture);
    let first = Partition::open(&worker).await;
    first.push(records(0..10));
    first.settled(10).await;
    // It is taken over, as after a crash: nobody has told the broker of the last six.
    let second = Partition::open_at(worker.intake(), Some(4)).await;
    second.push(records(4..20));
    second.push([record(20, "m3", "k")]);
    second.settled(21).await;
    assert_eq!(counted(&fixture).await, causes(6, 0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_lane_had_settled_ahead_was_redelivered() {
    let fixture = Fixture::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let worker = fixture
        .inbox()
        .id(Selector::Header("id".into()))
        .batch_bounds(BatchBounds { messages: 1, bytes: 1 << 20 })
        .lanes(4)
        .each(async move |tx: &mut SqliteConnection, message: &Message| {
            if message.id().as_str() == "slow" && held.available_permits() == 0 {
                return Err("not yet".into());
            }
            record_effect(tx, message).await
        });
    let keyed = |offset: i64| record(offset, &format!("m{offset}"), &format!("k{offset}"));
    let first = Partition::open(&worker).await;
    first.push([record(0, "slow", "slow")]);
    first.push((1..40).map(keyed));
    while fixture.effects().await.len() < 15 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Nobody knows of them by the position, which waits for the first message.
    let second = Partition::open(&worker).await;
    let ahead = fixture.effects().await.len() as u64;
    gate.add_permits(1);
    second.push([record(0, "slow", "slow")]);
    second.push((1..40).map(keyed));
    second.push([record(40, "m7", "k7")]);
    second.settled(41).await;
    assert_eq!(fixture.effects().await.len(), 40);
    assert_eq!(counted(&fixture).await, causes(ahead, 0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_read_again_because_the_position_was_moved_back_is_rewound() {
    let fixture = Fixture::new().await;
    let worker = worker(&fixture);
    let first = Partition::open(&worker).await;
    first.push(records(0..10));
    first.settled(10).await;
    first.close().await;
    fixture.store.move_position(&key(), 3, None).await.unwrap();

    let second = Partition::open(&worker).await;
    second.push(records(3..6));
    second.settled(6).await;
    second.close().await;
    // The rest comes after another restart, and is still there because of the move.
    let third = Partition::open(&worker).await;
    third.push(records(6..12));
    third.push([record(12, "m0", "k")]);
    third.settled(13).await;
    assert_eq!(counted(&fixture).await, causes(0, 7, 1));

    let fourth = Partition::open_at(worker.intake(), Some(11)).await;
    fourth.push(records(11..12));
    fourth.push([record(12, "m0", "k")]);
    fourth.settled(13).await;
    assert_eq!(counted(&fixture).await, causes(2, 7, 1), "the move is over");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_read_again_because_the_brokers_offset_was_set_back_is_rewound() {
    let fixture = Fixture::new().await;
    let worker = worker(&fixture);
    let first = Partition::open(&worker).await;
    first.push(records(0..10));
    first.settled(10).await;
    first.close().await;

    let second = Partition::acquire(&worker).await;
    second.stream.start(Start { set_back: true, ..Start::at(2) });
    second.push(records(2..5));
    second.settled(5).await;
    // The next owner finds an offset that is ours, and still below the position.
    let third = Partition::open_at(worker.intake(), Some(5)).await;
    third.push(records(5..11));
    third.settled(11).await;
    assert_eq!(counted(&fixture).await, causes(0, 8, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn in_another_log_nothing_was_read_before() {
    let fixture = Fixture::new().await;
    let worker = worker(&fixture);
    let (old, new) = (LogId::new("c/old"), LogId::new("c/new"));
    let first = Partition::acquire(&worker).await;
    first.stream.start(Start { log: Some(old), ..Start::at(0) });
    first.push(records(0..4));
    first.settled(4).await;
    first.close().await;
    fixture.store.move_position(&key(), 0, Some(&new)).await.unwrap();
    let second = Partition::open(&worker).await;
    second.push(records(0..5));
    second.settled(5).await;
    assert_eq!(counted(&fixture).await, causes(0, 0, 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_older_oncebox_has_settled_has_no_known_cause() {
    let fixture = Fixture::new().await;
    let worker = worker(&fixture);
    let first = Partition::open(&worker).await;
    first.push(records(0..4));
    first.settled(4).await;
    first.close().await;
    fixture.execute("UPDATE oncebox_position SET settled_to = NULL").await;
    let second = Partition::open_at(worker.intake(), Some(2)).await;
    second.push(records(2..4));
    second.push([record(4, "m0", "k")]);
    second.settled(5).await;
    let counted = counted(&fixture).await;
    assert_eq!((counted.total(), counted.of(Cause::Unknown)), (3, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_says_what_it_delivers_again_tells_the_rest_from_it() {
    let fixture = Fixture::new().await;
    let queue = MemoryQueue::new("q");
    for id in ["a", "b", "a"] {
        queue.publish(record(0, id, id));
    }
    let consumer = queue.consume(&worker(&fixture).intake());
    queue.drained().await;
    consumer.close().await;
    assert_eq!(counted(&fixture).await, causes(0, 0, 1));
}

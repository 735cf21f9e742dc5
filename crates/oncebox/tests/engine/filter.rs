//! Messages that an inbox does not want: settled, and nothing else.

use std::time::Duration;

use bytes::Bytes;
use oncebox::message::{Headers, Record};
use oncebox::settings::{Identity, Limits};
use oncebox::source::Answer;
use oncebox::sqlite::SqliteStore;
use oncebox::{
    Backoff, BatchBounds, Filter, Inbox, Message, OnFailure, Replayed, RetryPolicy, Selector, reject,
};
use oncebox_testkit::MemoryQueue;
use sqlx::SqliteConnection;

use crate::fixture::{Fixture, Partition, record, record_effect};

fn inbox(fixture: &Fixture) -> Inbox<SqliteStore> {
    let retry = RetryPolicy { attempts: 1, backoff: Backoff::new(Duration::ZERO, Duration::ZERO) };
    let filter = Filter::equals(Selector::Header("type".into()), ["shipped", "cancelled"]);
    fixture.inbox().id(Selector::Header("id".into())).retry(retry).filter(filter)
}

fn of_type(offset: i64, id: &str, kind: &str) -> Record {
    let mut record = record(offset, id, "k");
    record.headers.push("type", Some(Bytes::copy_from_slice(kind.as_bytes())));
    record
}

/// Without an id, and without a type.
fn nameless(offset: i64) -> Record {
    let mut record = record(offset, "", "k");
    record.headers = Headers::new();
    record
}

async fn commits(fixture: &Fixture) -> Vec<String> {
    fixture.texts("SELECT next_offset || ' ' || commits FROM oncebox_position").await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_wanted_needs_no_id_and_gets_no_receipt() {
    let fixture = Fixture::new().await;
    let worker = inbox(&fixture).each(record_effect);
    let partition = Partition::open(&worker).await;
    partition.push([
        of_type(0, "a", "shipped"),
        nameless(1),
        of_type(2, "b", "created"),
        of_type(3, "c", "cancelled"),
        of_type(4, "d", "Shipped"),
    ]);
    partition.settled(5).await;
    partition.close().await;
    assert_eq!(fixture.effects().await, ["a", "c"]);
    assert_eq!(fixture.texts("SELECT message_id FROM oncebox_inbox ORDER BY 1").await, ["a", "c"]);
    assert!(fixture.dead().await.is_empty());
    // With another filter they are fresh: nothing of them stayed behind.
    let everything = fixture.inbox().id(Selector::Header("id".into())).each(record_effect);
    let partition = Partition::open(&everything).await;
    partition.push([of_type(5, "b", "created")]);
    partition.settled(6).await;
    partition.close().await;
    assert_eq!(fixture.effects().await, ["a", "c", "b"]);
}

/// The position follows without a transaction for the messages.
#[tokio::test(flavor = "multi_thread")]
async fn the_position_moves_past_what_nobody_wants() {
    for lanes in [1, 3] {
        let fixture = Fixture::new().await;
        let bounds = BatchBounds { messages: 10, bytes: 100_000 };
        let worker = inbox(&fixture).lanes(lanes).batch_bounds(bounds).each(record_effect);
        let partition = Partition::open(&worker).await;
        for from in (0..200).step_by(20) {
            partition.push((from..from + 20).map(nameless));
            partition.settled(from + 20).await;
        }
        partition.close().await;
        assert_eq!(commits(&fixture).await, ["200 0"], "{lanes} lanes");
        // The next owner goes on there, and recognises the log by the last of them.
        let partition = Partition::open(&worker).await;
        assert_eq!(partition.stream.acquired().unwrap().mark.map(|mark| mark.offset), Some(199));
        partition.push([of_type(200, "a", "shipped"), nameless(201)]);
        partition.settled(202).await;
        partition.close().await;
        assert_eq!(fixture.effects().await, ["a"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mixed_batches_move_the_position_as_they_commit() {
    let fixture = Fixture::new().await;
    let bounds = BatchBounds { messages: 7, bytes: 100_000 };
    let worker = inbox(&fixture).lanes(3).batch_bounds(bounds).each(record_effect);
    let partition = Partition::open(&worker).await;
    let ids: Vec<String> = (0..120).map(|n| format!("m{n:03}")).collect();
    for (offset, id) in (0..).zip(&ids) {
        let kind = if offset % 5 == 0 { "shipped" } else { "created" };
        let mut record = of_type(offset, id, kind);
        record.key = Some(Bytes::from(format!("k{}", offset % 7)));
        partition.push([record]);
    }
    partition.settled(120).await;
    partition.close().await;
    let mut effects = fixture.effects().await;
    effects.sort();
    let wanted: Vec<String> = ids.into_iter().step_by(5).collect();
    assert_eq!(effects, wanted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_hears_of_it() {
    let fixture = Fixture::new().await;
    let queue = MemoryQueue::new("q");
    for record in [of_type(0, "a", "shipped"), nameless(0), of_type(0, "b", "created")] {
        queue.publish(record);
    }
    let consumer = queue.consume(&inbox(&fixture).each(record_effect).intake());
    queue.drained().await;
    consumer.close().await;
    let mut answers = queue.answers();
    answers.sort_by_key(|(number, _)| *number);
    assert_eq!(answers, [(0, Answer::Applied), (1, Answer::Filtered), (2, Answer::Filtered)]);
    assert_eq!(fixture.effects().await, ["a"]);
}

/// Nobody waits behind a dead letter of its key who is not wanted; and what was given up is replayed, whatever the filter says.
#[tokio::test(flavor = "multi_thread")]
async fn a_filter_has_nothing_to_do_with_dead_letters() {
    let fixture = Fixture::new().await;
    let rejecting = inbox(&fixture).on_failure(OnFailure::ParkKey).each(
        async |_tx: &mut SqliteConnection, message: &Message| match message.id().as_str() {
            "bad" => Err(reject("no")),
            _ => Ok(()),
        },
    );
    let partition = Partition::open(&rejecting).await;
    partition.push([
        of_type(0, "bad", "shipped"),
        of_type(1, "created", "created"),
        of_type(2, "behind", "shipped"),
    ]);
    partition.settled(3).await;
    partition.close().await;
    assert_eq!(fixture.dead().await, ["bad", "behind"]);
    let nothing = Filter::by(|_| false);
    let worker = inbox(&fixture).on_failure(OnFailure::ParkKey).filter(nothing).each(record_effect);
    for number in [1, 2] {
        assert!(matches!(worker.replay(number).await.unwrap(), Replayed::Applied));
    }
    assert_eq!(fixture.effects().await, ["bad", "behind"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_that_is_too_large_to_look_into_becomes_a_dead_letter() {
    let fixture = Fixture::new().await;
    let mut settings = oncebox::Settings::default();
    settings.identity = Identity {
        limits: Limits { payload_bytes: 40, ..Limits::default() },
        ..Identity::new(Selector::Header("id".into()), None)
    };
    settings.filter = Some(Filter::equals(Selector::Json("/type".into()), ["shipped"]));
    let worker = fixture.inbox().settings(settings).each(record_effect);
    let partition = Partition::open(&worker).await;
    let payloads: [&[u8]; 5] = [
        br#"{"type": "shipped"}"#,
        br#"{"type": "created"}"#,
        b"no JSON",
        br#"{"type": 5}"#,
        br#"{"type": "created", "more": "than forty bytes of it"}"#,
    ];
    for (offset, payload) in (0..).zip(payloads) {
        let mut record = record(offset, &format!("m{offset}"), "k");
        record.payload = Some(Bytes::from_static(payload));
        partition.push([record]);
    }
    partition.settled(5).await;
    partition.close().await;
    assert_eq!(fixture.effects().await, ["m0"]);
    assert_eq!(fixture.errors().await, ["message m4: the payload has 53 bytes, more than the limit of 40"]);
}

//! A message with the id of another and another payload: skipped, and told from a copy where payloads are compared.

use std::time::Duration;

use bytes::Bytes;
use oncebox::source::Answer::{self, Applied, Differs, Duplicate, Parked};
use oncebox::sqlite::SqliteStore;
use oncebox::store::Adopt;
use oncebox::{Backoff, BatchBounds, Inbox, Message, RetryPolicy, Selector};
use oncebox_testkit::MemoryQueue;
use sqlx::SqliteConnection;

use crate::fixture::{Fixture, record, record_effect};

fn inbox(fixture: &Fixture) -> Inbox<SqliteStore> {
    let retry = RetryPolicy { attempts: 2, backoff: Backoff::new(Duration::ZERO, Duration::ZERO) };
    fixture.inbox().id(Selector::Header("id".into())).retry(retry)
}

fn publish(queue: &MemoryQueue, messages: &[(&str, &'static str)]) {
    for (id, payload) in messages {
        let mut keyless = record(0, id, "");
        keyless.key = None;
        keyless.payload = (!payload.is_empty()).then(|| Bytes::from_static(payload.as_bytes()));
        queue.publish(keyless);
    }
}

/// Lets the inbox have these messages, one round after another, and says what became of each.
async fn answers(
    inbox: Inbox<SqliteStore>,
    queue: MemoryQueue,
    rounds: &[&[(&str, &'static str)]],
) -> Vec<Answer> {
    let worker = inbox.each(async |tx: &mut SqliteConnection, message: &Message| {
        record_effect(tx, message).await?;
        if message.payload() == Some(b"bad") { Err("not now".into()) } else { Ok(()) }
    });
    for round in rounds {
        // Before the consumer, so that they are one batch.
        publish(&queue, round);
        let consumer = queue.consume(&worker.intake());
        queue.drained().await;
        consumer.close().await;
    }
    let mut answers = queue.answers();
    answers.sort_by_key(|(number, _)| *number);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_is_applied_and_another_payload_differs_in_its_batch_and_later() {
    let fixture = Fixture::new().await;
    let queue = MemoryQueue::new("q").compare_payloads();
    let rounds: [&[_]; 2] = [
        &[("a", "one"), ("a", "two"), ("a", "one"), ("b", "two")],
        &[("a", "one"), ("a", "two"), ("b", "one"), ("c", ""), ("c", ""), ("c", "one")],
    ];
    let found = answers(inbox(&fixture), queue, &rounds).await;
    assert_eq!(found[..4], [Applied, Differs, Duplicate, Applied]);
    assert_eq!(found[4..], [Duplicate, Differs, Differs, Applied, Duplicate, Differs]);
    assert_eq!(fixture.effects().await, ["a", "b", "c"]);
    assert!(fixture.dead().await.is_empty());
    let counted = "SELECT applied || ' ' || duplicates FROM oncebox_position";
    assert_eq!(
        fixture.texts(counted).await,
        ["3 7"],
        "all of them were skipped because their receipt exists"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_compared_unless_the_source_asks_and_nothing_is_kept() {
    let fixture = Fixture::new().await;
    let rounds: [&[_]; 2] = [&[("a", "one"), ("a", "two")], &[("a", "three")]];
    assert_eq!(
        answers(inbox(&fixture), MemoryQueue::new("q"), &rounds).await,
        [Applied, Duplicate, Duplicate]
    );
    let kept = "SELECT message_id FROM oncebox_inbox WHERE fingerprint IS NOT NULL";
    assert_eq!(fixture.texts(kept).await, [""; 0]);

    // The receipt is older than the wish.
    let queue = MemoryQueue::new("q").compare_payloads();
    let rounds: [&[_]; 2] = [&[("a", "four"), ("b", "one")], &[("a", "five"), ("b", "two")]];
    assert_eq!(answers(inbox(&fixture), queue, &rounds).await, [Duplicate, Applied, Duplicate, Differs]);
    assert_eq!(fixture.texts(kept).await, ["b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_id_of_a_message_that_was_given_up_is_used() {
    let fixture = Fixture::new().await;
    let queue = MemoryQueue::new("q").compare_payloads();
    let rounds: [&[_]; 2] = [&[("a", "bad")], &[("a", "good"), ("a", "bad")]];
    assert_eq!(answers(inbox(&fixture), queue, &rounds).await, [Parked, Differs, Duplicate]);
    assert_eq!((fixture.effects().await.len(), fixture.dead().await), (0, vec!["a".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_one_that_is_applied_is_the_first() {
    let fixture = Fixture::new().await;
    let queue = MemoryQueue::new("q").compare_payloads();
    // While one waits for its next try, another of its id passes it.
    let found = answers(inbox(&fixture), queue, &[&[("a", "bad"), ("a", "good")]]).await;
    assert_eq!(found, [Differs, Applied]);
    assert_eq!((fixture.effects().await.len(), fixture.dead().await.len()), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn those_that_run_side_by_side_are_compared_too() {
    let fixture = Fixture::new().await;
    let queue = MemoryQueue::new("q").compare_payloads();
    let ids: Vec<String> = (0..20).map(|n| format!("m{n}")).collect();
    let messages: Vec<(&str, &'static str)> =
        ids.iter().flat_map(|id| [(id.as_str(), "one"), (id, "two"), (id, "three")]).collect();
    let one_by_one = BatchBounds { messages: 1, bytes: 10_000 };
    let found = answers(inbox(&fixture).batch_bounds(one_by_one).lanes(4), queue, &[&messages]).await;
    for three in found.chunks(3) {
        let count = |answer: &Answer| three.iter().filter(|one| *one == answer).count();
        assert_eq!((count(&Applied), count(&Differs)), (1, 2), "{three:?}");
    }
    assert_eq!(fixture.effects().await.len(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_adopted_table_has_nothing_to_compare_by() {
    let fixture = Fixture::new().await;
    fixture.execute("CREATE TABLE seen (message_id TEXT NOT NULL PRIMARY KEY)").await;
    let adopt = Adopt::table("seen", "message_id").unwrap();
    let store = SqliteStore::builder(&fixture.url).adopt(adopt).connect().await.unwrap();
    let inbox = Inbox::new("test", store).unwrap().id(Selector::Header("id".into()));
    let queue = MemoryQueue::new("q").compare_payloads();
    let rounds: [&[_]; 2] = [&[("a", "one"), ("a", "two")], &[("a", "three")]];
    assert_eq!(answers(inbox, queue, &rounds).await, [Applied, Duplicate, Duplicate]);
}

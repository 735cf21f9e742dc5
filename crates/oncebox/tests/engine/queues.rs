//! A source without offsets: copies, cuts, retries, parked keys and the crash guard, without a position.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use oncebox::message::{ConsumerName, MessageId, Tenant};
use oncebox::source::Answer;
use oncebox::sqlite::SqliteStore;
use oncebox::store::{PositionKey, Positions};
use oncebox::{Backoff, BatchBounds, Inbox, Message, OnFailure, RetryPolicy, Selector};
use oncebox_core::inbox::ReceiptKey;
use oncebox_testkit::MemoryQueue;
use sqlx::SqliteConnection;

use crate::fixture::{Fixture, eventually, record, record_effect};

fn inbox(fixture: &Fixture) -> Inbox<SqliteStore> {
    let retry = RetryPolicy { attempts: 3, backoff: Backoff::new(Duration::ZERO, Duration::ZERO) };
    fixture.inbox().id(Selector::Header("id".into())).retry(retry)
}

fn publish(queue: &MemoryQueue, ids: impl IntoIterator<Item = impl AsRef<str>>) {
    for id in ids {
        let mut keyless = record(0, id.as_ref(), "");
        keyless.key = None;
        queue.publish(keyless);
    }
}

fn outcomes(queue: &MemoryQueue) -> Vec<(u64, Answer)> {
    let mut answers = queue.answers();
    answers.sort_by_key(|(number, _)| *number);
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_skipped_and_acknowledged() {
    let fixture = Fixture::new().await;
    let queue = MemoryQueue::new("q");
    publish(&queue, ["a", "b", "a"]);
    let consumer = queue.consume(&inbox(&fixture).each(record_effect).intake());
    queue.drained().await;
    publish(&queue, ["b"]);
    queue.drained().await;
    consumer.close().await;
    assert_eq!(fixture.effects().await, ["a", "b"]);
    let (applied, duplicate) = (Answer::Applied, Answer::Duplicate);
    let expected = [(0, applied.clone()), (1, applied), (2, duplicate.clone()), (3, duplicate)];
    assert_eq!(outcomes(&queue), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_applied_and_not_acknowledged_comes_again_and_is_skipped() {
    let fixture = Fixture::new().await;
    let queue = MemoryQueue::new("q");
    let worker = inbox(&fixture).each(record_effect);
    let mute = queue.consume(&worker.intake());
    publish(&queue, ["a", "b"]);
    eventually("both are delivered", || mute.stream.stopped().is_none() && queue.len() <= 2).await;
    mute.cut();
    let consumer = queue.consume(&worker.intake());
    queue.drained().await;
    consumer.close().await;
    mute.close().await;
    let mut effects = fixture.effects().await;
    effects.sort();
    assert_eq!(effects, ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_consumers_share_a_queue_and_each_message_is_applied_once() {
    let fixture = Fixture::new().await;
    let queue = MemoryQueue::new("q").prefetch(7);
    let ids: Vec<String> = (0..200).map(|n| format!("m{}", n % 150)).collect();
    publish(&queue, &ids);
    let worker = inbox(&fixture).batch_bounds(BatchBounds { messages: 5, bytes: 10_000 }).each(record_effect);
    let (one, two) = (queue.consume(&worker.intake()), queue.consume(&worker.intake()));
    queue.drained().await;
    one.close().await;
    two.close().await;
    let mut effects = fixture.effects().await;
    effects.sort();
    let mut expected: Vec<String> = (0..150).map(|n| format!("m{n}")).collect();
    expected.sort();
    assert_eq!(effects, expected);
}

/// Fails for ids that begin with `bad`, until it is told to be good.
#[derive(Clone, Default)]
struct Moody {
    good: Arc<std::sync::atomic::AtomicBool>,
    tries: Arc<AtomicU32>,
}

impl Moody {
    async fn apply(self, tx: &mut SqliteConnection, message: &Message) -> oncebox::Result {
        record_effect(tx, message).await?;
        if message.id().as_str().starts_with("bad") && !self.good.load(Ordering::SeqCst) {
            self.tries.fetch_add(1, Ordering::SeqCst);
            return Err("not now".into());
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_holds_back_its_key_and_nobody_else() {
    let fixture = Fixture::new().await;
    let queue = MemoryQueue::new("q");
    let moody = Moody::default();
    let handler = moody.clone();
    let patient = RetryPolicy {
        attempts: u32::MAX,
        backoff: Backoff::new(Duration::from_millis(20), Duration::from_millis(20)),
    };
    let worker =
        inbox(&fixture).retry(patient).each(async move |tx: &mut SqliteConnection, message: &Message| {
            handler.clone().apply(tx, message).await
        });
    for (id, key) in [("bad", "k"), ("a", "other"), ("b", "k"), ("c", "other")] {
        queue.publish(record(0, id, key));
    }
    publish(&queue, ["bad-without-key", "without-key"]);
    let consumer = queue.consume(&worker.intake());
    eventually("all but the key of the bad one are applied", || queue.len() == 3).await;
    queue.publish(record(0, "d", "k"));
    queue.publish(record(0, "e", "other"));
    eventually("a later batch passes them too", || queue.len() == 4).await;
    eventually("they are tried again and again", || moody.tries.load(Ordering::SeqCst) > 6).await;
    assert_eq!(fixture.effects().await, ["a", "c", "without-key", "e"]);
    moody.good.store(true, Ordering::SeqCst);
    queue.drained().await;
    consumer.close().await;
    let effects = fixture.effects().await;
    let of_key: Vec<&str> =
        effects.iter().map(String::as_str).filter(|id| ["bad", "b", "d"].contains(id)).collect();
    assert_eq!(of_key, ["bad", "b", "d"], "in order");
    assert_eq!((effects.len(), fixture.dead().await.len()), (8, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn poison_is_parked_and_its_neighbours_are_applied() {
    let fixture = Fixture::new().await;
    let queue = MemoryQueue::new("q");
    let moody = Moody::default();
    let worker = inbox(&fixture).each(async move |tx: &mut SqliteConnection, message: &Message| {
        moody.clone().apply(tx, message).await
    });
    publish(&queue, (0..40).map(|n| if n == 17 { "bad".to_owned() } else { format!("m{n}") }));
    let consumer = queue.consume(&worker.intake());
    queue.drained().await;
    consumer.close().await;
    assert_eq!((fixture.effects().await.len(), fixture.dead().await), (39, vec!["bad".to_owned()]));
    assert_eq!(outcomes(&queue)[17], (17, Answer::Parked));
}

#[tokio::test(flavor = "multi_thread")]
async fn later_messages_of_a_parked_key_are_parked_behind_it() {
    let fixture = Fixture::new().await;
    let queue = MemoryQueue::new("q");
    let moody = Moody::default();
    let worker = inbox(&fixture).on_failure(OnFailure::ParkKey).each(
        async move |tx: &mut SqliteConnection, message: &Message| moody.clone().apply(tx, message).await,
    );
    for (id, key) in [("bad", "k"), ("behind", "k"), ("other", "o")] {
        queue.publish(record(0, id, key));
    }
    let consumer = queue.consume(&worker.intake());
    queue.drained().await;
    queue.publish(record(0, "later", "k"));
    queue.drained().await;
    consumer.close().await;
    assert_eq!(fixture.effects().await, ["other"]);
    assert_eq!(fixture.dead().await, ["bad", "behind", "later"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_without_an_id_is_parked_as_often_as_it_is_another_one() {
    let fixture = Fixture::new().await;
    let queue = MemoryQueue::new("q");
    let worker = inbox(&fixture).each(record_effect);
    for round in 0..2 {
        let mut nameless = record(0, "", "k");
        nameless.headers = oncebox::message::Headers::new();
        queue.publish(nameless);
        // Another channel counts from one again.
        let consumer = queue.consume(&worker.intake());
        queue.drained().await;
        consumer.close().await;
        assert_eq!(fixture.dead().await.len(), round + 1, "nothing is lost because of its place");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_halt_stops_the_queue_and_gives_the_rest_back() {
    let fixture = Fixture::new().await;
    let queue = MemoryQueue::new("q");
    let moody = Moody::default();
    let worker = inbox(&fixture)
        .on_failure(OnFailure::Halt)
        .batch_bounds(BatchBounds { messages: 1, bytes: 10_000 })
        .each(async move |tx: &mut SqliteConnection, message: &Message| {
            moody.clone().apply(tx, message).await
        });
    for id in ["a", "bad", "b"] {
        queue.publish(record(0, id, "k"));
    }
    let consumer = queue.consume(&worker.intake());
    eventually("it stands still", || consumer.stream.stopped().is_some()).await;
    let reason = consumer.stream.stopped().unwrap_or_default().to_owned();
    assert!(reason.contains("halted at bad") && reason.contains("not now"), "{reason}");
    consumer.close().await;
    assert_eq!(queue.len(), 2, "they wait for somebody who can");
    assert!(fixture.dead().await.is_empty());
}

/// What a process leaves behind that ends while it runs this message alone.
async fn die_at(fixture: &Fixture, id: &str) {
    let consumer = ConsumerName::new("test").unwrap();
    let receipt = ReceiptKey::of(&consumer, &Tenant::none(), &MessageId::new(id).unwrap());
    let low = u64::from_be_bytes(receipt.as_bytes()[8..].try_into().unwrap());
    let queue = PositionKey { consumer, topic: "q".into(), partition: 0 };
    let owner = fixture.store.acquire(&queue).await.unwrap();
    fixture.store.record_attempt(&owner, (low >> 1) as i64).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_message_that_ends_the_process_is_parked_and_those_beside_it_are_not() {
    let fixture = Fixture::new().await;
    let queue = MemoryQueue::new("q");
    publish(&queue, ["a", "poison", "b"]);
    queue.deliver_in_vain();
    for _ in 0..3 {
        die_at(&fixture, "poison").await;
    }
    let worker = inbox(&fixture).each(record_effect);
    let consumer = queue.consume(&worker.intake());
    queue.drained().await;
    consumer.close().await;
    assert_eq!(fixture.effects().await, ["a", "b"]);
    assert_eq!(fixture.dead().await, ["poison"]);
    assert!(fixture.errors().await[0].contains("the process ended 3 times"));
    let left = fixture.texts("SELECT CAST(COUNT(*) AS TEXT) FROM oncebox_attempt").await;
    assert_eq!(left, ["0"], "nothing is left behind");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_database_learns_how_much_was_applied_and_until_when_the_queue_is_caught_up() {
    let fixture = Fixture::new().await;
    let queue = MemoryQueue::new("q");
    let worker = inbox(&fixture).each(record_effect);
    for ids in [["a", "b", "a"], ["c", "b", "c"]] {
        let consumer = queue.consume(&worker.intake());
        publish(&queue, ids);
        queue.drained().await;
        consumer.close().await;
    }
    let row = "SELECT applied || ' ' || duplicates || ' ' || (caught_up_at IS NOT NULL) || ' ' || (next_offset IS NULL) \
               FROM oncebox_position";
    assert_eq!(fixture.texts(row).await, ["3 3 1 1"]);
}

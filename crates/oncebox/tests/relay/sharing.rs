//! Several relays: each shard has one owner, and what changes hands is neither lost nor out of order.

use oncebox::store::Status;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use oncebox::BoxError;
use oncebox::sink::{Delivery, OutgoingEvent, Sink};

use crate::fixture::{Fixture, Notes, Running, eventually, sink};

/// How many shards each of these relays owns.
async fn owned(fixture: &Fixture, names: &[&str]) -> Vec<usize> {
    let shards = fixture.store.status(100).await.unwrap().outbox.shards;
    assert_eq!(shards.len(), 16);
    names.iter().map(|name| shards.iter().filter(|s| s.owner.as_deref() == Some(name)).count()).collect()
}

async fn shares(fixture: &Fixture, names: &[&str], expected: &[usize]) {
    let deadline = std::time::Instant::now() + Duration::from_secs(40);
    loop {
        let owned = owned(fixture, names).await;
        if owned == expected {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "{names:?} own {owned:?}, not {expected:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn relays_share_the_work_and_take_over_from_each_other() {
    let fixture = Fixture::new().await;
    let notes = Notes::default();
    let keys: Vec<String> = (0..30).map(|key| format!("k{key}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let start = |name: &str| Running::start(fixture.relay().name(name).sink(sink(&notes, |_| Ok(()))));
    let first = start("first");
    shares(&fixture, &["first"], &[16]).await;
    let second = start("second");
    fixture.emit("orders", &keys, 0..30).await;
    shares(&fixture, &["first", "second"], &[8, 8]).await;
    let third = start("third");
    fixture.emit("orders", &keys, 30..60).await;
    eventually_at_most(&fixture, &["first", "second", "third"], 6).await;
    first.crash();
    fixture.emit("orders", &keys, 60..90).await;
    shares(&fixture, &["second", "third"], &[8, 8]).await;
    second.stop().await;
    fixture.emit("orders", &keys, 90..120).await;
    shares(&fixture, &["third"], &[16]).await;
    fixture.drained().await;
    third.stop().await;
    assert_eq!(owned(&fixture, &["third"]).await, [0], "a relay that stops gives everything back");
    for (key, numbers) in notes.first_numbers() {
        assert_eq!(numbers, (0..120).collect::<Vec<_>>(), "{key}");
    }
}

async fn eventually_at_most(fixture: &Fixture, names: &[&str], most: usize) {
    let deadline = std::time::Instant::now() + Duration::from_secs(40);
    loop {
        let owned = owned(fixture, names).await;
        if owned.iter().sum::<usize>() == 16 && owned.iter().all(|count| *count <= most) {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "{names:?} own {owned:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Never answers, and notes whether it was told to let go.
struct Hanging {
    began: Arc<AtomicBool>,
    dropped: Arc<AtomicBool>,
}

struct Guard(Arc<AtomicBool>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Sink for Hanging {
    async fn deliver(&self, _events: &[OutgoingEvent]) -> Result<Vec<Delivery>, BoxError> {
        let _guard = Guard(Arc::clone(&self.dropped));
        self.began.store(true, Ordering::SeqCst);
        std::future::pending().await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_lets_go_when_its_shard_was_taken() {
    let fixture = Fixture::new().await;
    let (began, dropped) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let hanging = Hanging { began: Arc::clone(&began), dropped: Arc::clone(&dropped) };
    let relay = Running::start(fixture.relay().sink(hanging));
    fixture.emit("orders", &["a"], 0..1).await;
    eventually("the delivery has begun", || began.load(Ordering::SeqCst)).await;
    assert!(!dropped.load(Ordering::SeqCst));
    // Somebody with a newer epoch.
    let mut conn = fixture.connect().await;
    sqlx::query(
        "UPDATE oncebox_shard SET relay = 'another', epoch = epoch + 1, leased_until = '9999-01-01 00:00:00.000'",
    )
    .execute(&mut conn)
    .await
    .unwrap();
    eventually("it lets go", || dropped.load(Ordering::SeqCst)).await;
    relay.stop().await;
    assert_eq!(fixture.events(None).await.len(), 1, "and the event is still there");
}

//! Settings that change while the inbox runs, and what a monitor knows of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use oncebox::settings::Live;
use oncebox::{Backoff, Message, Monitor, RetryPolicy, Selector};
use sqlx::SqliteConnection;

use crate::fixture::{Fixture, Partition, eventually, record, record_effect};

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_tried_for_ever_is_given_up_once_the_policy_says_so() {
    let fixture = Fixture::new().await;
    let backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(5));
    let retry = Live::new(RetryPolicy { attempts: u32::MAX, backoff });
    let tries = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&tries);
    let monitor = Monitor::default();
    let inbox = fixture.inbox().id(Selector::Header("id".into())).live_retry(retry.clone());
    let worker =
        inbox.monitor(monitor.clone()).each(async move |tx: &mut SqliteConnection, message: &Message| {
            if message.id().as_str() == "bad" {
                counted.fetch_add(1, Ordering::Relaxed);
                return Err("cannot".into());
            }
            record_effect(tx, message).await
        });
    let partition = Partition::open(&worker).await;
    partition.push([record(0, "a", "k"), record(1, "bad", "k"), record(2, "b", "k"), record(3, "a", "k")]);
    eventually("it is tried again and again", || tries.load(Ordering::Relaxed) > 10).await;
    assert_eq!(fixture.dead().await, [""; 0]);
    retry.set(RetryPolicy { attempts: 2, backoff });
    partition.settled(4).await;
    assert_eq!(fixture.dead().await, ["bad"]);
    assert_eq!(fixture.effects().await, ["a", "b"]);

    let done = monitor.tallies()["test"];
    assert_eq!((done.applied, done.duplicates.total(), done.dead), (2, 1, 1));
    let lag = &monitor.lags()[0];
    assert_eq!(
        (lag.consumer.as_str(), &*lag.topic, lag.partition, lag.age),
        ("test", "t", 0, Duration::ZERO)
    );
}

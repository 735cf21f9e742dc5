//! Lanes side by side never let the position pass an open message.

use std::sync::Arc;
use std::time::Duration;

use oncebox::Selector;
use oncebox::{Backoff, BatchBounds, Message, RetryPolicy};
use sqlx::SqliteConnection;
use tokio::sync::Semaphore;

use crate::fixture::{Fixture, Partition, record, record_effect};

#[tokio::test(flavor = "multi_thread")]
async fn the_position_waits_for_the_slowest_lane() {
    let fixture = Fixture::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let patient = RetryPolicy {
        attempts: u32::MAX,
        backoff: Backoff::new(Duration::from_millis(5), Duration::from_millis(5)),
    };
    let worker = fixture
        .inbox()
        .id(Selector::Header("id".into()))
        .batch_bounds(BatchBounds { messages: 1, bytes: 1 << 20 })
        .lanes(4)
        .retry(patient)
        .each(async move |tx: &mut SqliteConnection, message: &Message| {
            if message.id().as_str() == "slow" && held.available_permits() == 0 {
                return Err("not yet".into());
            }
            record_effect(tx, message).await
        });
    let partition = Partition::open(&worker).await;
    partition.push([record(0, "slow", "slow")]);
    partition.push((1..40).map(|i| record(i, &format!("m{i}"), &format!("k{i}"))));
    while fixture.effects().await.len() < 15 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(partition.stream.settled(), None, "offset 0 is still open");
    let position = fixture.texts("SELECT CAST(next_offset AS TEXT) FROM oncebox_position").await;
    assert_eq!(position, ["0"]);
    gate.add_permits(1);
    partition.settled(40).await;
    assert_eq!(fixture.effects().await.len(), 40);
}

//! Time passes without waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use oncebox::testing::{TestInbox, message};
use oncebox::{Backoff, Message, RetryPolicy, StalePolicy, retry_after};
use sqlx::SqliteConnection;

use crate::fixture::{Shop, deduct};

const HOUR: Duration = Duration::from_secs(3600);

/// Fails so many times before it does its work; each time it asks to wait for an hour.
fn late(shop: &Shop, failures: u32, retry: RetryPolicy) -> TestInbox<oncebox::sqlite::SqliteStore> {
    let tries = Arc::new(AtomicU32::new(0));
    TestInbox::new(shop.inbox().retry(retry).each(
        async move |tx: &mut SqliteConnection, message: &Message| {
            if tries.fetch_add(1, Ordering::SeqCst) < failures {
                return Err(retry_after(HOUR, "the warehouse is closed"));
            }
            deduct(tx, message).await
        },
    ))
}

#[tokio::test]
async fn an_hour_that_a_handler_asks_for_is_written_down_and_not_waited_for() {
    let shop = Shop::new().await;
    let began = Instant::now();
    let delivered = late(&shop, 2, RetryPolicy::default()).deliver(&message("order-1").json(&5)).await;
    delivered.assert_applied().assert_failed_tries(2);
    assert!(began.elapsed() < HOUR);
    assert_eq!(delivered.failed_tries()[0].retry_after, Some(HOUR));
    assert_eq!(delivered.failed_tries()[1].error, "the warehouse is closed");
}

#[tokio::test]
async fn attempts_are_used_up_without_their_backoff() {
    let shop = Shop::new().await;
    let slow = RetryPolicy { attempts: 4, backoff: Backoff::new(HOUR, HOUR) };
    let delivered = late(&shop, 9, slow).deliver(&message("order-1").json(&5)).await;
    delivered.assert_parked("the warehouse is closed").assert_failed_tries(4);
    assert_eq!(shop.on_hand().await, 100);
}

#[tokio::test]
async fn after_the_retention_a_copy_is_applied_again() {
    let shop = Shop::new().await;
    let kit = shop.kit();
    let order = message("order-1").json(&5);
    kit.deliver_twice(&order).await.assert_applied_once();
    kit.let_retention_pass().await;
    kit.deliver(&order).await.assert_applied();
    assert_eq!(shop.on_hand().await, 90);
}

#[tokio::test]
async fn after_the_retention_a_copy_is_parked_where_the_inbox_says_so() {
    let shop = Shop::new().await;
    let kit = TestInbox::new(shop.inbox().stale(StalePolicy::Park).each(deduct));
    let order = message("order-1").json(&5);
    kit.deliver(&order).await.assert_applied();
    kit.let_retention_pass().await;
    kit.deliver(&order).await.assert_parked("older than the receipts");
    kit.deliver(&message("order-2").json(&5)).await.assert_applied();
    assert_eq!(shop.on_hand().await, 90);
}

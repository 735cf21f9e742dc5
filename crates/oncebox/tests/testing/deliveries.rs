//! Deliveries go through the real engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use oncebox::testing::{TestInbox, message, message_without_id};
use oncebox::{BatchBounds, Message, OnFailure, RetryPolicy};
use sqlx::SqliteConnection;

use crate::fixture::{Shop, deduct};

#[tokio::test]
async fn a_message_is_applied_and_its_copy_is_a_duplicate() {
    let shop = Shop::new().await;
    let kit = shop.kit();
    let order = message("order-1").json(&5);
    kit.deliver(&order).await.assert_applied().assert_failed_tries(0);
    kit.deliver(&order).await.assert_duplicate();
    kit.deliver_twice(&message("order-2").json(&2)).await.assert_applied_once();
    assert_eq!(shop.on_hand().await, 93);
}

#[tokio::test]
async fn another_kit_of_the_same_consumer_goes_on_where_the_first_was() {
    let shop = Shop::new().await;
    let (first, order) = (shop.kit(), message("order-1").json(&5));
    first.deliver(&order).await.assert_applied();
    let second = shop.kit();
    second.deliver(&order).await.assert_duplicate();
    second.deliver(&message("order-2").json(&5)).await.assert_applied();
    assert_eq!(shop.on_hand().await, 90);
}

#[tokio::test]
async fn messages_that_come_at_once_are_one_batch() {
    let shop = Shop::new().await;
    let sizes = Arc::new(std::sync::Mutex::new(Vec::new()));
    let noted = Arc::clone(&sizes);
    let kit = TestInbox::new(shop.inbox().batch_bounds(BatchBounds { messages: 3, bytes: 1 << 20 }).batch(
        async move |_: &mut SqliteConnection, batch: &[Message]| {
            noted.lock().unwrap().push(batch.len());
            Ok(())
        },
    ));
    let orders: Vec<_> = (0..4).map(|n| message(format!("order-{n}")).json(&n)).collect();
    for delivered in kit.deliver_all(&orders).await {
        delivered.assert_applied();
    }
    assert_eq!(*sizes.lock().unwrap(), [3, 1]);
    assert!(kit.deliver_all([]).await.is_empty());
}

#[tokio::test]
async fn a_rejected_message_is_a_dead_letter_and_its_neighbours_are_not() {
    let shop = Shop::new().await;
    let kit = shop.kit();
    let orders = [message("a").json(&1), message("b").json(&500), message("c").json(&1)];
    let delivered = kit.deliver_all(&orders).await;
    delivered[0].assert_applied();
    delivered[1].assert_rejected("no 500 bolts").assert_failed_tries(1);
    delivered[2].assert_applied();
    assert_eq!(delivered[1].dead_letter(), Some("there are no 500 bolts"));
    assert_eq!(shop.on_hand().await, 98);
}

#[tokio::test]
async fn a_message_without_its_id_is_parked() {
    let shop = Shop::new().await;
    let delivered = shop.kit().deliver(&message_without_id().json(&1)).await;
    delivered.assert_parked("no header `event_id`").assert_failed_tries(0);
}

/// A test may deliver from a task of its own; deliveries wait for each other.
#[tokio::test(flavor = "multi_thread")]
async fn deliveries_from_several_tasks_take_turns() {
    let shop = Shop::new().await;
    let kit = Arc::new(shop.kit());
    let tasks: Vec<_> = (0..4)
        .map(|n| {
            let kit = Arc::clone(&kit);
            tokio::spawn(async move { kit.deliver(&message(format!("order-{n}")).json(&1)).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().assert_applied();
    }
    assert_eq!(shop.on_hand().await, 96);
}

#[tokio::test]
async fn messages_of_several_topics_have_positions_of_their_own() {
    let shop = Shop::new().await;
    let kit = shop.kit();
    kit.deliver(&message("a").topic("north").json(&1)).await.assert_applied();
    kit.deliver(&message("b").topic("south").json(&1)).await.assert_applied();
    kit.deliver(&message("a").topic("south").json(&1)).await.assert_duplicate();
    assert_eq!(shop.on_hand().await, 98);
}

#[tokio::test]
async fn what_halts_holds_back_what_comes_after_it() {
    let shop = Shop::new().await;
    let mended = Arc::new(AtomicU32::new(0));
    let is_mended = Arc::clone(&mended);
    let retry = RetryPolicy { attempts: 2, ..RetryPolicy::default() };
    let kit = TestInbox::new(shop.inbox().on_failure(OnFailure::Halt).retry(retry).each(
        async move |tx: &mut SqliteConnection, message: &Message| {
            if is_mended.load(Ordering::SeqCst) == 0 {
                return Err("the warehouse is closed".into());
            }
            deduct(tx, message).await
        },
    ));
    kit.deliver(&message("a").json(&1))
        .await
        .assert_stands_still("warehouse is closed")
        .assert_failed_tries(2);
    kit.deliver(&message("b").json(&1)).await.assert_stands_still("halted at a");
    mended.store(1, Ordering::SeqCst);
    kit.deliver(&message("c").json(&1)).await.assert_applied();
    assert_eq!(shop.on_hand().await, 97, "all three");
}

//! Crashes: a handler that keeps to its transaction survives them, and one that does not is found out.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use oncebox::Message;
use oncebox::testing::{TestInbox, message};
use sqlx::SqliteConnection;

use crate::fixture::{Shop, deduct, failure};

#[tokio::test]
async fn what_did_not_commit_is_applied_by_the_next_process() {
    let shop = Shop::new().await;
    let kit = shop.kit();
    let redelivered = kit.crash_before_commit(&message("order-1").json(&5)).await;
    redelivered.assert_applied_once();
    redelivered.second.assert_applied();
    assert_eq!(shop.on_hand().await, 95);
    kit.emitted().await.assert_one("stock.changed");
}

#[tokio::test]
async fn what_committed_unheard_is_a_duplicate_to_the_next_process() {
    let shop = Shop::new().await;
    let kit = shop.kit();
    let redelivered = kit.crash_after_commit(&message("order-1").json(&5)).await;
    redelivered.assert_applied_once();
    redelivered.second.assert_duplicate();
    assert_eq!(shop.on_hand().await, 95);
}

#[tokio::test]
async fn a_rejected_message_is_rejected_whenever_the_process_dies() {
    let shop = Shop::new().await;
    let kit = shop.kit();
    kit.crash_before_commit(&message("a").json(&500)).await.second.assert_rejected("no 500 bolts");
    let parked = kit.crash_after_commit(&message("b").json(&500)).await;
    parked.second.assert_duplicate();
    let said = failure(async {
        parked.assert_applied_once();
    })
    .await;
    assert!(said.contains("expected: applied once"), "{said}");
    assert_eq!(shop.on_hand().await, 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn crashes_do_not_end_what_comes_after_them() {
    let shop = Shop::new().await;
    let kit = shop.kit();
    for n in 0..4 {
        kit.crash_before_commit(&message(format!("before-{n}")).json(&1)).await.assert_applied_once();
        kit.crash_after_commit(&message(format!("after-{n}")).json(&1)).await.assert_applied_once();
    }
    kit.deliver(&message("last").json(&1)).await.assert_applied();
    assert_eq!(shop.on_hand().await, 91);
}

#[tokio::test]
async fn the_promise_holds_for_a_handler_that_keeps_to_its_transaction() {
    let shop = Shop::new().await;
    shop.kit().assert_changes_once(&message("order-1").json(&5), async || shop.on_hand().await).await;
    assert_eq!(shop.on_hand().await, 95);
}

/// A handler that counts somewhere else before it does its work: a file, another database, a mail.
fn outside(shop: &Shop) -> (TestInbox<oncebox::sqlite::SqliteStore>, Arc<AtomicI64>) {
    let sent = Arc::new(AtomicI64::new(0));
    let counted = Arc::clone(&sent);
    let worker = shop.inbox().each(async move |tx: &mut SqliteConnection, message: &Message| {
        counted.fetch_add(1, Ordering::SeqCst);
        deduct(tx, message).await
    });
    (TestInbox::new(worker), sent)
}

#[tokio::test]
async fn work_outside_of_the_transaction_is_done_twice_by_a_crash() {
    let shop = Shop::new().await;
    let (kit, sent) = outside(&shop);
    kit.crash_before_commit(&message("order-1").json(&5)).await.assert_applied_once();
    assert_eq!((shop.on_hand().await, sent.load(Ordering::SeqCst)), (95, 2), "this is how a test finds it");
}

#[tokio::test]
async fn work_outside_of_the_transaction_breaks_the_promise() {
    let shop = Shop::new().await;
    let (kit, sent) = outside(&shop);
    let order = message("order-1").json(&5);
    let said = failure(kit.assert_changes_once(&order, async || sent.load(Ordering::SeqCst))).await;
    assert!(
        said.starts_with("a transaction that did not commit has left something behind: 0 before, 1 after"),
        "{said}"
    );
}

#[tokio::test]
async fn a_second_connection_that_waits_for_the_first_is_found_out() {
    let shop = Shop::new().await;
    let url = format!("{}?mode=rwc", shop.db.url());
    let kit = TestInbox::new(shop.inbox().each(async move |_: &mut SqliteConnection, _: &Message| {
        use sqlx::ConnectOptions;
        let options: sqlx::sqlite::SqliteConnectOptions = url.parse()?;
        let mut other = options.busy_timeout(std::time::Duration::ZERO).connect().await?;
        sqlx::query("UPDATE stock SET on_hand = on_hand - 1").execute(&mut other).await?;
        Ok(())
    }));
    let order = message("order-1");
    let said = failure(kit.assert_changes_once(&order, async || shop.on_hand().await)).await;
    assert!(said.starts_with("the handler was to succeed"), "{said}");
    assert!(
        said.contains("try 1 failed: error returned from database: (code: 5) database is locked"),
        "{said}"
    );
}

#[tokio::test]
async fn a_message_that_changes_nothing_proves_nothing() {
    let shop = Shop::new().await;
    let said = failure(shop.kit().assert_changes_once(&message("a").json(&1), async || 7)).await;
    assert!(said.starts_with("the message has changed nothing: still 7"), "{said}");
}

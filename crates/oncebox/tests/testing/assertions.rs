//! An assertion that fails says what happened instead.

use std::time::Duration;

use oncebox::testing::{TestInbox, message};
use oncebox::{Message, RetryPolicy, retry_after};
use sqlx::SqliteConnection;

use crate::fixture::{Shop, failure};

#[tokio::test]
async fn the_dead_letters_reason_and_the_handlers_errors_are_said() {
    let shop = Shop::new().await;
    let retry = RetryPolicy { attempts: 2, ..RetryPolicy::default() };
    let kit =
        TestInbox::new(shop.inbox().retry(retry).each(async |_: &mut SqliteConnection, _: &Message| {
            Err(retry_after(Duration::from_secs(60), "closed"))
        }));
    let delivered = kit.deliver(&message("order-1")).await;
    let said = failure(async {
        delivered.assert_applied();
    })
    .await;
    assert_eq!(
        said,
        "expected: applied\norder-1 at test/0/0: given up: closed\n  try 1 failed: closed (again after 60s)\n  \
         try 2 failed: closed (again after 60s)"
    );
    let said = failure(async {
        delivered.assert_rejected("closed");
    })
    .await;
    assert!(said.starts_with("expected: rejected for \"closed\"\n"), "nobody has rejected it: {said}");
    let said = failure(async {
        delivered.assert_parked("open").assert_failed_tries(2);
    })
    .await;
    assert!(said.starts_with("expected: parked for \"open\"\n"), "{said}");
    let said = failure(async {
        delivered.assert_parked("closed").assert_failed_tries(3);
    })
    .await;
    assert!(said.starts_with("expected: 3 tries that failed\n"), "{said}");
}

#[tokio::test]
async fn a_panic_of_the_handler_is_said() {
    let shop = Shop::new().await;
    let retry = RetryPolicy { attempts: 1, ..RetryPolicy::default() };
    let kit = TestInbox::new(shop.inbox().retry(retry).each(
        async |_: &mut SqliteConnection, message: &Message| {
            assert!(message.key().is_some(), "no key");
            Ok(())
        },
    ));
    kit.deliver(&message("order-1"))
        .await
        .assert_parked("the handler panicked: no key")
        .assert_failed_tries(1);
}

#[tokio::test]
async fn applied_and_duplicate_are_told_apart() {
    let shop = Shop::new().await;
    let kit = shop.kit();
    let twice = kit.deliver_twice(&message("order-1").json(&1)).await;
    let said = failure(async {
        twice.first.assert_duplicate();
    })
    .await;
    assert_eq!(said, "expected: a duplicate\norder-1 at test/0/0: applied");
    let said = failure(async {
        twice.second.assert_applied();
    })
    .await;
    assert_eq!(said, "expected: applied\norder-1 at test/0/1: a duplicate of what was applied before");
    let said = failure(async {
        twice.second.assert_stands_still("anything");
    })
    .await;
    assert!(said.starts_with("expected: stands still"), "{said}");
}

#[tokio::test]
async fn a_handler_that_does_not_end_is_said() {
    let shop = Shop::new().await;
    let kit = TestInbox::new(shop.inbox().each(async |_: &mut SqliteConnection, _: &Message| {
        std::future::pending::<()>().await;
        Ok(())
    }))
    .patience(Duration::from_millis(100));
    let said = failure(async {
        kit.deliver(&message("order-1")).await.assert_applied();
    })
    .await;
    assert!(
        said.starts_with(
            "not settled after 100ms:\n  order-1 at test/0/0 (failed 0 times; no try has ended)"
        ),
        "{said}"
    );
}

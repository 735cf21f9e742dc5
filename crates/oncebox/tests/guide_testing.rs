//! The code of the guide "Test your handler", and that the guide shows what runs.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::time::Duration;

use oncebox::sqlite::SqliteStore;
use oncebox::testing::{FakeSink, TemporarySqlite, TestInbox, drain, message, message_without_id};
use oncebox::{Emit, Event, Inbox, Relay, Selector, StalePolicy, Worker, reject, retry_after};
use serde_json::json;
use sqlx::SqliteConnection;

#[derive(serde::Deserialize)]
struct Order {
    sku: String,
    qty: i64,
}

async fn deduct(tx: &mut SqliteConnection, order: Order) -> oncebox::Result {
    let sql = "UPDATE stock SET on_hand = on_hand - ?1 WHERE sku = ?2 AND on_hand >= ?1";
    let taken = sqlx::query(sql).bind(order.qty).bind(&order.sku).execute(&mut *tx).await?;
    if taken.rows_affected() == 0 {
        return Err(reject(format!("there are no {} of {}", order.qty, order.sku)));
    }
    let changed = json!({"sku": order.sku, "taken": order.qty});
    tx.emit(Event::to("stock.changed").key(&order.sku).json(&changed)?).await?;
    Ok(())
}

fn worker(store: SqliteStore) -> oncebox::Result<Worker<SqliteStore>> {
    Ok(Inbox::new("stock", store)?.id(Selector::Header("event_id".into())).each_json(deduct))
}

async fn shop() -> TemporarySqlite {
    let db = TemporarySqlite::new().await;
    let tables = "CREATE TABLE stock (sku TEXT, on_hand INTEGER); INSERT INTO stock VALUES ('bolt', 100)";
    sqlx::raw_sql(tables).execute(&mut db.connect().await).await.unwrap();
    db
}

async fn on_hand(db: &TemporarySqlite) -> i64 {
    let sql = "SELECT on_hand FROM stock";
    sqlx::query_scalar(sql).fetch_one(&mut db.connect().await).await.unwrap()
}

#[tokio::test]
async fn an_order_takes_its_goods() -> oncebox::Result {
    let db = shop().await;
    let kit = TestInbox::new(worker(db.store())?);
    kit.deliver(&message("order-1").json(&json!({"sku": "bolt", "qty": 5}))).await.assert_applied();
    assert_eq!(on_hand(&db).await, 95);
    Ok(())
}

#[tokio::test]
async fn copies_and_crashes_change_nothing() -> oncebox::Result {
    let db = shop().await;
    let kit = TestInbox::new(worker(db.store())?);
    let order = |id: &str| message(id).json(&json!({"sku": "bolt", "qty": 5}));

    kit.deliver_twice(&order("order-1")).await.assert_applied_once();
    kit.crash_before_commit(&order("order-2")).await.assert_applied_once();
    kit.crash_after_commit(&order("order-3")).await.assert_applied_once();
    assert_eq!(on_hand(&db).await, 85);
    Ok(())
}

#[tokio::test]
async fn an_order_changes_the_stock_once() -> oncebox::Result {
    let db = shop().await;
    let kit = TestInbox::new(worker(db.store())?);
    let order = message("order-1").json(&json!({"sku": "bolt", "qty": 5}));
    kit.assert_changes_once(&order, async || on_hand(&db).await).await;
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_delivered_is_rejected() -> oncebox::Result {
    let db = shop().await;
    let kit = TestInbox::new(worker(db.store())?);
    let too_much = message("order-1").json(&json!({"sku": "bolt", "qty": 500}));
    kit.deliver(&too_much).await.assert_rejected("no 500 of bolt");
    kit.deliver(&message("order-2").bytes("not JSON")).await.assert_rejected("not the expected JSON");
    kit.deliver(&message_without_id()).await.assert_parked("no header `event_id`");
    kit.emitted().await.assert_none();
    Ok(())
}

#[tokio::test]
async fn an_order_is_told_to_others() -> oncebox::Result {
    let db = shop().await;
    let kit = TestInbox::new(worker(db.store())?);
    kit.deliver(&message("order-1").json(&json!({"sku": "bolt", "qty": 5}))).await.assert_applied();
    let emitted = kit.emitted().await;
    emitted.assert_one("stock.changed").assert_key("bolt").assert_json(&json!({"sku": "bolt", "taken": 5}));
    Ok(())
}

#[tokio::test]
async fn events_are_published_in_order_although_the_broker_fails() -> oncebox::Result {
    let db = shop().await;
    let kit = TestInbox::new(worker(db.store())?);
    for n in 1..=3 {
        kit.deliver(&message(format!("order-{n}")).json(&json!({"sku": "bolt", "qty": n})))
            .await
            .assert_applied();
    }
    let sink = FakeSink::new();
    sink.fail_next(2);
    drain(&db.store(), Relay::new(db.store()).sink(sink.clone())).await;
    let causes: Vec<_> = sink
        .delivered()
        .all()
        .iter()
        .map(|event| event.header("oncebox-causation-id").map(str::to_owned))
        .collect();
    assert_eq!(causes, [Some("order-1".into()), Some("order-2".into()), Some("order-3".into())]);
    Ok(())
}

#[tokio::test]
async fn a_closed_warehouse_is_asked_again_tomorrow() -> oncebox::Result {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let db = shop().await;
    let closed = async |_: &mut SqliteConnection, _: Order| Err(retry_after(DAY, "the warehouse is closed"));
    let kit = TestInbox::new(Inbox::new("stock", db.store())?.each_json(closed));
    let delivered = kit.deliver(&message("order-1").json(&json!({"sku": "bolt", "qty": 5}))).await;
    delivered.assert_parked("the warehouse is closed").assert_failed_tries(5);
    assert_eq!(delivered.failed_tries()[0].retry_after, Some(DAY));
    Ok(())
}

#[tokio::test]
async fn a_copy_that_is_older_than_the_receipts_is_parked() -> oncebox::Result {
    let db = shop().await;
    let inbox = Inbox::new("stock", db.store())?.stale(StalePolicy::Park);
    let kit = TestInbox::new(inbox.each_json(deduct));
    let order = message("order-1").json(&json!({"sku": "bolt", "qty": 5}));
    kit.deliver(&order).await.assert_applied();
    kit.let_retention_pass().await;
    kit.deliver(&order).await.assert_parked("older than the receipts");
    Ok(())
}

#[tokio::test]
async fn orders_that_come_at_once_are_one_transaction() -> oncebox::Result {
    let db = shop().await;
    let kit = TestInbox::new(worker(db.store())?);
    let orders = [1, 500, 2].map(|qty| message(format!("{qty}")).json(&json!({"sku": "bolt", "qty": qty})));
    let delivered = kit.deliver_all(&orders).await;
    delivered[0].assert_applied();
    delivered[1].assert_rejected("no 500");
    delivered[2].assert_applied();
    Ok(())
}

#[test]
fn the_guide_shows_what_runs() {
    let guide = include_str!("../../../docs/guides/testing.md");
    let sources = [
        include_str!("guide_testing.rs"),
        include_str!("../../../examples/stock/src/schema_per_tenant/tests.rs"),
    ];
    let blocks: Vec<&str> = guide
        .split("```rust\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap_or_default().trim())
        .collect();
    assert!(blocks.len() > 8, "only {} blocks of code", blocks.len());
    for block in blocks {
        assert!(sources.iter().any(|source| source.contains(block)), "nobody runs this:\n{block}");
    }
}

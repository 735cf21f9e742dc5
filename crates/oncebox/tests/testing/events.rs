//! What a handler emits, and what becomes of it.

use oncebox::testing::{FakeSink, drain, events, message};
use oncebox::{Emit, Event, Relay};
use serde_json::json;
use sqlx::Connection;

use crate::fixture::{Shop, failure};

#[tokio::test]
async fn events_are_seen_with_topic_key_and_payload() {
    let shop = Shop::new().await;
    let kit = shop.kit();
    kit.emitted().await.assert_none();
    kit.deliver_twice(&message("order-1").json(&5)).await.assert_applied_once();
    let emitted = kit.emitted().await;
    emitted.assert_one("stock.changed").assert_key("bolt").assert_json(&json!({"taken": 5}));
    kit.deliver(&message("order-2").json(&500)).await.assert_rejected("no 500");
    assert_eq!(kit.emitted().await.all().len(), 1, "who rejects emits nothing");
}

#[tokio::test]
async fn events_of_others_are_not_the_handlers() {
    let shop = Shop::new().await;
    let mut conn = shop.db.connect().await;
    let mut tx = conn.begin_with("BEGIN IMMEDIATE").await.unwrap();
    tx.emit(Event::to("shop.opened")).await.unwrap();
    tx.commit().await.unwrap();
    shop.kit().emitted().await.assert_none();
    events(&shop.db.store()).await.assert_one("shop.opened");
}

#[tokio::test]
async fn a_relay_delivers_in_order_and_tries_again() {
    let shop = Shop::new().await;
    let kit = shop.kit();
    for n in 1..=3 {
        kit.deliver(&message(format!("order-{n}")).json(&n)).await.assert_applied();
    }
    let sink = FakeSink::new();
    sink.fail_next(2);
    drain(&shop.db.store(), Relay::new(shop.db.store()).sink(sink.clone())).await;
    let delivered = sink.delivered();
    let taken: Vec<i64> = delivered
        .to("stock.changed")
        .iter()
        .map(|event| event.json::<serde_json::Value>()["taken"].as_i64().unwrap())
        .collect();
    assert_eq!(taken, [1, 2, 3]);
    let first = &delivered.all()[0];
    first.assert_header("oncebox-causation-id", "order-1").assert_header("ce_id", &first.id().to_string());
    kit.emitted().await.assert_none();
}

#[tokio::test]
async fn what_a_sink_rejects_or_fails_too_often_is_parked() {
    let shop = Shop::new().await;
    let kit = shop.kit();
    kit.deliver(&message("order-1").json(&1)).await.assert_applied();
    let sink = FakeSink::new().attempts(2);
    sink.reject_next("no such customer");
    drain(&shop.db.store(), Relay::new(shop.db.store()).sink(sink.clone())).await;
    sink.delivered().assert_none();
    kit.emitted().await.assert_one("stock.changed");

    kit.deliver(&message("order-2").json(&2)).await.assert_applied();
    sink.fail_next(2);
    drain(&shop.db.store(), Relay::new(shop.db.store()).sink(sink.clone())).await;
    sink.delivered().assert_none();

    kit.deliver(&message("order-3").json(&3)).await.assert_applied();
    drain(&shop.db.store(), Relay::new(shop.db.store()).sink(sink.clone())).await;
    sink.delivered().assert_one("stock.changed").assert_json(&json!({"taken": 3}));
}

#[tokio::test]
async fn what_is_there_instead_is_said() {
    let shop = Shop::new().await;
    let kit = shop.kit();
    let said = failure(async {
        kit.emitted().await.assert_one("stock.changed");
    })
    .await;
    assert_eq!(said, "expected: one event to stock.changed\nthere are no events");
    kit.deliver(&message("order-1").json(&5)).await.assert_applied();
    let emitted = kit.emitted().await;
    let said = failure(async {
        emitted.assert_one("stock");
    })
    .await;
    assert_eq!(
        said,
        "expected: one event to stock\nthere are:\n  stock.changed, key bolt: {\\\"taken\\\":5}"
    );
    let event = emitted.assert_one("stock.changed");
    let said = failure(async {
        event.assert_key("nut");
    })
    .await;
    assert!(said.starts_with("expected: the key nut\nstock.changed, key bolt"), "{said}");
    let said = failure(async {
        event.assert_json(&json!({"taken": 6}));
    })
    .await;
    assert!(said.starts_with("expected: the payload {\"taken\":6}\n"), "{said}");
    let said = failure(async {
        event.assert_header("content-type", "text/plain");
    })
    .await;
    assert!(said.contains("it is Some(\"application/json\")"), "{said}");
}

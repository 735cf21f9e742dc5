//! Pipelines whose rows become events.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};
use oncebox_core::store::{ErrorClass, OutboxAdmin, Sweep};
use serde_json::{Value, json};

use super::by_hand::{HOUR, HandRelay, every};
use super::support::database;

fn sweep_of(name: &str, pipeline: &str) -> Sweep {
    Sweep {
        name: name.to_owned(),
        query: format!(r#"{{"aggregate": "orders", "pipeline": {pipeline}}}"#),
        row_key: "_id".to_owned(),
        window: HOUR,
        topic: "t".to_owned(),
        event_key: None,
        limit: 10,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_check_of_a_sweep_names_the_setting() {
    let temporary = database().await;
    let store = temporary.store();
    let orders = temporary.database().await.collection::<Document>("orders");
    orders.insert_one(doc! { "_id": 1 }).await.unwrap();
    let check = async |sweep: Sweep| store.check_sweep(&sweep).await.unwrap_err();
    let counted = r#"[{"$group": {"_id": "$customer", "n": {"$sum": 1}}}]"#;
    let named = Sweep { row_key: "customer.id".to_owned(), ..sweep_of("s", counted) };
    let error = check(named).await.to_string();
    assert!(error.contains("key names the field customer.id, its query has _id, n"), "{error}");
    let error =
        check(Sweep { event_key: Some("sku".to_owned()), ..sweep_of("s", counted) }).await.to_string();
    assert!(error.contains("emit.key names the field sku, its query has _id, n"), "{error}");
    for (pipeline, why) in [
        (r#"[{"$merge": "orders"}]"#, "$merge"),
        (r#"[{"$match": {}}, {"$out": "orders"}]"#, "$out"),
        (r#"[{"$match": {"$nonsense": 1}}]"#, "$nonsense"),
        (r#"[{"$lookup": {"from": "gone", "as": "x", "pipeline": []}}]"#, "gone"),
        ("[7]", "a stage is no object"),
        ("{}", "pipeline"),
    ] {
        let error = oncebox_core::error::describe(&check(sweep_of("s", pipeline)).await);
        assert!(error.contains("sweep s") && error.contains(why), "{pipeline}: {error}");
    }
    for query in [
        "SELECT 1",
        "",
        r#"{"aggregate": "orders", "pipeline": [], "let": {}}"#,
        r#"{"aggregate": 1, "pipeline": []}"#,
    ] {
        let error = check(Sweep { query: query.to_owned(), ..sweep_of("s", "[]") }).await;
        assert_eq!(error.class, ErrorClass::Failed, "{query}: {error}");
    }
    store.check_sweep(&sweep_of("s", counted)).await.unwrap();
    assert!(store.events(&every()).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_writes_every_type_as_json() {
    let temporary = database().await;
    let store = temporary.store();
    let orders = temporary.database().await.collection::<Document>("orders");
    let id = ObjectId::new();
    let at = DateTime::from_millis(1_767_323_045_678);
    let late = doc! {
        "_id": id, "customer": { "id": 7_i64 }, "total": "12.30".parse::<mongodb::bson::Decimal128>().unwrap(), "at": at,
        "none": Bson::Null,
    };
    orders.insert_many([late, doc! { "_id": ObjectId::new(), "at": DateTime::now() }]).await.unwrap();
    // Extended JSON says what JSON cannot.
    let old = r#"[{"$match": {"at": {"$lt": {"$date": "2026-06-01T00:00:00Z"}}}}]"#;
    let sweep = Sweep { event_key: Some("customer.id".to_owned()), ..sweep_of("late", old) };
    store.check_sweep(&sweep).await.unwrap();
    assert_eq!(store.sweep(&sweep).await.unwrap(), 1);
    assert_eq!(store.sweep(&sweep).await.unwrap(), 0);
    let relay = HandRelay::start(&store).await;
    let event = relay.next("t").await.remove(0);
    let row: Value = serde_json::from_slice(event.payload.as_deref().unwrap()).unwrap();
    let expected = json!({
        "_id": id.to_hex(), "customer": {"id": 7}, "total": "12.30", "at": "2026-01-02T03:04:05.678Z", "none": null,
    });
    assert_eq!(row, expected);
    assert_eq!(event.key.as_deref(), Some(b"7".as_slice()));
    assert_eq!(event.headers.last("oncebox-sweep"), Some(b"late".as_slice()));
}

/// Rows that were emitted already do not use up the limit, however many stand in front.
#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_gets_past_many_quiet_rows() {
    let temporary = database().await;
    let store = temporary.store();
    let orders = temporary.database().await.collection::<Document>("orders");
    orders.insert_many((0..2500).map(|n| doc! { "_id": n, "left_out": Bson::Null })).await.unwrap();
    let all =
        Sweep { limit: 2400, ..sweep_of("all", r#"[{"$sort": {"_id": 1}}, {"$unionWith": "orders"}]"#) };
    assert_eq!(store.sweep(&all).await.unwrap(), 2400);
    assert_eq!(store.sweep(&all).await.unwrap(), 100);
    assert_eq!(store.sweep(&all).await.unwrap(), 0);
    let without = Sweep { row_key: "left_out".to_owned(), ..sweep_of("without", "[]") };
    assert_eq!(store.sweep(&without).await.unwrap(), 0, "a row without a key is left out");
}

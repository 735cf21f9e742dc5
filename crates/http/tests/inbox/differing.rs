//! The same id with another body.

use http::StatusCode;
use oncebox::Selector;

use crate::client::post;
use crate::fixture::{Database, PATH, Service, http};

#[tokio::test(flavor = "multi_thread")]
async fn another_body_under_a_used_id_is_422_and_changes_nothing() {
    let db = Database::new().await;
    let service = Service::start(http(), db.inbox()).await;
    assert_eq!(post(PATH, "{}").id("a").to(service.address).await.status, StatusCode::NO_CONTENT);
    for body in ["{ }", "", "reject", "fail"] {
        let other = post(PATH, body).id("a").to(service.address).await;
        let detail = other.problem(422);
        assert!(detail.starts_with("the id a was used for a request with another body"), "{detail}");
        assert_eq!(other.header("retry-after"), None, "no other try can help");
    }
    // How a request is sent is not what it says.
    let copy =
        post(PATH, "{}").id("\"a\"").header("content-type", "application/json").header("x-attempt", "2");
    assert!(copy.to(service.address).await.is_replayed());
    assert_eq!(db.effects().await, ["a"]);
    assert_eq!(db.texts("SELECT message_id FROM oncebox_inbox").await, ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_body_beside_one_that_runs_is_422_once_that_is_done() {
    let db = Database::new().await;
    let service = Service::start(http(), db.inbox()).await;
    let address = service.address;
    let first = tokio::spawn(async move { post(PATH, "wait").id("a").to(address).await });
    service.gate.reached_by(1).await;
    let other = tokio::spawn(async move { post(PATH, "{}").id("a").to(address).await });
    service.gate.open(1);
    assert_eq!(first.await.unwrap().status, StatusCode::NO_CONTENT);
    other.await.unwrap().problem(422);
    assert_eq!(db.effects().await, ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_is_free_for_another_body_if_nothing_of_the_first_stayed_behind() {
    let db = Database::new().await;
    let service = Service::start(http(), db.inbox()).await;
    post(PATH, "reject").id("a").to(service.address).await.problem(422);
    let other = post(PATH, "{}").id("a").to(service.address).await;
    assert!(other.status == StatusCode::NO_CONTENT && !other.is_replayed(), "{other:?}");
    assert_eq!(db.effects().await, ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_are_not_compared_if_the_inbox_does_not_want_it() {
    let db = Database::new().await;
    let service = Service::start(http().compare_bodies(false), db.inbox()).await;
    assert!(!post(PATH, "1").id("a").to(service.address).await.is_replayed());
    assert!(post(PATH, "2").id("a").to(service.address).await.is_replayed());
    assert_eq!(db.texts("SELECT message_id FROM oncebox_inbox WHERE fingerprint IS NULL").await, ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_batch_the_event_that_differs_is_named() {
    let db = Database::new().await;
    let service = Service::start(http(), db.inbox().id(Selector::Json("/id".into()))).await;
    let batch = |body: &'static str| {
        post(PATH, body).header("content-type", "application/cloudevents-batch+json").to(service.address)
    };
    assert_eq!(batch(r#"[{"id":"1","data":1}]"#).await.status, StatusCode::NO_CONTENT);
    let answer = batch(r#"[{"id":"2","data":1}, {"id":"1","data":2}, {"id":"3","data":1}]"#).await;
    assert!(answer.problem(422).starts_with("the id 1 was used"), "{answer:?}");
    let document: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    let events = document["events"].as_array().unwrap();
    assert_eq!((events.len(), &events[0]["index"]), (1, &1.into()));
    assert_eq!(db.effects().await, ["1", "2", "3"], "the others are applied");
}

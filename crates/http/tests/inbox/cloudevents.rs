//! CloudEvents in every mode, and the handshake.

use std::num::NonZeroU32;

use http::{Method, StatusCode};
use oncebox::sqlite::SqliteStore;
use oncebox::{Inbox, Selector};
use oncebox_http::{Handshake, Limits, Origins};

use crate::client::{Answer, Call, post};
use crate::fixture::{Database, PATH, Service, http};

fn inbox(db: &Database) -> Inbox<SqliteStore> {
    db.inbox().id(Selector::CloudEvents)
}

fn batch(body: &str) -> Call {
    post(PATH, body.to_owned()).header("content-type", "application/cloudevents-batch+json")
}

fn event(id: &str, data: &str) -> String {
    format!(r#"{{"specversion":"1.0","id":"{id}","source":"/s","type":"t","data":"{data}"}}"#)
}

fn events_of(answer: &Answer) -> Vec<u64> {
    let document: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    document["events"].as_array().unwrap().iter().map(|event| event["index"].as_u64().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_event_is_the_same_in_every_mode() {
    let db = Database::new().await;
    let service = Service::start(http(), inbox(&db)).await;
    let binary = post(PATH, "{}").header("ce-id", "A%201").header("ce-source", "/s").header("ce-type", "t");
    let structured =
        post(PATH, event("A 1", "")).header("content-type", "application/cloudevents+json; charset=utf-8");
    let answers = [
        binary.to(service.address).await,
        structured.to(service.address).await,
        batch(&format!("[{}]", event("A 1", ""))).to(service.address).await,
    ];
    assert_eq!(answers.each_ref().map(Answer::is_replayed), [false, true, true]);
    assert!(answers.iter().all(|answer| answer.status == 204));
    assert_eq!(db.effects().await, ["/s A 1"]);
    let without = post(PATH, "{}").header("ce-source", "/s").to(service.address).await;
    assert_eq!(without.problem(400), "the message has no id: no header `ce-id`");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_has_one_answer_for_all() {
    let db = Database::new().await;
    let limits = Limits { batch_events: 3, ..Limits::default() };
    let service = Service::start(http().limits(limits), inbox(&db)).await;
    let both = batch(&format!("[{},{}]", event("1", ""), event("2", "")));
    assert!(!both.clone().to(service.address).await.is_replayed());
    assert!(both.to(service.address).await.is_replayed());
    // One of them is new.
    let mixed = batch(&format!("[{},{}]", event("2", ""), event("3", ""))).to(service.address).await;
    assert_eq!((mixed.status, mixed.is_replayed()), (StatusCode::NO_CONTENT, false));
    let empty = batch("[]").to(service.address).await;
    assert_eq!((empty.status, empty.is_replayed()), (StatusCode::NO_CONTENT, false));
    assert_eq!(db.effects().await, ["/s 1", "/s 2", "/s 3"]);

    batch("[{}, ").to(service.address).await.problem(400);
    batch("[{},{},{},{}]").to(service.address).await.problem(413);
    let avro = post(PATH, "").header("content-type", "application/cloudevents-batch+avro");
    avro.to(service.address).await.problem(415);
    let without = batch(&format!(r#"[{},{{"source":"/s"}}]"#, event("4", ""))).to(service.address).await;
    assert!(without.problem(400).contains("nothing at /id"), "{without:?}");
    assert_eq!(events_of(&without), [1]);
    assert_eq!(db.effects().await.len(), 3, "nothing of a malformed batch is applied");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_good_events_of_a_batch_are_applied_and_the_bad_ones_are_named() {
    let db = Database::new().await;
    let service = Service::start(http(), inbox(&db)).await;
    let bad = r#"{"id":"2","source":"/s","bad":true}"#;
    db.execute(
        "CREATE TRIGGER no_two BEFORE INSERT ON effect WHEN new.id = '/s 2' BEGIN SELECT raise(ABORT, 'no'); END",
    )
    .await;
    let call = batch(&format!("[{},{bad},{}]", event("1", ""), event("3", "")));
    let answer = call.clone().to(service.address).await;
    answer.problem(500);
    assert_eq!(events_of(&answer), [1]);
    assert_eq!(db.effects().await, ["/s 1", "/s 3"]);
    db.execute("DROP TRIGGER no_two").await;
    let again = call.to(service.address).await;
    assert_eq!((again.status, again.is_replayed()), (StatusCode::NO_CONTENT, false));
    assert_eq!(db.effects().await, ["/s 1", "/s 3", "/s 2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_events_with_one_id_are_copies_or_a_mistake() {
    let db = Database::new().await;
    let service = Service::start(http(), inbox(&db)).await;
    let copies = batch(&format!("[{},{}]", event("1", "same"), event("1", "same"))).to(service.address).await;
    assert_eq!(copies.status, 204);
    let differ = batch(&format!("[{},{}]", event("2", "one"), event("2", "other"))).to(service.address).await;
    assert!(differ.problem(400).contains("0 and 1"), "{differ:?}");
    assert_eq!(db.effects().await, ["/s 1"]);

    // An id in a header of the request is no id of its events: all but one would be lost.
    let by_header = Database::new().await;
    let service = Service::start(http(), by_header.inbox()).await;
    let answer = batch(&format!("[{},{}]", event("1", ""), event("2", ""))).id("a").to(service.address).await;
    answer.problem(400);
    assert_eq!(by_header.effects().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sender_that_asks_first_is_answered() {
    let db = Database::new().await;
    let only = Origins::Only(vec!["eventgrid.azure.net".to_owned()]);
    let rate = NonZeroU32::new(120);
    let service = Service::start(http().handshake(Handshake { origins: only, rate }), inbox(&db)).await;
    let ask = |origin: &str| {
        post(PATH, "")
            .method(Method::OPTIONS)
            .header("WebHook-Request-Origin", origin)
            .header("WebHook-Request-Rate", "9")
    };
    let yes = ask("eventgrid.azure.net").to(service.address).await;
    assert_eq!(yes.status, 200);
    assert_eq!(yes.header("webhook-allowed-origin"), Some("eventgrid.azure.net"));
    assert_eq!(yes.header("webhook-allowed-rate"), Some("120"));
    assert_eq!(yes.header("allow"), Some("OPTIONS, POST"));
    for no in [ask("evil.example"), post(PATH, "").method(Method::OPTIONS)] {
        let no = no.to(service.address).await;
        assert_eq!((no.header("webhook-allowed-origin"), no.header("webhook-allowed-rate")), (None, None));
    }
    let get = post(PATH, "").method(Method::GET).to(service.address).await;
    get.problem(405);
    assert_eq!(get.header("allow"), Some("OPTIONS, POST"));

    let any = Handshake { origins: Origins::Any, rate: None };
    let service = Service::start(http().handshake(any), inbox(&Database::new().await)).await;
    let yes = ask("whoever.example").to(service.address).await;
    assert_eq!(
        (yes.header("webhook-allowed-origin"), yes.header("webhook-allowed-rate")),
        (Some("*"), Some("*"))
    );
}

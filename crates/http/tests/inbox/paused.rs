//! An inbox that is paused, and messages that it does not want.

use std::time::Duration;

use oncebox::settings::PauseWatch;
use oncebox::store::{PauseNote, Pauses};
use oncebox::{Filter, Selector};
use oncebox_testkit::eventually;

use crate::client::post;
use crate::fixture::{Database, PATH, Service, http};

fn watch() -> PauseWatch {
    PauseWatch::every(Duration::from_millis(5))
}

async fn pause(db: &Database) {
    assert!(db.store().pause(&"test".parse().unwrap(), &PauseNote::by("a test")).await.unwrap());
}

async fn resume(db: &Database) {
    assert!(db.store().resume(&"test".parse().unwrap()).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_told_to_come_again_while_the_inbox_is_paused() {
    let db = Database::new().await;
    let watch = watch();
    let service = Service::start(http(), db.inbox().pauses(watch.clone())).await;
    assert_eq!(post(PATH, "").id("a").to(service.address).await.status, 204);
    pause(&db).await;
    eventually("the process knows", || !watch.paused().is_empty()).await;
    let refused = loop {
        // The door closes a moment later; what comes before is told to come again, too.
        let answer = post(PATH, "").id("b").to(service.address).await;
        let detail = answer.problem(503);
        if detail.contains("paused") {
            break answer;
        }
    };
    assert_eq!(refused.header("retry-after"), Some("5"));
    assert_eq!(db.effects().await, ["a"]);
    resume(&db).await;
    let answer = post(PATH, "").id("b").until_done(service.address).await;
    assert_eq!(answer.status, 204, "{answer:?}");
    assert_eq!(answer.header("idempotent-replayed"), None);
    assert_eq!(db.effects().await, ["a", "b"]);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_when_the_inbox_is_paused_gets_an_answer() {
    let db = Database::new().await;
    let service = Service::start(http(), db.inbox().pauses(watch())).await;
    let address = service.address;
    let running = tokio::spawn(post(PATH, "wait").id("a").to(address));
    service.gate.reached_by(1).await;
    let waiting = tokio::spawn(post(PATH, "").id("b").to(address));
    // The file has one writer, and the handler is in it: the pause comes right after it.
    let pausing = tokio::spawn({
        let store = db.store();
        async move { store.pause(&"test".parse().unwrap(), &PauseNote::by("a test")).await }
    });
    service.gate.open(1);
    assert_eq!(running.await.unwrap().status, 204, "what was in flight is applied, and its sender told so");
    pausing.await.unwrap().unwrap();
    let answer = waiting.await.unwrap();
    let applied = db.effects().await.contains(&"b".to_owned());
    assert_eq!(answer.status.as_u16(), if applied { 204 } else { 503 }, "{answer:?}");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_wanted_is_answered_and_not_applied() {
    let db = Database::new().await;
    let filter = Filter::equals(Selector::Header("x-type".into()), ["shipped"]);
    let service = Service::start(http(), db.inbox().filter(filter)).await;
    let send = |id: &'static str, kind: &'static str| post(PATH, "").id(id).header("x-type", kind);
    assert_eq!(send("a", "shipped").to(service.address).await.status, 204);
    let filtered = send("b", "created").to(service.address).await;
    assert_eq!((filtered.status.as_u16(), filtered.header("oncebox-filtered")), (204, Some("true")));
    let without_id = post(PATH, "").header("x-type", "created").to(service.address).await;
    assert_eq!((without_id.status.as_u16(), without_id.header("oncebox-filtered")), (204, Some("true")));
    assert_eq!(post(PATH, "").header("x-type", "shipped").to(service.address).await.status, 400);
    assert_eq!(db.effects().await, ["a"]);
    assert_eq!(db.texts("SELECT message_id FROM oncebox_inbox").await, ["a"]);
    service.stop().await;
}

/// Of a batch only those are applied that are wanted, and a problem names the place of its event in the batch.
#[tokio::test(flavor = "multi_thread")]
async fn of_a_batch_only_what_is_wanted_is_applied() {
    let db = Database::new().await;
    let filter = Filter::equals(Selector::Json("/type".into()), ["shipped"]);
    let service = Service::start(http(), db.inbox().id(Selector::CloudEvents).filter(filter)).await;
    let event = |id: &str, kind: &str| {
        format!(r#"{{"specversion":"1.0","id":"{id}","source":"/shop","type":"{kind}","data":{{}}}}"#)
    };
    let batch = |events: &[String]| {
        post(PATH, format!("[{}]", events.join(",")))
            .header("content-type", "application/cloudevents-batch+json")
    };
    let sent = [event("1", "created"), event("2", "shipped"), event("3", "created")];
    assert_eq!(batch(&sent).to(service.address).await.status, 204);
    assert_eq!(db.effects().await, ["/shop 2"]);
    let nameless = event("4", "shipped").replace(r#""id":"4","#, "");
    let refused = batch(&[event("5", "created"), nameless]).to(service.address).await;
    let problem = refused.problem(400);
    assert!(problem.contains("id"), "{refused:?}");
    let document: serde_json::Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!(document["events"][0]["index"], 1, "{refused:?}");
    service.stop().await;
}

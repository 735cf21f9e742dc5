//! Each status, by name.

use std::time::Duration;

use http::{Method, StatusCode};
use oncebox::source::CancellationToken;
use oncebox::{BatchBounds, Monitor, OnFailure, Selector};
use oncebox_http::{Limits, Reply};
use oncebox_testkit::eventually;

use crate::client::post;
use crate::fixture::{Database, PATH, Service, http};

#[tokio::test(flavor = "multi_thread")]
async fn applied_is_204_unless_the_reply_says_otherwise() {
    let db = Database::new().await;
    let service = Service::start(http(), db.inbox()).await;
    let answer = post(PATH, "{}").id("a").to(service.address).await;
    assert_eq!((answer.status, answer.body.as_str()), (StatusCode::NO_CONTENT, ""));
    assert!(!answer.is_replayed());
    assert_eq!(db.effects().await, ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_gets_the_same_answer_and_is_told_so() {
    let db = Database::new().await;
    let reply = Reply::new(StatusCode::CREATED).unwrap().body("application/json", r#"{"ok":true}"#).unwrap();
    let service = Service::start(http().reply(reply), db.inbox()).await;
    let first = post(PATH, "{}").id("a").to(service.address).await;
    for key in ["a", "\"a\""] {
        let copy = post(PATH, "{}").id(key).to(service.address).await;
        for answer in [&first, &copy] {
            assert_eq!((answer.status, answer.body.as_str()), (StatusCode::CREATED, r#"{"ok":true}"#));
            assert_eq!(answer.header("content-type"), Some("application/json"));
        }
        assert!(!first.is_replayed() && copy.is_replayed());
    }
    assert_eq!(db.effects().await, ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_or_bad_id_is_400() {
    let db = Database::new().await;
    let service = Service::start(http(), db.inbox()).await;
    let without = post(PATH, "{}").to(service.address).await;
    assert_eq!(without.problem(400), "the message has no id: no header `idempotency-key`");
    for (key, part) in [
        ("", "the message id is empty"),
        ("\"\"", "the message id is empty"),
        ("\"half", "RFC 8941"),
        (&*"x".repeat(513), "513 bytes"),
    ] {
        let answer = post(PATH, "{}").id(key).to(service.address).await;
        assert!(answer.problem(400).contains(part), "{answer:?}");
    }
    let twice = post(PATH, "{}").id("a").id("b").to(service.address).await;
    assert!(twice.problem(400).contains("more than once"));
    assert_eq!(db.effects().await, [""; 0]);
    assert_eq!(db.texts("SELECT message_id FROM oncebox_dead").await, [""; 0], "nothing is kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_is_422_with_the_reason_and_leaves_nothing_behind() {
    let db = Database::new().await;
    let service = Service::start(http(), db.inbox()).await;
    let answer = post(PATH, "reject").id("a").to(service.address).await;
    assert_eq!(answer.problem(422), "there is no such\\u{1b}[2J sku");
    // The sender mends its message and sends it again.
    assert_eq!(post(PATH, "{}").id("a").to(service.address).await.status, 204);
    assert_eq!(db.effects().await, ["a"]);
    assert_eq!(db.texts("SELECT message_id FROM oncebox_dead").await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_is_500_without_the_details_and_leaves_nothing_behind() {
    let db = Database::new().await;
    let service = Service::start(http(), db.inbox()).await;
    let answer = post(PATH, "fail").id("a").to(service.address).await;
    assert!(!answer.problem(500).contains("canary"), "{answer:?}");
    let again = post(PATH, "{}").id("a").to(service.address).await;
    assert_eq!((again.status, again.is_replayed()), (StatusCode::NO_CONTENT, false));
    assert_eq!(db.effects().await, ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_message_does_not_hurt_its_neighbours() {
    let db = Database::new().await;
    let service = Service::start(http(), db.inbox()).await;
    let calls = (0..60).map(|n| {
        let body = ["{}", "reject", "{}", "fail"][n % 4];
        let (address, id) = (service.address, format!("m-{n}"));
        tokio::spawn(async move { (body, post(PATH, body).id(id).to(address).await.status) })
    });
    for call in calls.collect::<Vec<_>>() {
        let (body, status) = call.await.unwrap();
        let expected = match body {
            "reject" => 422,
            "fail" => 500,
            _ => 204,
        };
        assert_eq!(status, expected, "{body}");
    }
    assert_eq!(db.effects().await.len(), 30);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_not_as_it_should_be_is_503() {
    let db = Database::new().await;
    let service = Service::start(http(), db.inbox()).await;
    db.execute("ALTER TABLE oncebox_inbox RENAME TO elsewhere").await;
    let answer = post(PATH, "{}").id("a").to(service.address).await;
    assert!(!answer.problem(503).contains("table"), "{answer:?}");
    assert_eq!(answer.header("retry-after"), Some("5"));
    db.execute("ALTER TABLE elsewhere RENAME TO oncebox_inbox").await;
    assert_eq!(post(PATH, "{}").id("a").to(service.address).await.status, 204);
    assert_eq!(db.effects().await, ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_away_is_503_and_leaves_nothing_behind() {
    let db = Database::new().await;
    let service = Service::start(http(), db.inbox()).await;
    let answer = post(PATH, "away").id("a").to(service.address).await;
    answer.problem(503);
    assert_eq!(answer.header("retry-after"), Some("5"));
    assert_eq!(db.texts("SELECT message_id FROM oncebox_inbox").await, [""; 0]);
    assert_eq!(post(PATH, "{}").id("a").to(service.address).await.status, 204, "the sender's next try works");
}

#[tokio::test(flavor = "multi_thread")]
async fn too_large_is_413_and_headers_are_431() {
    let db = Database::new().await;
    let limits = Limits { body_bytes: 100, header_bytes: 2_000, header_count: 20, ..Limits::default() };
    let service = Service::start(http().limits(limits), db.inbox()).await;
    let fits = post(PATH, "x".repeat(100)).id("a").to(service.address).await;
    assert_eq!(fits.status, 204);
    let large = post(PATH, "x".repeat(101)).id("b").to(service.address).await;
    assert!(large.problem(413).contains("100 bytes"), "{large:?}");
    let header = post(PATH, "{}").id("c").header("x-long", "x".repeat(2_000)).to(service.address).await;
    assert!(header.problem(431).contains("2000"), "{header:?}");
    let many = (0..20).fold(post(PATH, "{}").id("d"), |call, n| call.header(&format!("x-{n}"), ""));
    many.to(service.address).await.problem(431);
    assert_eq!(db.effects().await, ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_for_the_inbox_is_413_too() {
    let db = Database::new().await;
    let mut settings = oncebox::Settings::default();
    settings.identity.id = Selector::Header("idempotency-key".into());
    settings.identity.limits.payload_bytes = 10;
    settings.on_failure = OnFailure::GiveBack;
    let service = Service::start(http(), db.inbox().settings(settings)).await;
    let answer = post(PATH, "x".repeat(11)).id("a").to(service.address).await;
    assert_eq!(answer.problem(413), "the payload has 11 bytes, more than the limit of 10");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_method_is_405() {
    let db = Database::new().await;
    let service = Service::start(http(), db.inbox()).await;
    for method in [Method::GET, Method::PUT, Method::DELETE, Method::PATCH, Method::OPTIONS] {
        let answer = post(PATH, "").id("a").method(method).to(service.address).await;
        answer.problem(405);
        assert_eq!(answer.header("allow"), Some("POST"));
    }
    assert_eq!(post("/in/others", "").to(service.address).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inbox_that_does_not_run_is_503() {
    let (router, _source) = http().open().unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    tokio::spawn(oncebox_http::serve(listener, router, oncebox_http::ServerLimits::default(), stop));
    let answer = post(PATH, "{}").id("a").to(address).await;
    assert!(answer.problem(503).contains("does not run"), "{answer:?}");
    assert_eq!(answer.header("retry-after"), Some("5"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inbox_whose_ids_no_request_can_have_does_not_run_and_says_why() {
    let db = Database::new().await;
    let (monitor, stop) = (Monitor::default(), CancellationToken::new());
    let _stop = stop.clone().drop_guard();
    let (_router, source) = http().open().unwrap();
    let inbox = db.inbox().id(Selector::Header("Idempotency-Key".into())).monitor(monitor.clone());
    tokio::spawn(inbox.each(async |_, _| Ok(())).serve(source, stop));
    let says_why = || {
        let errors = monitor.report().into_iter().filter_map(|report| report.error);
        errors.into_iter().any(|error| error.contains("write header:idempotency-key"))
    };
    eventually("it says why", says_why).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_is_503() {
    let db = Database::new().await;
    let inbox = db.inbox().batch_bounds(BatchBounds { messages: 1, bytes: 1_000_000 });
    let service = Service::start(http(), inbox).await;
    let (running, waiting) = service.fill_the_queue().await;
    service.gate.open(3);
    for call in waiting.into_iter().chain([running]) {
        assert_eq!(call.await.unwrap().status, 204);
    }
    assert_eq!(db.effects().await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_requests_at_once_are_503() {
    let db = Database::new().await;
    let limits = Limits { requests: 1, ..Limits::default() };
    let service = Service::start(http().limits(limits), db.inbox()).await;
    let address = service.address;
    let running = tokio::spawn(async move { post(PATH, "wait").id("a").to(address).await });
    service.gate.reached_by(1).await;
    let answer = post(PATH, "{}").id("b").to(address).await;
    assert!(answer.problem(503).contains("too many requests"), "{answer:?}");
    service.gate.open(1);
    assert_eq!(running.await.unwrap().status, 204);
    assert_eq!(post(PATH, "{}").id("b").to(address).await.status, 204, "there is a place again");
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_bytes_at_once_are_503() {
    let db = Database::new().await;
    let limits = Limits { bytes: 1_000, ..Limits::default() };
    let service = Service::start(http().limits(limits), db.inbox()).await;
    let answer = post(PATH, "x".repeat(1_001)).id("a").to(service.address).await;
    assert!(answer.problem(503).contains("large requests"), "{answer:?}");
    for id in ["b", "c", "d"] {
        let answer = post(PATH, "x".repeat(1_000)).id(id).to(service.address).await;
        assert_eq!(answer.status, 204, "the memory was given back");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_when_the_inbox_closes_is_503_and_who_runs_is_applied() {
    let db = Database::new().await;
    let inbox = db.inbox().batch_bounds(BatchBounds { messages: 1, bytes: 1_000_000 });
    let service = Service::start(http(), inbox).await;
    let (running, waiting) = service.fill_the_queue().await;
    service.tell_worker_to_stop();
    service.gate.open(3);
    assert_eq!(running.await.unwrap().status, 204);
    for call in waiting {
        let answer = call.await.unwrap();
        answer.problem(503);
        assert_eq!(answer.header("retry-after"), Some("5"));
    }
    post(PATH, "{}").id("g").to(service.address).await.problem(503);
    assert_eq!(db.effects().await, ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_in_time_is_503_and_the_next_try_tells() {
    let db = Database::new().await;
    let limits = Limits { answer_within: Duration::from_millis(50), ..Limits::default() };
    let service = Service::start(http().limits(limits), db.inbox()).await;
    let late = post(PATH, "wait").id("a").to(service.address).await;
    assert!(late.problem(503).contains("still under way"), "{late:?}");
    service.gate.open(1);
    let again = post(PATH, "wait").id("a").until_done(service.address).await;
    assert!(again.status == 204 && again.is_replayed(), "{again:?}");
    assert_eq!(db.effects().await, ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_as_a_dead_letter_is_202() {
    let db = Database::new().await;
    let service = Service::start(http(), db.inbox().on_failure(OnFailure::Park)).await;
    assert_eq!(post(PATH, "reject").id("a").to(service.address).await.status, 202);
    assert_eq!(db.texts("SELECT message_id FROM oncebox_dead").await, ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tenant_and_the_key_are_where_they_are_said_to_be() {
    let db = Database::new().await;
    let http =
        oncebox_http::HttpInbox::apply("/in/{tenant}".parse().unwrap()).key(Selector::Header("x-sku".into()));
    let service = Service::start(http, db.inbox().tenant(Selector::Path("tenant".into()))).await;
    for tenant in ["acme", "zenith", "acme", "m%C3%BCller%2Fbar"] {
        let call = post(&format!("/in/{tenant}"), "{}").id("a").header("X-Sku", "bolt");
        assert_eq!(call.to(service.address).await.status, 204);
    }
    let rows = db.texts("SELECT tenant || ' ' || id || ' ' || key FROM effect ORDER BY n").await;
    assert_eq!(rows, ["acme a bolt", "zenith a bolt", "müller/bar a bolt"]);
    post("/in/%FF", "{}").id("a").to(service.address).await.problem(400);
}

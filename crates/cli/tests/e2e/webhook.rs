//! Events that go out by HTTP, to receivers of every kind.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;

use crate::support::database::Kind;
use crate::support::endpoint::{Endpoint, Reply, Request};
use crate::support::outbox::Written;
use crate::support::world::World;
use crate::support::{eventually, on_each_server};

on_each_server!(refused_events_are_parked_for_an_operator);

const SECRET: &str = "a secret of the two of us";

/// A world whose events go to this receiver.
async fn world_with(endpoint: &Endpoint, more: &str) -> World {
    world_on(Kind::Postgres, endpoint, more).await
}

async fn world_on(kind: Kind, endpoint: &Endpoint, more: &str) -> World {
    let mut world = World::with_relay_on(kind, 1).await;
    world.config.more = format!(
        "[[webhook]]\ntopics = [\"{}\"]\nurl = \"{}\"\nsecret = \"{SECRET}\"\n{more}\n",
        world.topic.name,
        endpoint.url()
    );
    world
}

/// An event of this key, in a transaction of its own.
async fn write_one(world: &World, key: &str) -> Written {
    let mut writer = world.writer(key, 1).await;
    writer.write(1).await;
    writer.written.remove(0)
}

/// It fails in all ways that may pass: the event comes again, always as the same, and only its own key waits.
#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_fails_in_many_ways_gets_the_event_again() {
    let endpoint = Endpoint::start(|request, before| {
        match (request.header("oncebox-key").split_once('-').map(|(name, _)| name), before) {
            (Some("slow"), 0) => Reply::After(Duration::from_secs(120)),
            (Some("error"), 0) => Reply::Status(500),
            (Some("error"), 1) => Reply::Status(429),
            (Some("cut"), 0) => Reply::Cut,
            _ => Reply::Status(200),
        }
    })
    .await;
    let world = world_with(&endpoint, "timeout = \"1s\"\nretry = { backoff = \"100ms..500ms\" }").await;
    let mut events = Vec::new();
    for key in ["slow", "error", "cut", "fine"] {
        let mut writer = world.writer(key, 1).await;
        for _ in 0..3 {
            writer.write(1).await;
        }
        events.push((key, writer.written));
    }
    let daemon = world.start();
    world.outbox_empties().await;

    for (key, written) in &events {
        let tries = match *key {
            "slow" | "cut" => 2,
            "error" => 3,
            _ => 1,
        };
        for event in written {
            let requests = endpoint.requests_of(&event.id);
            assert_eq!(requests.len(), tries, "{event:?}: {requests:#?}");
            requests.iter().for_each(|request| is_well_made(&world, event, request));
        }
        let mine: Vec<String> = written.iter().map(|event| event.id.clone()).collect();
        let mut order: Vec<String> =
            endpoint.requests().iter().map(|r| r.id().to_owned()).filter(|id| mine.contains(id)).collect();
        order.dedup();
        assert_eq!(order, mine, "{key}: in order, none before the one that failed has arrived");
    }
    assert_eq!(world.topic_records(), 0, "Kafka gets none of them");
    daemon.stop();
}

fn is_well_made(world: &World, event: &Written, request: &Request) {
    assert_eq!(request.line, "POST /hook HTTP/1.1");
    assert_eq!(request.body.replace(' ', ""), format!("{{\"n\":{}}}", event.n));
    for (name, value) in [
        ("idempotency-key", event.id.as_str()),
        ("oncebox-id", &event.id),
        ("oncebox-key", &event.key),
        ("oncebox-topic", &world.topic.name),
        ("ce-id", &event.id),
        ("ce-specversion", "1.0"),
        ("ce-type", &world.topic.name),
        ("content-type", "application/json"),
        ("webhook-id", &event.id),
    ] {
        assert_eq!(request.header(name), value, "{name}");
    }
    let mut hmac: Hmac<Sha256> = Hmac::new_from_slice(SECRET.as_bytes()).expect("any length");
    let signed = format!("{}.{}.{}", event.id, request.header("webhook-timestamp"), request.body);
    hmac.update(signed.as_bytes());
    let signature = format!("v1,{}", BASE64_STANDARD.encode(hmac.finalize().into_bytes()));
    assert_eq!(request.header("webhook-signature"), signature);
}

/// One that never answers holds up its own key, and nobody else.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_fails_for_ever_holds_up_nobody_else() {
    let endpoint = Endpoint::start(|request, _| match request.header("oncebox-key") {
        "bad-0" => Reply::Status(503),
        _ => Reply::Status(200),
    })
    .await;
    let world = world_with(&endpoint, "retry = { backoff = \"100ms..200ms\" }\nat_once = 2").await;
    let mut bad = world.writer("bad", 1).await;
    let mut good = world.writer("good", 20).await;
    let daemon = world.start();
    for _ in 0..10 {
        bad.write(5).await;
        good.write(20).await;
    }
    eventually("all others are delivered", async || world.outbox_rows().await == 50).await;
    let delivered: BTreeSet<String> =
        endpoint.requests().iter().map(|request| request.id().to_owned()).collect();
    assert!(good.written.iter().all(|event| delivered.contains(&event.id)));
    assert_eq!(endpoint.requests_of(&bad.written[1].id).len(), 0, "behind the first");
    let first = bad.written[0].id.clone();
    eventually("it is tried again and again", async || endpoint.requests_of(&first).len() >= 3).await;
    // While it is being tried it is not held.
    eventually("it is listed with its error", async || {
        let listed = world.oncebox(&["outbox", "list", "--state", "held", "--output", "json"]).json();
        let error = listed[0]["error"].as_str();
        listed[0]["id"] == first.as_str() && error.is_some_and(|error| error.contains("503"))
    })
    .await;
    daemon.stop();
}

/// What the receiver calls wrong is parked; an operator looks at it, retries it when the receiver is mended, or drops it. A redirect
/// says nothing about the event.
async fn refused_events_are_parked_for_an_operator(kind: Kind) {
    // What comes first of each key is refused.
    let known: Mutex<BTreeSet<String>> = Mutex::default();
    let endpoint = Endpoint::start(move |request, _| {
        let key = request.header("oncebox-key");
        match (known.lock().expect("no panic").insert(key.to_owned()), key) {
            (true, "moved-0") => Reply::Redirect,
            (true, _) => Reply::Status(400),
            _ => Reply::Status(200),
        }
    })
    .await;
    let world = world_on(kind, &endpoint, "").await;
    let refused = write_one(&world, "refused").await;
    let dropped = write_one(&world, "dropped").await;
    let moved = write_one(&world, "moved").await;
    let daemon = world.start();
    let list = || {
        let answer = world.oncebox(&["outbox", "list", "--state", "parked", "--output", "json"]);
        answer.json().as_array().cloned().unwrap_or_default()
    };
    eventually("two are parked, one has arrived", async || {
        list().len() == 2 && world.outbox_rows().await == 2
    })
    .await;
    // Later events of the same key are not held up.
    let mut writer = world.writer("refused", 1).await;
    writer.write(1).await;
    let next = writer.written[0].clone();
    eventually("the next one is delivered", async || endpoint.requests_of(&next.id).len() == 1).await;

    let listed = list();
    let of = |event: &Written| -> Value {
        let found = listed.iter().find(|entry| entry["id"] == event.id.as_str());
        found.unwrap_or_else(|| panic!("{event:?} is not listed: {listed:#?}")).clone()
    };
    for event in [&refused, &dropped] {
        let entry = of(event);
        assert_eq!(entry["state"], "parked", "{entry:#}");
        assert_eq!(entry["key"], event.key.as_str(), "{entry:#}");
        assert!(entry["error"].as_str().is_some_and(|error| error.contains("400")), "{entry:#}");
    }
    assert!(endpoint.requests().iter().all(|request| request.line.contains(" /hook ")), "nothing elsewhere");

    let seq = |event: &Written| of(event)["number"].to_string();
    world.oncebox(&["outbox", "drop", &seq(&dropped)]).exits(0);
    world.oncebox(&["outbox", "retry", &seq(&refused)]).exits(0);
    world.outbox_empties().await;
    world.oncebox(&["outbox", "list"]).exits(0);
    world.oncebox(&["outbox", "list", "--state", "parked"]).exits(1);
    for (event, times) in [(&refused, 2), (&dropped, 1), (&moved, 2)] {
        assert_eq!(endpoint.requests_of(&event.id).len(), times, "{event:?}");
    }
    daemon.stop();
}

/// After its last attempt an event is parked, where the configuration says how many there are.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_parked_after_its_last_attempt() {
    let endpoint = Endpoint::start(|_, _| Reply::Status(500)).await;
    let world = world_with(&endpoint, "retry = { attempts = 3, backoff = \"50ms..100ms\" }").await;
    let event = write_one(&world, "k").await;
    let daemon = world.start();
    eventually("it is parked", async || {
        world.db.number("SELECT COUNT(*) FROM oncebox_outbox WHERE parked_at IS NOT NULL").await == 1
    })
    .await;
    assert_eq!(endpoint.requests_of(&event.id).len(), 3);
    eventually("the metric shows it", async || daemon.metric("oncebox_outbox_parked").await == Some(1.0))
        .await;
    daemon.stop();
}

/// The daemon is killed while the receiver works on the event: it comes again, with the same id.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_daemon_delivers_again_with_the_same_id() {
    let endpoint = Endpoint::start(|_, before| match before {
        0 => Reply::After(Duration::from_secs(120)),
        _ => Reply::Status(200),
    })
    .await;
    let world = world_with(&endpoint, "timeout = \"60s\"").await;
    let event = write_one(&world, "k").await;
    let daemon = world.start();
    eventually("it has arrived", async || endpoint.requests_of(&event.id).len() == 1).await;
    daemon.kill();
    assert_eq!(world.outbox_rows().await, 1);
    let daemon = world.start();
    world.outbox_empties().await;
    let requests = endpoint.requests();
    assert_eq!(requests.len(), 2);
    requests.iter().for_each(|request| is_well_made(&world, &event, request));
    daemon.stop();
}

//! Receivers in trouble: they are spared, nothing is given up, order holds, and everybody else goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use crate::support::database::Kind;
use crate::support::endpoint::{Endpoint, Reply, Request};
use crate::support::outbox::Written;
use crate::support::world::World;
use crate::support::{eventually, on_each_server};

on_each_server!(
    mysql: answers_that_say_nothing_about_an_event_park_nothing, a_key_is_parked_as_a_whole_and_released_in_order
);

/// A world whose events go to this receiver.
async fn world_on(kind: Kind, endpoint: &Endpoint, more: &str) -> World {
    let mut world = World::with_relay_on(kind, 1).await;
    world.config.more = webhook(&world.topic.name, &endpoint.url(), more);
    world
}

fn webhook(topic: &str, url: &str, more: &str) -> String {
    format!("[[webhook]]\ntopics = [\"{topic}\"]\nurl = \"{url}\"\nsecret = \"s\"\n{more}\n")
}

fn away(endpoint: &Endpoint) -> String {
    format!("oncebox_webhook_away{{receiver=\"{}\"}}", endpoint.origin())
}

/// An endpoint that answers with this status until it is changed.
async fn endpoint_with(status: u16) -> (Endpoint, Arc<AtomicU16>) {
    let status = Arc::new(AtomicU16::new(status));
    let answered = Arc::clone(&status);
    (Endpoint::start(move |_, _| Reply::Status(answered.load(Ordering::SeqCst))).await, status)
}

/// How many attempts are written down against events.
async fn blamed(world: &World) -> usize {
    let listed = world.oncebox(&["outbox", "list", "--output", "json"]).json();
    let tried = |e: &&serde_json::Value| e["attempts"].as_i64().is_some_and(|attempts| attempts > 0);
    listed.as_array().map(|all| all.iter().filter(tried).count()).unwrap_or_default()
}

/// Answers that say nothing about an event, for a while, then well: everything arrives, in order.
async fn answers_that_say_nothing_about_an_event_park_nothing(kind: Kind) {
    let (endpoint, status) = endpoint_with(404).await;
    let world = world_on(kind, &endpoint, "retry = { backoff = \"100ms..500ms\" }").await;
    let mut writer = world.writer("k", 20).await;
    writer.write(200).await;
    let daemon = world.start();
    for trouble in [404, 401, 403, 301, 500] {
        status.store(trouble, Ordering::SeqCst);
        let before = endpoint.requests().len();
        eventually("it is tried", async || endpoint.requests().len() > before + 2).await;
    }
    eventually("it is shown", async || daemon.metric(&away(&endpoint)).await == Some(1.0)).await;
    assert_eq!(world.outbox_rows().await, 200);
    assert!(blamed(&world).await < 20, "most were never tried");
    writer.write(20).await;
    status.store(200, Ordering::SeqCst);
    world.outbox_empties().await;
    endpoint.has_received(&writer.written);
    eventually("it is well", async || daemon.metric(&away(&endpoint)).await == Some(0.0)).await;
    assert_eq!(daemon.metric("oncebox_relay_parked_total").await.unwrap_or_default(), 0.0);
    let log = daemon.stop();
    let count = |text: &str| log.lines().filter(|line| line.contains(text)).count();
    assert!(log.contains("404 Not Found"), "{log}");
    assert_eq!(count("a receiver takes events again"), 1, "{log}");
    assert!(count("an event is held") <= 10, "a line now and then says it as well:\n{log}");
}

/// `on_failure = "park-key"`: nothing overtakes a parked event of its key, and an operator releases them in their order.
async fn a_key_is_parked_as_a_whole_and_released_in_order(kind: Kind) {
    let mended = Arc::new(AtomicU16::new(400));
    let answered = Arc::clone(&mended);
    let endpoint = Endpoint::start(move |request, _| {
        let is_wrong =
            request.header("oncebox-key") == "bad-0" && request.body.replace(' ', "") == "{\"n\":1}";
        Reply::Status(if is_wrong { answered.load(Ordering::SeqCst) } else { 200 })
    })
    .await;
    let world = world_on(kind, &endpoint, "on_failure = \"park-key\"").await;
    let (mut bad, mut good) = (world.writer("bad", 1).await, world.writer("good", 5).await);
    bad.write(5).await;
    good.write(20).await;
    let daemon = world.start();
    let parked = || {
        let listed = world.oncebox(&["outbox", "list", "--state", "parked", "--output", "json"]).json();
        listed.as_array().cloned().unwrap_or_default()
    };
    eventually("the key is parked", async || parked().len() == 4 && world.outbox_rows().await == 4).await;
    bad.write(3).await;
    good.write(20).await;
    eventually("what comes later is parked too", async || {
        parked().len() == 7 && world.outbox_rows().await == 7
    })
    .await;
    endpoint.has_received(&[&good.written[..], &bad.written[..2]].concat());
    let listed = parked();
    let (first, behind) = listed.split_first().expect("seven");
    assert!(first["error"].as_str().is_some_and(|error| error.contains("400")), "{first:#}");
    let number = first["number"].as_i64().or(first["seq"].as_i64()).expect("a number");
    let expected = format!("behind event {number}: retry or drop that one first");
    assert!(behind.iter().all(|entry| entry["error"] == expected.as_str()), "{listed:#?}");

    mended.store(200, Ordering::SeqCst);
    world.oncebox(&["outbox", "retry", "--key", "bad-0"]).exits(0);
    world.outbox_empties().await;
    endpoint.has_received(&[&good.written[..], &bad.written].concat());
    daemon.stop();
}

/// `/healthz` names what the receiver does, and nothing that it says; what recovered is green again.
#[tokio::test(flavor = "multi_thread")]
async fn health_is_red_while_a_receiver_is_away_and_green_when_it_is_back() {
    let (endpoint, status) = endpoint_with(403).await;
    let world = world_on(Kind::Postgres, &endpoint, "retry = { backoff = \"100ms..500ms\" }").await;
    let mut writer = world.writer("k", 10).await;
    writer.write(10).await;
    let daemon = world.start();
    let red = world.turns(&daemon, 503).await;
    let expected = format!("{} answers 403 Forbidden", endpoint.origin());
    let of_relay: Vec<_> = red.iter().filter(|l| l["name"] == "relay").collect();
    assert_eq!(of_relay.len(), 1, "{red:#?}");
    assert_eq!(of_relay[0]["error"], expected.as_str(), "{red:#?}");
    status.store(200, Ordering::SeqCst);
    world.outbox_empties().await;
    world.turns(&daemon, 200).await;
    endpoint.has_received(&writer.written);
    daemon.stop();
}

/// A receiver that asks for a pause has it, whichever event it asked for.
#[tokio::test(flavor = "multi_thread")]
async fn retry_after_holds_the_endpoint() {
    let first = Arc::new(AtomicU16::new(0));
    let endpoint = Endpoint::start(move |_, _| match first.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::Later(503, 4),
        _ => Reply::Status(200),
    })
    .await;
    let world = world_on(
        Kind::Postgres,
        &endpoint,
        "at_once = 1\nretry = { attempts = 1, backoff = \"100ms..200ms\" }",
    )
    .await;
    let mut writer = world.writer("k", 10).await;
    writer.write(50).await;
    let daemon = world.start();
    world.outbox_empties().await;
    endpoint.has_received(&writer.written);
    let requests = endpoint.requests();
    assert_eq!(requests.len(), 51, "one of them came twice");
    let pause = requests[1].at - requests[0].at;
    // Clocks are read before the answer is written, so it looks a bit shorter at most.
    assert!(pause > Duration::from_millis(3900), "it asked for four seconds and got {pause:?}");
    daemon.stop();
}

/// A broken endpoint costs one request per pause; its events are not blamed, and those of other endpoints go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_endpoint_is_tried_by_one_request_at_a_time() {
    let (endpoint, status) = endpoint_with(503).await;
    let other = Endpoint::start(|_, _| Reply::Status(200)).await;
    let more = "retry = { attempts = 3, backoff = \"1s..2s\" }";
    let mut world = world_on(Kind::Postgres, &endpoint, more).await;
    world.config.more.push_str(&webhook("other", &other.url(), ""));
    let mut writer = world.writer("k", 50).await;
    writer.write(100).await;
    let daemon = world.start();
    eventually("it is away", async || daemon.metric(&away(&endpoint)).await == Some(1.0)).await;
    let mut good = world.writer("good", 10).await.to("other");
    good.write(200).await;
    eventually("the others have arrived", async || world.outbox_rows().await == 100).await;
    other.has_received(&good.written);
    // Eight at once until the fifth failure is known.
    let burst = 4 + 8;
    eventually("it is tried some more", async || endpoint.requests().len() >= burst + 5).await;
    let requests = endpoint.requests();
    for two in requests[burst..].windows(2) {
        let pause = two[1].at - two[0].at;
        assert!(pause > Duration::from_millis(400), "{pause:?} between two");
    }
    assert!(blamed(&world).await <= burst);
    assert_eq!(
        daemon.metric("oncebox_relay_parked_total").await.unwrap_or_default(),
        0.0,
        "in spite of `attempts`"
    );
    status.store(200, Ordering::SeqCst);
    world.outbox_empties().await;
    endpoint.has_received(&writer.written);
    daemon.stop();
}

/// Keys whose requests hang are tried one at a time, and leave the requests to the others.
#[tokio::test(flavor = "multi_thread")]
async fn hanging_keys_do_not_starve_the_others() {
    let hangs = |request: &Request| request.header("oncebox-key").starts_with("hang");
    let endpoint = Endpoint::start(move |request, _| match hangs(request) {
        true => Reply::After(Duration::from_secs(600)),
        false => Reply::Status(200),
    })
    .await;
    let more = "timeout = \"1s\"\nat_once = 2\nretry = { backoff = \"100ms..200ms\" }";
    let world = world_on(Kind::Postgres, &endpoint, more).await;
    let mut hanging = world.writer("hang", 4).await;
    let mut good = world.writer("good", 20).await;
    hanging.write(8).await;
    good.write(20).await;
    let daemon = world.start();
    let arrived =
        |written: &[Written]| written.iter().all(|event| !endpoint.requests_of(&event.id).is_empty());
    let tries = || endpoint.requests().into_iter().filter(hangs).collect::<Vec<_>>();
    eventually("each has hung", async || {
        // So that there is a success between them: they fail, and not the endpoint.
        good.write(2).await;
        tries().iter().map(|request| request.id().to_owned()).collect::<std::collections::BTreeSet<_>>().len()
            == 4
    })
    .await;
    let known = tries().len();
    eventually("the others flow, and those that hang are tried now and then", async || {
        good.write(20).await;
        tries().len() >= known + 4
    })
    .await;
    eventually("all others have arrived", async || arrived(&good.written)).await;
    // Those that were under way when the last of them became known do not count.
    for two in tries()[known + 2..].windows(2) {
        let pause = two[1].at - two[0].at;
        assert!(pause > Duration::from_secs(3), "after a second of hanging others have three: {pause:?}");
    }
    assert!(!arrived(&hanging.written[4..]), "order holds: nothing goes before the one that hangs");
    daemon.kill();
}

/// A token in the path is as secret as one in the query: neither the log nor any command nor the database shows it.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_in_the_path_is_in_no_output() {
    let endpoint = Endpoint::start(|request, _| match request.header("oncebox-key") {
        "refused-0" => Reply::Echo(400),
        _ => Reply::Echo(404),
    })
    .await;
    let mut world = World::with_relay_on(Kind::Postgres, 1).await;
    let url = format!("{}/services/T0CANARY/canary-token", endpoint.origin());
    world.config.more = webhook(&world.topic.name, &url, "retry = { backoff = \"100ms..200ms\" }");
    for name in ["refused", "missing"] {
        world.writer(name, 1).await.write(1).await;
    }
    let mut many = world.writer("many", 10).await;
    let daemon = world.start_with(&["--log", "debug"], &[]);
    eventually("both have failed", async || {
        let listed = world.oncebox(&["outbox", "list", "--output", "json"]).json();
        let errors = listed.as_array().map(|all| all.iter().filter(|e| e["error"].is_string()).count());
        errors == Some(2)
    })
    .await;
    many.write(10).await;
    eventually("it is away", async || daemon.metric(&away(&endpoint)).await == Some(1.0)).await;
    let mut outputs = Vec::new();
    for command in [&["check"][..], &["status"], &["outbox", "list"]] {
        outputs.push(world.oncebox(command).to_string());
    }
    let listed = world.oncebox(&["outbox", "list", "--output", "json"]).json();
    for entry in listed.as_array().into_iter().flatten() {
        let number = entry["number"].as_i64().or(entry["seq"].as_i64()).expect("a number");
        outputs.push(world.oncebox(&["outbox", "show", &number.to_string()]).to_string());
    }
    assert!(outputs.iter().any(|shown| shown.contains("POST ***")), "{outputs:#?}");
    for path in ["/healthz", "/metrics"] {
        outputs.push(daemon.get(path).await.expect("an answer").body);
    }
    outputs.push(daemon.stop());
    assert!(
        endpoint.requests().iter().all(|request| request.line.contains("/services/T0CANARY/canary-token "))
    );
    for output in outputs {
        assert!(!output.to_lowercase().contains("canary"), "{output}");
    }
}

//! The outbox without any service: a SQLite file, webhooks on this machine, the real binary.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "support/command.rs"]
mod command;
#[path = "support/daemon.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod daemon;
#[path = "support/endpoint.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod endpoint;
#[path = "support/folder.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod folder;
#[path = "support/waiting.rs"]
mod waiting;

use endpoint::{Endpoint, Reply};
use folder::Folder;
use serde_json::{Value, json};
use waiting::eventually;

/// With these sections of the configuration.
async fn outbox_with(sections: &str) -> Folder {
    let store = "[store]\nurl = \"sqlite://test.sqlite\"\n[http]\nlisten = \"127.0.0.1:0\"\n";
    Folder::new(&format!("{store}{sections}")).await
}

/// With a relay whose only webhook takes `invoice.*`.
async fn outbox_with_webhook(url: &str, more: &str) -> Folder {
    let webhook = format!("[[webhook]]\ntopics = [\"invoice.*\"]\nurl = \"{url}\"\nsecret = \"canary\"\n");
    outbox_with(&format!("[outbox]\nrelay = true\n{more}\n{webhook}")).await
}

/// The numbers of what a command lists.
fn listed(world: &Folder, arguments: &[&str], code: i32) -> Vec<i64> {
    let listed = world.json(arguments, code);
    listed.as_array().unwrap().iter().map(|event| event["number"].as_i64().unwrap()).collect()
}

/// Events 1 to 5: pending, pending, held, parked, published.
const IN_EVERY_STATE: &str = r#"
    INSERT INTO oncebox_outbox (topic, key, payload, headers, causation_id)
        VALUES ('stock.changed', 'A-1', '{"qty":2}', '{"team":"erp"}', 'order-7');
    INSERT INTO oncebox_outbox (topic, key) VALUES ('stock.changed', 'A-2');
    INSERT INTO oncebox_outbox (topic, key, payload, attempts, error, held_until)
        VALUES ('invoice.mail', 'A-1', 'x', 3, 'away', '2100-01-01T00:00:00.000Z');
    INSERT INTO oncebox_outbox (topic, payload, attempts, error, parked_at)
        VALUES ('invoice.mail', 'y', 1, 'refused', '2020-01-01T00:00:00.000Z');
    INSERT INTO oncebox_outbox (topic, payload, published_at)
        VALUES ('invoice.mail', 'z', '2020-01-01T00:00:00.000Z');
"#;

#[tokio::test]
async fn events_are_found_by_number_and_by_filter() {
    let world = outbox_with("").await;
    assert_eq!(world.json(&["outbox", "list"], 0), json!([]));
    assert_eq!(world.json(&["outbox", "list", "--topic", "t"], 1), json!([]));
    world.execute(IN_EVERY_STATE).await;

    assert_eq!(listed(&world, &["outbox", "list"], 0), [1, 2, 3, 4], "all that is not published");
    assert_eq!(listed(&world, &["outbox", "list", "--limit", "2"], 0), [1, 2]);
    assert_eq!(listed(&world, &["outbox", "list", "--limit", "2", "--after", "2"], 0), [3, 4]);
    for (state, numbers) in [("pending", &[1, 2][..]), ("held", &[3]), ("parked", &[4]), ("published", &[5])]
    {
        assert_eq!(listed(&world, &["outbox", "list", "--state", state], 0), numbers, "{state}");
    }
    assert_eq!(listed(&world, &["outbox", "list", "--topic", "stock.changed"], 0), [1, 2]);
    assert_eq!(listed(&world, &["outbox", "list", "--key", "A-1"], 0), [1, 3]);
    assert_eq!(listed(&world, &["outbox", "list", "--key", "A-1", "--topic", "invoice.mail"], 0), [3]);
    assert_eq!(
        listed(&world, &["outbox", "list", "4", "5"], 0),
        [4, 5],
        "what is named is shown, published or not"
    );
    assert_eq!(listed(&world, &["outbox", "list", "--topic", "nothing"], 1), [0_i64; 0]);

    let event = world.json(&["outbox", "show", "1"], 0);
    for (field, value) in [
        ("topic", json!("stock.changed")),
        ("key", json!("A-1")),
        ("payload", json!("{\"qty\":2}")),
        ("headers", json!([{"name": "team", "value": "erp"}])),
        ("state", json!("pending")),
        ("causation_id", json!("order-7")),
        ("attempts", json!(0)),
    ] {
        assert_eq!(event[field], value, "{field} of {event:#}");
    }
    let id = event["id"].as_str().unwrap().to_owned();
    assert_eq!(listed(&world, &["outbox", "list", "--id", &id], 0), [1]);
    let text = world.oncebox(&["outbox", "show", "3"]).exits(0).stdout;
    assert!(text.contains("held until 2100-01-01") && text.contains("error       away"), "{text}");
    let table = world.oncebox(&["outbox", "list"]).exits(0).stdout;
    assert!(table.contains("parked at 2020-01-01") && table.contains("refused"), "{table}");
    world.oncebox(&["outbox", "show", "99"]).exits(1).says(&["no event 99"]);

    let status = world.json(&["status"], 0)["outbox"].clone();
    assert_eq!((&status["pending"], &status["held"], &status["parked"]), (&json!(3), &json!(1), &json!(1)));
    assert!(status["oldest_seconds"].is_number(), "{status:#}");
    let shards = status["shards"].as_array().unwrap();
    assert_eq!(shards.len(), 16);
    assert_eq!(shards[0], json!({"shard": 0, "owner": null, "epoch": 0, "expires_in_seconds": null}));
    let table = world.oncebox(&["status"]).exits(0).stdout;
    assert!(
        table.contains("outbox: 3 pending") && table.contains("(nobody)") && table.contains("0-15"),
        "{table}"
    );
}

#[tokio::test]
async fn events_are_retried_and_dropped_on_purpose_only() {
    let world = outbox_with("").await;
    world.execute(IN_EVERY_STATE).await;
    world.oncebox(&["outbox", "retry"]).exits(2).says(&["say which events", "--all"]);
    world.oncebox(&["outbox", "drop"]).exits(2).says(&["say which events", "--all"]);
    world
        .oncebox(&["outbox", "retry", "--state", "published"])
        .exits(2)
        .says(&["only parked, held and delayed"]);

    assert_eq!(listed(&world, &["outbox", "retry", "--all", "--dry-run"], 0), [3, 4]);
    assert_eq!(listed(&world, &["outbox", "drop", "--all", "--dry-run"], 0), [4]);
    assert_eq!(listed(&world, &["outbox", "drop", "--state", "pending", "--dry-run"], 0), [1, 2]);
    assert_eq!(listed(&world, &["outbox", "list"], 0), [1, 2, 3, 4], "a dry run changes nothing");

    let nothing = world.oncebox(&["outbox", "drop", "1"]).exits(1).says(&["no parked event matches"]);
    assert!(nothing.stdout.contains("dropped 0 events"), "{nothing}");
    assert_eq!(world.json(&["outbox", "retry", "1", "5"], 1)["retried"], 0);
    assert_eq!(world.json(&["outbox", "retry", "--topic", "invoice.mail"], 0)["retried"], 2);
    assert_eq!(listed(&world, &["outbox", "list", "--state", "pending"], 0), [1, 2, 3, 4]);
    assert_eq!(world.json(&["outbox", "drop", "--all"], 1)["dropped"], 0, "nothing is parked any more");
    assert_eq!(world.json(&["outbox", "drop", "1", "--state", "pending"], 0)["dropped"], 1);
    assert!(
        world.oncebox(&["outbox", "drop", "--state", "pending"]).exits(0).stdout.contains("dropped 3 events")
    );
    assert_eq!(listed(&world, &["outbox", "list"], 0), [0_i64; 0]);
}

#[tokio::test]
async fn an_operator_parks_what_waits_and_says_why() {
    let world = outbox_with("").await;
    world.execute(IN_EVERY_STATE).await;
    world.oncebox(&["outbox", "park", "1"]).exits(2).says(&["--reason"]);
    world.oncebox(&["outbox", "park", "--reason", "x"]).exits(2).says(&["say which events", "--all"]);
    world
        .oncebox(&["outbox", "park", "--state", "parked", "--reason", "x"])
        .exits(2)
        .says(&["only held, delayed and pending"]);
    let dry = ["outbox", "park", "--all", "--reason", "x", "--dry-run"];
    assert_eq!(listed(&world, &dry, 0), [1, 2, 3]);
    let parked = world.json(&["outbox", "park", "1", "3", "4", "5", "--reason", "wrong address"], 0);
    assert_eq!(parked["parked"], 2, "what is parked or published does not wait");
    assert_eq!(listed(&world, &["outbox", "list", "--state", "parked"], 0), [1, 3, 4]);
    let event = world.json(&["outbox", "show", "3"], 0);
    assert_eq!((&event["error"], &event["attempts"]), (&json!("wrong address"), &json!(3)), "{event:#}");
    assert_eq!(world.json(&["outbox", "park", "1", "--reason", "again"], 1)["parked"], 0);
    let audit = world.json(&["audit", "--action", "park event"], 0);
    assert_eq!(audit[1]["parameters"]["reason"], "wrong address", "{audit:#}");
    assert_eq!(audit[1]["result"]["parked"], 2, "{audit:#}");
    assert_eq!(world.json(&["outbox", "retry", "1"], 0)["retried"], 1);
    assert_eq!(listed(&world, &["outbox", "list", "--state", "pending"], 0), [1, 2]);
}

/// More than a page, in one go.
#[tokio::test]
async fn many_events_are_changed_page_by_page() {
    let world = outbox_with("").await;
    world
        .execute(
            "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 450)
             INSERT INTO oncebox_outbox (topic, payload, parked_at, error)
             SELECT 't', 'x', '2020-01-01T00:00:00.000Z', 'refused' FROM n",
        )
        .await;
    assert_eq!(listed(&world, &["outbox", "retry", "--all", "--dry-run"], 0).len(), 450);
    assert_eq!(world.json(&["outbox", "retry", "--all"], 0)["retried"], 450);
    assert_eq!(world.json(&["outbox", "drop", "--state", "pending"], 0)["dropped"], 450);
}

#[tokio::test]
async fn purge_removes_published_events() {
    let world = outbox_with("[outbox]\nkeep = \"1d\"\n").await;
    world.execute(IN_EVERY_STATE).await;
    world
        .execute(
            "INSERT INTO oncebox_outbox (topic, published_at) VALUES ('t', strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))",
        )
        .await;
    assert_eq!(world.json(&["purge", "--dry-run"], 0)["events"], 1);
    assert_eq!(world.json(&["purge"], 0)["events"], 1);
    assert_eq!(world.json(&["purge"], 0)["events"], 0);
    assert_eq!(listed(&world, &["outbox", "list", "--state", "published"], 0), [6]);
    assert!(world.oncebox(&["purge"]).exits(0).stdout.contains("0 published events"));
}

/// The whole way: another process writes an event, the daemon posts it, and lets go of everything at SIGTERM.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_of_another_process_reaches_a_webhook() {
    let receiver = Endpoint::start(|_, _| Reply::Status(200)).await;
    let world = outbox_with_webhook(&receiver.url(), "source = \"/erp\"").await;
    let daemon = world.run();
    daemon.ready().await;
    assert_eq!(daemon.metric("oncebox_relay_published_total").await, Some(0.0));
    world.execute(r#"INSERT INTO oncebox_outbox (topic, key, payload) VALUES ('invoice.mail', 'A-1', '{"total":5}')"#).await;
    eventually("the event arrives", async || !receiver.requests().is_empty()).await;
    let request = receiver.requests().remove(0);
    assert_eq!(request.body, r#"{"total":5}"#);
    for (name, value) in [("ce-type", "invoice.mail"), ("ce-source", "/erp"), ("oncebox-key", "A-1")] {
        assert_eq!(request.header(name), value, "{name}");
    }
    assert!(request.header("webhook-signature").starts_with("v1,"));
    assert_eq!(request.header("oncebox-id"), request.id());

    eventually("it is counted", async || daemon.metric("oncebox_relay_published_total").await == Some(1.0))
        .await;
    for series in ["oncebox_outbox_pending", "oncebox_outbox_held", "oncebox_outbox_parked"] {
        eventually(series, async || daemon.metric(series).await == Some(0.0)).await;
    }
    let status = world.json(&["status"], 0)["outbox"].clone();
    let shards = status["shards"].as_array().unwrap();
    assert_eq!(shards.len(), 16);
    assert!(
        shards.iter().all(|shard| shard["owner"].as_str().is_some_and(|o| o.contains("process"))),
        "{status:#}"
    );
    assert!(shards.iter().all(|shard| shard["expires_in_seconds"].as_f64() > Some(0.0)), "{status:#}");
    let (code, health) = daemon.health().await.unwrap();
    assert_eq!(code, 200, "{health:#}");
    let log = daemon.stop();
    assert!(!log.contains("canary"), "{log}");
    assert_eq!(listed(&world, &["outbox", "list"], 0), [0_i64; 0], "it is removed");
    let status = world.json(&["status"], 0)["outbox"].clone();
    assert!(status["shards"].as_array().unwrap().iter().all(|s| s["owner"].is_null()), "{status:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_nowhere_to_go_is_parked_and_can_be_dropped() {
    let receiver = Endpoint::start(|_, _| Reply::Status(200)).await;
    let world = outbox_with_webhook(&receiver.url(), "").await;
    world.execute("INSERT INTO oncebox_outbox (topic, payload) VALUES ('stock.changed', 'x')").await;
    let daemon = world.run();
    let parked = async || !world.json(&["outbox", "list"], 0)[0]["error"].is_null();
    eventually("it is parked", parked).await;
    assert_eq!(listed(&world, &["outbox", "list", "--state", "parked"], 0), [1]);
    daemon.stop();
    assert_eq!(world.json(&["outbox", "drop", "--all"], 0)["dropped"], 1);
    assert!(receiver.requests().is_empty());
}

/// `/healthz` is red as long as an event waits for too long, and says what to do.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_waits_too_long_turns_health_red() {
    // Nobody listens there.
    let world = outbox_with_webhook("http://127.0.0.1:1/", "max_age = \"1s\"").await;
    let daemon = world.run();
    daemon.ready().await;
    let alarm = async || {
        let (code, health) = daemon.health().await?;
        let outbox = health["loops"].as_array()?.iter().find(|l| l["name"] == "outbox")?.clone();
        Some((code, outbox["alarm"].as_str().map(str::to_owned)))
    };
    assert_eq!(alarm().await, Some((200, None)));
    world.execute("INSERT INTO oncebox_outbox (topic, payload) VALUES ('invoice.mail', 'x')").await;
    eventually("red", async || alarm().await.is_some_and(|(code, text)| code == 503 && text.is_some())).await;
    let text = alarm().await.unwrap().1.unwrap();
    assert!(text.contains("outbox.max_age = 1s") && text.contains("oncebox outbox list"), "{text}");
    assert!(daemon.metric("oncebox_outbox_oldest_seconds").await > Some(1.0));

    // Between two tries it is held; while it is tried, it may be either.
    eventually("it is dropped", async || {
        ["held", "pending"]
            .iter()
            .any(|state| world.oncebox(&["outbox", "drop", "--state", state]).code == Some(0))
    })
    .await;
    eventually("green", async || alarm().await == Some((200, None))).await;
    daemon.stop();
}

/// A delayed event is no failure, however long ago it was written, and goes out when somebody says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_delayed_event_waits_without_an_alarm() {
    let receiver = Endpoint::start(|_, _| Reply::Status(200)).await;
    let world = outbox_with_webhook(&receiver.url(), "max_age = \"1s\"").await;
    world
        .execute(
            "INSERT INTO oncebox_outbox (topic, key, payload, created_at, deliver_at) VALUES
                ('invoice.mail', 'A-1', 'later', '2020-01-01T00:00:00.000Z', '2999-01-01 00:00:00'),
                ('invoice.mail', 'A-1', 'behind', '2020-01-01T00:00:00.000Z', NULL),
                ('invoice.mail', 'A-2', 'now', '2020-01-01T00:00:00.000Z', NULL)",
        )
        .await;
    let daemon = world.run();
    daemon.ready().await;
    eventually("the others arrive", async || !receiver.requests().is_empty()).await;
    eventually("it is held", async || daemon.metric("oncebox_outbox_delayed").await == Some(1.0)).await;
    eventually("green", async || daemon.health().await.is_some_and(|(code, _)| code == 200)).await;
    assert_eq!(daemon.metric("oncebox_outbox_oldest_seconds").await, Some(0.0));
    let status = world.json(&["status"], 0)["outbox"].clone();
    assert_eq!((&status["pending"], &status["delayed"], &status["held"]), (&json!(2), &json!(1), &json!(1)));
    assert_eq!(status["oldest_seconds"], Value::Null);
    let table = world.oncebox(&["outbox", "list"]).exits(0).stdout;
    assert!(table.contains("delayed until 2999-01-01"), "{table}");
    assert_eq!(listed(&world, &["outbox", "list", "--state", "delayed"], 0), [1]);
    assert_eq!(world.json(&["outbox", "show", "1"], 0)["deliver_at"], json!("2999-01-01T00:00:00Z"));

    world.oncebox(&["outbox", "retry", "1"]).exits(1).says(&["no parked or held event matches"]);
    assert_eq!(receiver.requests().len(), 1);
    assert_eq!(world.json(&["outbox", "retry", "1", "--state", "delayed"], 0)["retried"], 1);
    eventually("it arrives", async || receiver.requests().len() == 3).await;
    let bodies: Vec<String> = receiver.requests().into_iter().map(|request| request.body).collect();
    assert_eq!(bodies, ["now", "later", "behind"]);
    daemon.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_whose_time_is_over_is_parked() {
    let receiver = Endpoint::start(|_, _| Reply::Status(200)).await;
    let world = outbox_with_webhook(&receiver.url(), "").await;
    world
        .execute(
            r#"INSERT INTO oncebox_outbox (topic, key, payload, headers) VALUES
                ('invoice.mail', 'A-1', 'x', '{"ce_expirytime": "2020-01-01T01:00:00+01:00"}'),
                ('invoice.mail', 'A-1', 'y', '{"ce_expirytime": "2999-01-01T00:00:00Z"}')"#,
        )
        .await;
    let daemon = world.run();
    eventually("the other one arrives", async || !receiver.requests().is_empty()).await;
    assert_eq!(receiver.requests()[0].header("ce-expirytime"), "2999-01-01T00:00:00Z");
    eventually("it is published", async || listed(&world, &["outbox", "list"], 0) == [1]).await;
    daemon.stop();
    let parked = world.json(&["outbox", "show", "1"], 0);
    assert_eq!(parked["state"], json!("parked"));
    let error = parked["error"].as_str().unwrap();
    assert_eq!(error, "it expired at 2020-01-01T00:00:00.000Z and was not published before");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_emits_each_row_once() {
    let sweep = |sql: &str| {
        format!(
            "[[sweep]]\nname = \"due\"\nevery = \"1s\"\nsql = \"{sql}\"\nkey = \"id\"\n\
             emit = {{ topic = \"invoice.mail\", key = \"customer\" }}\n"
        )
    };
    // Neither a relay nor Kafka is needed.
    let world = outbox_with(&sweep("SELECT id, customer FROM invoice")).await;
    world.oncebox(&["run"]).exits(3).says(&["sweep due", "invoice"]);
    let found = world.json(&["check"], 1);
    let line = found.as_array().unwrap().iter().find(|f| f["subject"] == "sweep due").unwrap().clone();
    assert_eq!(line["level"], "error", "{line}");

    world.execute("CREATE TABLE invoice (id INTEGER, customer TEXT)").await;
    world.execute("INSERT INTO invoice VALUES (1, 'A-1'), (2, 'A-2')").await;
    world.json(&["check"], 0);
    let daemon = world.run();
    let keys = || {
        let events = world.oncebox(&["outbox", "list", "--output", "json"]).json();
        events.as_array().unwrap().iter().map(|e| e["key"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    eventually("two events", async || keys().len() >= 2).await;
    world.execute("INSERT INTO invoice VALUES (3, 'A-3')").await;
    eventually("a third", async || keys().contains(&"A-3".to_owned())).await;
    assert_eq!(keys(), ["A-1", "A-2", "A-3"], "the others were swept again, and not emitted again");
    let (code, health) = daemon.health().await.unwrap();
    assert_eq!(code, 200, "{health:#}");
    assert!(health["loops"].as_array().unwrap().iter().any(|l| l["name"] == "sweep:due"), "{health:#}");
    daemon.stop();
}

#[tokio::test]
async fn check_looks_at_webhooks() {
    let relay = "[outbox]\nrelay = true\n";
    let webhook = |topics: &str, more: &str| format!("[[webhook]]\ntopics = [\"{topics}\"]\n{more}\n");
    let world = outbox_with(
        &[
            relay,
            &webhook("a", "url = \"http://u:canary@192.0.2.1/?token=canary\"\nsecret = \"canary\""),
            &webhook("b", "url = \"http://127.0.0.1:1/\""),
            &webhook("c", "url = \"http://127.0.0.1:1/\"\nsecret = \"s\""),
            &webhook("c", "url = \"http://127.0.0.1:1/\"\nsecret = \"s\"\nname = \"crm\"\ncopy = true"),
            &webhook("d", "url = \"http://127.0.0.1:1/\"\nheaders = { \"content-length\" = \"1\" }"),
        ]
        .concat(),
    )
    .await;
    let answer = world.oncebox(&["check", "--output", "json"]).exits(1);
    assert!(!answer.to_string().contains("canary"), "{answer}");
    let found = answer.json();
    let of = |subject: &str| {
        let line = found.as_array().unwrap().iter().find(|f| f["subject"] == subject);
        let line = line.unwrap_or_else(|| panic!("nothing about {subject}: {found:#}"));
        (line["level"].as_str().unwrap().to_owned(), line["detail"].as_str().unwrap().to_owned())
    };
    let expected = [
        ("outbox", "ok", "there is no [kafka]"),
        ("webhook a", "warning", "http://192.0.2.1 gets the events unencrypted"),
        ("webhook b", "warning", "set `secret`"),
        ("webhook c", "ok", "signed"),
        ("webhook crm (c)", "ok", "copies go to http://127.0.0.1:1, signed"),
        ("webhook d", "error", "content-length"),
    ];
    for (subject, level, word) in expected {
        let (found_level, detail) = of(subject);
        assert!(found_level == level && detail.contains(word), "{subject}: {found_level} {detail}");
    }
    world.oncebox(&["run"]).exits(3).says(&["webhook[4] (http://127.0.0.1:1)", "content-length"]);
}

/// Bytes that are no text come out as they went in.
#[tokio::test]
async fn bytes_of_an_event_are_not_lost() {
    let world = outbox_with("").await;
    world
        .execute("INSERT INTO oncebox_outbox (topic, key, payload) VALUES ('t', x'00FF01', x'00FF01')")
        .await;
    for event in [world.json(&["outbox", "show", "1"], 0), world.json(&["outbox", "list"], 0)[0].clone()] {
        for part in ["key", "payload"] {
            assert_eq!(
                (&event[part], &event[format!("{part}_base64")]),
                (&json!(null), &json!("AP8B")),
                "{event:#}"
            );
        }
    }
    let text = world.oncebox(&["outbox", "show", "1"]).exits(0).stdout;
    assert!(text.contains("0x00ff01 (3 bytes, not UTF-8)"), "{text}");
    let raw = command::oncebox(world.path()).args(["outbox", "show", "1", "--raw"]).output().unwrap();
    assert_eq!((raw.status.code(), raw.stdout.as_slice()), (Some(0), &[0x00, 0xff, 0x01][..]));
    world.execute("INSERT INTO oncebox_outbox (topic) VALUES ('t')").await;
    world.oncebox(&["outbox", "show", "2", "--raw"]).exits(1).says(&["no payload"]);
}

//! The dashboard of the real binary, on a SQLite file: from a message that fails to its effect in the database.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "support/command.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod command;

#[path = "support/served.rs"]
mod served;

use command::Answer;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use served::{CONFIG, execute, serve, sold, world};

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_failed_is_found_and_put_right() {
    let folder = world(CONFIG).await;
    let server = serve(&folder, &["run"]);
    server.eventually("the inbox is open", |s| s.deliver("order-1", "bolt") == 202);
    server.eventually("the dashboard has its database", |s| s.get("/").status == 200);
    server.eventually("the letter is counted", |s| s.get("/").body.contains("1 dead letter of orders"));
    let list = server.get("/dead?consumer=orders").body;
    assert!(list.contains("order-1") && !list.contains("bolt&quot;"), "{list}");
    let number = server.json("/api/v1/dead-letters")["letters"][0]["number"].as_i64().unwrap();
    let letter = server.get(&format!("/dead/{number}?payload=show"));
    assert!(letter.body.contains("bolt"), "{}", letter.body);

    let failed = server.act("replay-dead", &format!("{{\"numbers\":[{number}]}}"));
    assert_eq!(failed["state"], "incomplete", "{failed}");
    assert!(failed["details"][0].as_str().unwrap().contains("rows"), "{failed}");

    execute(&folder, "INSERT INTO stock VALUES ('bolt', 0)").await;
    let form = format!("numbers={number}");
    let reply = server.send("POST", "/do/replay-dead", &[("sec-fetch-site", "same-origin")], &form);
    assert_eq!(reply.status, 303, "{}", reply.body);
    let job = reply.head.lines().find_map(|line| line.strip_prefix("location: ")).unwrap();
    server.eventually("it is replayed", |s| s.get(job).body.contains("Replayed 1 dead letter"));
    assert_eq!(sold(&folder, "bolt").await, 1);
    assert_eq!(server.deliver("order-1", "bolt"), 202);
    server.eventually("the copy is suppressed", |s| {
        s.json("/api/v1/overview")["consumers"][0]["duplicates_suppressed"] == 1
    });
    assert_eq!(sold(&folder, "bolt").await, 1, "a copy changes nothing");
    let audit = server.json("/api/v1/audit");
    assert_eq!(audit["actions"][0]["who"], "dashboard:local", "{audit}");
    assert_eq!(audit["actions"][0]["action"], "replay", "{audit}");
    assert!(server.get("/dead").body.contains("every message was applied"));
    assert_eq!(server.get(&format!("/dead/{number}")).status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_are_exported_by_the_server_and_by_the_command() {
    let folder = world(CONFIG).await;
    let server = serve(&folder, &["run"]);
    server.eventually("the inbox is open", |s| s.deliver("order-1", "bolt") == 202);
    for nth in 2..=5 {
        server.deliver(&format!("order-{nth}"), "bolt");
    }
    server.eventually("the letters are there", |s| {
        s.json("/api/v1/dead-letters")["letters"].as_array().unwrap().len() == 5
    });
    let numbers = |text: &str| -> Vec<i64> {
        let of = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["number"].as_i64();
        text.lines().filter_map(of).collect()
    };
    let command = Answer::of(folder.path(), ["dead", "export", "--consumer", "orders"]).exits(0);
    let served = server.get("/api/v1/dead-letters/export?consumer=orders");
    // The server sends it in pieces, and between them how long each is.
    let lines: Vec<&str> = served.body.lines().filter(|line| line.starts_with('{')).collect();
    assert_eq!(numbers(&command.stdout), numbers(&lines.join("\n")));
    assert_eq!(numbers(&command.stdout).len(), 5);
    assert!(command.stdout.contains("bolt") && !served.body.contains("bolt"), "the server masks payloads");
    let cut = Answer::of(folder.path(), ["dead", "export", "--limit", "2"]).exits(0);
    assert_eq!(numbers(&cut.stdout).len(), 2);
    assert!(cut.stderr.contains("--before"), "{cut:?}");
    let last = numbers(&cut.stdout)[1].to_string();
    let rest = Answer::of(folder.path(), ["dead", "export", "--before", &last]).exits(0);
    assert_eq!(numbers(&rest.stdout).len(), 3);
    Answer::of(folder.path(), ["dead", "export", "--consumer", "nobody"]).exits(1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_replay_would_do_is_told_and_a_letter_is_edited_and_replayed() {
    let folder = world(CONFIG).await;
    execute(&folder, "INSERT INTO stock VALUES ('nut', 0)").await;
    let server = serve(&folder, &["run"]);
    server.eventually("the inbox is open", |s| s.deliver("order-1", "bolt") == 202);
    server.eventually("the letter is there", |s| s.json("/api/v1/dead-groups")["groups"][0]["letters"] == 1);
    let group = server.json("/api/v1/dead-groups")["groups"][0]["group"].as_str().unwrap().to_owned();
    let dry = server.act("replay-dead", &format!("{{\"group\":\"{group}\",\"dry_run\":true}}"));
    assert_eq!((&dry["said"], &dry["dry_run"]), (&"1 of 1 dead letter would run".into(), &true.into()));
    let number = server.json("/api/v1/dead-letters")["letters"][0]["number"].as_i64().unwrap();
    let edit = |seen: u32| {
        let payload = "{\\\"sku\\\":\\\"nut\\\"}";
        let body =
            format!("{{\"number\":{number},\"seen\":{seen},\"payload\":\"{payload}\",\"replay\":true}}");
        server.act("edit-dead", &body)
    };
    let stale = edit(1);
    assert_eq!(stale["state"], "failed", "{stale}");
    assert!(stale["said"].as_str().unwrap().contains("somebody else"), "{stale}");
    let done = edit(0);
    assert_eq!(done["state"], "done", "{done}");
    assert_eq!(sold(&folder, "nut").await, 1);
    let found = server.json("/api/v1/find?id=order-1");
    assert_eq!((&found["seen"], &found["consumers"][0]["state"]), (&true.into(), &"settled".into()));
    let answer = Answer::of(folder.path(), ["find", "order-1", "--output", "json"]).exits(0);
    assert!(answer.stdout.contains("\"seen\": true"), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_is_paused_and_resumed_while_it_runs() {
    let folder = world(CONFIG).await;
    execute(&folder, "INSERT INTO stock VALUES ('bolt', 0)").await;
    let server = serve(&folder, &["run"]);
    server.eventually("the dashboard has its database", |s| s.get("/").status == 200);
    let paused = server.act("pause", "{\"consumer\": \"orders\", \"reason\": \"counting\"}");
    assert_eq!((paused["state"].as_str(), paused["count"].as_u64()), (Some("done"), Some(1)), "{paused}");
    let page = server.get("/consumers/orders").body;
    assert!(page.contains("counting") && page.contains("local"), "{page}");
    // Every process sees it within some seconds.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    server.eventually("the inbox is open", |s| s.deliver("order-2", "bolt") == 202);
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(sold(&folder, "bolt").await, 0, "nothing new is taken");
    server.act("resume", "{\"consumer\": \"orders\"}");
    server.eventually("it goes on", |s| s.json("/api/v1/overview")["consumers"][0]["applied"] == 1);
    assert_eq!(sold(&folder, "bolt").await, 1);
    let refused = server.send("POST", "/api/v1/actions/pause", &[], "{\"consumer\": \"order\"}");
    assert!(refused.body.contains("there is no consumer order"), "{}", refused.body);
    let health = server.get("/health").body;
    assert!(health.contains("handler of orders") && health.contains("dashboard:local"), "{health}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_served_alone_too_and_counts_and_purges() {
    let folder = world(CONFIG).await;
    let server = serve(&folder, &["dashboard"]);
    let overview = server.get("/").body;
    assert!(
        overview.contains("nothing was applied yet") && overview.contains("POST /in/orders"),
        "{overview}"
    );
    assert!(server.get("/health").body.contains("This process only looks"));
    let counted = server.act("purge", "{\"dry_run\": true}");
    assert!(counted["said"].as_str().unwrap().starts_with("Would remove 0 receipts"), "{counted}");
    assert_eq!(server.act("purge", "{}")["state"], "done");
    assert_eq!(server.get("/metrics").status, 404, "that is the daemon's");
    kill(Pid::from_raw(i32::try_from(server.child.id()).unwrap()), Signal::SIGINT).unwrap();
    let mut server = server;
    assert!(server.child.wait().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_can_reach_is_not_served_without_a_sign_in() {
    let folder = world(CONFIG).await;
    let answer = Answer::of(folder.path(), ["dashboard", "--listen", "0.0.0.0:0"]).exits(3);
    assert!(answer.stderr.contains("[http.auth]"), "{answer:?}");
    std::fs::write(
        folder.path().join("oncebox.toml"),
        CONFIG.replace("[http]", "[http]\nallow_remote = true"),
    )
    .unwrap();
    let answer = Answer::of(folder.path(), ["check"]).exits(3);
    assert!(answer.stderr.contains("http.auth: others can reach the dashboard"), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_the_configuration_open_the_door() {
    let auth = "[http.auth]\nread = [\"${READ_TOKEN}\"]\nact = [\"act-act-act-act-act\"]\n";
    let folder = world(
        &CONFIG
            .replace("[[inbox]]", &format!("{auth}[[inbox]]"))
            .replace("${READ_TOKEN}", "read-read-read-read"),
    )
    .await;
    let server = serve(&folder, &["run"]);
    server.eventually("it answers", |s| s.get("/api/v1/overview").status == 401);
    let with = |token: &str, method: &str, path: &str| {
        server.send(method, path, &[("authorization", &format!("Bearer {token}"))], "{}").status
    };
    server.eventually("a reader reads", |_| with("read-read-read-read", "GET", "/api/v1/overview") == 200);
    assert_eq!(with("read-read-read-read", "POST", "/api/v1/actions/purge"), 403);
    assert_eq!(with("act-act-act-act-act", "POST", "/api/v1/actions/purge"), 200);
    assert_eq!(server.get("/livez").status, 200, "probes have no token");
    assert_eq!(server.get("/").status, 303);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_dashboard_there_is_none() {
    let folder = world(&CONFIG.replace("[http]", "[http]\ndashboard = false")).await;
    let server = serve(&folder, &["run"]);
    assert!(server.get("/").body.contains("/healthz"));
    assert_eq!(server.get("/dead").status, 404);
}

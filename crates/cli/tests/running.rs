//! What a running daemon says of itself, and how it is told things, without any service: the real binary on a SQLite file.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "support/command.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod command;
#[path = "support/daemon.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod daemon;
#[path = "support/folder.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod folder;
#[path = "support/waiting.rs"]
mod waiting;

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use command::oncebox;
use daemon::Daemon;
use folder::Folder;
use nix::sys::signal::Signal;
use serde_json::Value;
use sqlx::Executor;
use waiting::eventually;

const CONFIG: &str = r#"[store]
url = "sqlite://test.sqlite"
[http]
listen = "127.0.0.1:0"
[log]
summary = "0s"
[[inbox]]
consumer = "orders"
id = "header:Idempotency-Key"
retry = { attempts = 1 }
http = { path = "/in/orders" }
[inbox.handler]
each = ["INSERT INTO ledger VALUES (:id)", "SELECT oncebox_emit('invoice.mail', :id, '{}')"]
[outbox]
relay = true
[[webhook]]
topics = ["invoice.*"]
url = "http://127.0.0.1:1/secret-path"
[[sweep]]
name = "due"
every = "1h"
sql = "SELECT message_id AS id FROM ledger WHERE message_id = 'none'"
key = "id"
emit = { topic = "invoice.due" }
"#;

/// A folder with this configuration, and a file with a ledger.
async fn world(config: &str) -> Folder {
    let folder = Folder::new(config).await;
    folder.execute("CREATE TABLE ledger (message_id TEXT)").await;
    folder
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_lines_say_what_it_is_and_what_reads_what_and_then_ready() {
    // Emitting needs a function that only other databases have; the sentence is what counts here.
    let folder = world(&CONFIG.replace(", \"SELECT oncebox_emit('invoice.mail', :id, '{}')\"", "")).await;
    let daemon = folder.run();
    daemon.has_logged(": ready").await;
    let log = daemon.stop();
    let said = [
        &format!("oncebox {}", env!("CARGO_PKG_VERSION")),
        "oncebox.toml",
        "listening: /healthz /livez /readyz /metrics",
        "orders ← POST /in/orders, 1 statement",
        "relay: outbox → http://127.0.0.1:1",
        "webhook: invoice.* → http://127.0.0.1:1",
        "sweep due: every 1h → outbox, topic invoice.due",
        ": ready",
        "told to stop",
        "stopped",
    ];
    let mut rest = log.as_str();
    for words in said {
        let at = rest.find(words).unwrap_or_else(|| panic!("{words:?} is not where it should be in\n{log}"));
        rest = &rest[at + words.len()..];
    }
    assert!(!log.contains("secret-path"), "{log}");
}

/// Nobody has to wait for the drain.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_it_at_once() {
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let folder = world(&plain()).await;
        let daemon = folder.run();
        daemon.ready().await;
        // A transaction that cannot go on: somebody else writes.
        let mut other = folder.pool.acquire().await.unwrap();
        other.execute("BEGIN IMMEDIATE").await.unwrap();
        let request = post(&daemon, "order-1");
        eventually("the request is in the works", async || {
            daemon.health().await.is_some_and(|(_, health)| {
                health["loops"].as_array().unwrap().iter().any(|l| {
                    l["name"] == "inbox:orders" && l["last_success_age_seconds"].as_f64() > Some(0.0)
                })
            })
        })
        .await;
        daemon.signal(Signal::SIGTERM);
        daemon.has_logged("a second signal ends the process at once").await;
        daemon.signal(signal);
        assert_eq!(daemon.exited().code(), Some(code));
        request.abort();
        other.execute("ROLLBACK").await.unwrap();
    }
}

/// A request whose answer nobody waits for.
fn post(daemon: &Daemon, id: &str) -> tokio::task::JoinHandle<()> {
    let (address, id) = (daemon.address().unwrap(), id.to_owned());
    tokio::task::spawn_blocking(move || {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        write!(
            stream,
            "POST /in/orders HTTP/1.1\r\nHost: {address}\r\nIdempotency-Key: {id}\r\nContent-Type: application/json\r\n\
             Content-Length: 2\r\nConnection: close\r\n\r\n{{}}"
        )
        .unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.read_to_end(&mut Vec::new()).ok();
    })
}

/// An inbox alone.
fn plain() -> String {
    let inbox = CONFIG.split("[outbox]").next().unwrap();
    inbox.replace(", \"SELECT oncebox_emit('invoice.mail', :id, '{}')\"", "")
}

#[tokio::test(flavor = "multi_thread")]
async fn sighup_applies_what_it_can_and_names_what_wants_a_restart() {
    let folder = world(&plain()).await;
    let daemon = folder.run();
    daemon.has_logged(": ready").await;
    let changed = plain()
        .replace("summary = \"0s\"", "summary = \"1s\"\nlevel = \"info,oncebox=debug\"")
        .replace("attempts = 1", "attempts = 7")
        .replace("[http]", "[purge]\nevery = \"2h\"\n[http]")
        .replace("http = {", "retention = \"3d\"\nlanes = 2\nhttp = {");
    folder.write(&changed);
    daemon.signal(Signal::SIGHUP);
    daemon.has_logged("the configuration was read again").await;
    daemon.has_logged("applied=\"log, inbox[orders].retry, inbox[orders].retention\"").await;
    daemon.has_logged("keys=\"inbox[orders].lanes, purge\"").await;
    daemon.has_logged("not applied before a restart").await;
    daemon.has_logged("in the last 1s").await;

    // Once more: what wants a restart still does, and nothing else is new.
    daemon.signal(Signal::SIGHUP);
    daemon.has_logged("applied=\"nothing\"").await;
    assert_eq!(daemon.log().matches("keys=\"inbox[orders].lanes, purge\"").count(), 2);

    // Other words for the same are no change.
    folder.write(&plain().replace("[log]", "[purge]\nevery = \"1h\"\n[log]\nlevel = \"info\""));
    daemon.signal(Signal::SIGHUP);
    eventually("it is read a third time", async || {
        daemon.log().matches("the configuration was read again").count() == 3
    })
    .await;
    assert_eq!(daemon.log().matches("not applied before a restart").count(), 2, "{}", daemon.log());
    daemon.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn sighup_with_a_broken_file_changes_nothing() {
    let folder = world(&plain()).await;
    let daemon = folder.run();
    daemon.has_logged(": ready").await;
    let broken =
        plain().replace("summary = \"0s\"", "summary = \"1s\"\nlevle = \"debug\"").replace("id = ", "idd = ");
    folder.write(&broken);
    daemon.signal(Signal::SIGHUP);
    daemon.has_logged("the old settings stay").await;
    daemon.has_logged("did you mean `level`").await;
    daemon.has_logged("inbox[0].idd").await;
    std::fs::remove_file(folder.path().join("oncebox.toml")).unwrap();
    daemon.signal(Signal::SIGHUP);
    daemon.has_logged("cannot read").await;
    // It listens to the next one.
    folder.write(&plain());
    daemon.signal(Signal::SIGHUP);
    daemon.has_logged("applied=\"nothing\"").await;
    let log = daemon.stop();
    assert!(!log.contains("in the last"), "the summary of the broken file is not used:\n{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_level_of_the_file_counts_unless_the_command_line_has_one() {
    let quiet = plain().replace("[log]", "[log]\nlevel = \"warn\"");
    let folder = world(&quiet).await;
    let daemon = Daemon::start(folder.path(), "loud", &["--log", "info"], &[]);
    daemon.has_logged(": ready").await;
    folder.write(&quiet.replace("\"warn\"", "\"error\""));
    daemon.signal(Signal::SIGHUP);
    daemon.has_logged("the configuration was read again").await;
    daemon.stop();
    // It says nothing, so its address has to be known beforehand.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let at = |config: &str| config.replace("127.0.0.1:0", &address.to_string());
    folder.write(&at(&quiet));
    let daemon = Daemon::start(folder.path(), "quiet", &[], &[]);
    eventually("it listens", async || std::net::TcpStream::connect(address).is_ok()).await;
    folder.write(&at(&plain()));
    daemon.signal(Signal::SIGHUP);
    daemon.has_logged("the configuration was read again").await;
    let log = daemon.stop();
    assert!(!log.contains(": ready"), "{log}");
}

/// What was done, once in a while; with how far it is behind.
#[tokio::test(flavor = "multi_thread")]
async fn each_consumer_says_now_and_then_what_it_has_done() {
    let folder = world(&plain().replace("summary = \"0s\"", "summary = \"1s\"")).await;
    let daemon = folder.run();
    daemon.ready().await;
    for id in ["order-1", "order-2", "order-1"] {
        post(&daemon, id).await.unwrap();
    }
    let sums = || {
        let log = daemon.log();
        let number = |line: &str, name: &str| -> u64 {
            line.split(name).nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
        };
        let lines = log.lines().filter(|line| line.contains("in the last 1s") && line.contains("orders"));
        lines.fold((0, 0), |(applied, duplicates), line| {
            assert!(line.contains("lag=") && line.contains("dead=0"), "{line}");
            (applied + number(line, "applied="), duplicates + number(line, "duplicates="))
        })
    };
    eventually("all of it is said once", async || sums() == (2, 1)).await;
    daemon.stop();
}

/// Alive is not ready, and ready is not well.
#[tokio::test(flavor = "multi_thread")]
async fn the_three_endpoints_say_different_things() {
    let folder = world(&plain()).await;
    folder.write(&plain().replace("sqlite://test.sqlite", "postgres://nobody@127.0.0.1:1/x"));
    let daemon = folder.run();
    let status = async |path: &str| daemon.get(path).await.map(|page| page.status);
    eventually("it waits for its database", async || daemon.log().contains("cannot start yet")).await;
    assert_eq!(status("/livez").await, Some(200));
    assert_eq!(status("/readyz").await, Some(503));
    let page = daemon.get("/healthz").await.unwrap();
    assert!(page.body.contains("setup") && page.body.contains("refused"), "{}", page.body);
    daemon.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_were_given_up_turn_health_red_until_they_are_dropped() {
    let folder = world(&CONFIG.replace(", \"SELECT oncebox_emit('invoice.mail', :id, '{}')\"", "")).await;
    let daemon = folder.run();
    daemon.ready().await;
    let mut file = folder.pool.acquire().await.unwrap();
    // Nobody takes this topic.
    file.execute("INSERT INTO oncebox_outbox (topic, payload) VALUES ('stock.changed', 'canary')")
        .await
        .unwrap();
    eventually("red", async || {
        daemon.health().await.is_some_and(|(status, health)| {
            status == 503 && health.to_string().contains("oncebox outbox list --state parked")
        })
    })
    .await;
    let page = daemon.get("/healthz").await.unwrap().body;
    assert!(!page.contains("canary"), "{page}");
    assert_eq!(daemon.get("/livez").await.unwrap().status, 200, "a restart would not help");
    assert_eq!(daemon.get("/readyz").await.unwrap().status, 200);
    daemon.has_logged("events were given up").await;
    folder.oncebox(&["outbox", "drop", "--state", "parked"]).exits(0);
    eventually("green", async || daemon.health().await.is_some_and(|(status, _)| status == 200)).await;
    daemon.has_logged("all is well after").await;
    daemon.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn status_can_be_watched() {
    let folder = world(&plain()).await;
    let mut command = oncebox(folder.path());
    command.args(["status", "--watch", "1", "--output", "json"]).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..3 {
        let document: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert!(document["outbox"]["pending"].is_number(), "{document}");
    }
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(pid, Signal::SIGINT).unwrap();
    let status = command::wait(&mut child, Duration::from_secs(30)).expect("Ctrl-C ends it");
    assert_eq!(status.code(), Some(0));

    // A reader that goes away ends it, too.
    let mut command = oncebox(folder.path());
    command.args(["status", "--watch=1"]).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with('┌'), "a table");
    drop(lines);
    let status = command::wait(&mut child, Duration::from_secs(30)).expect("it ends");
    assert_eq!(status.code(), Some(0));
}

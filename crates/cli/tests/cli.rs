//! The command line without any service: configurations, exit codes, SQLite, the demo.

#[path = "support/command.rs"]
mod command;

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use command::{Answer, oncebox};
use sqlx::Connection;
use tempfile::TempDir;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn with_config(text: &str) -> TempDir {
    let folder = folder();
    write(folder.path(), text);
    folder
}

fn write(folder: &Path, text: &str) {
    std::fs::write(folder.join("oncebox.toml"), text).expect("the configuration is written");
}

/// A SQLite file beside the configuration, and one inbox.
const SQLITE: &str = r#"[store]
url = "sqlite://test.sqlite"

[kafka]
brokers = "127.0.0.1:1"

[[inbox]]
consumer = "stock"
topics = ["stock.updates"]
id = "header:event_id"

[inbox.handler]
each = ["INSERT INTO ledger (message_id) VALUES (:id)"]
"#;

/// [`SQLITE`] with one line in place of another.
fn changed(line: &str, by: &str) -> String {
    assert_eq!(SQLITE.matches(line).count(), 1, "{line} stands there once");
    SQLITE.replacen(line, by, 1)
}

#[test]
fn a_wrong_configuration_is_told_with_its_key_and_line() {
    let url = "url = \"sqlite://test.sqlite\"";
    let id = "id = \"header:event_id\"";
    let each = "each = [\"INSERT INTO ledger (message_id) VALUES (:id)\"]";
    let topics = "topics = [\"stock.updates\"]";
    let brokers = "brokers = \"127.0.0.1:1\"";
    let after_id = |more: &str| changed(id, &format!("{id}\n{more}"));
    let at_end = |more: &str| format!("{SQLITE}\n{more}\n");
    let cases: Vec<(String, usize, &str, &str)> = vec![
        (changed("[store]", "[stroe]"), 1, "store", "missing"),
        (changed(url, "max_connections = 3"), 1, "store.url", "missing"),
        (changed(url, &format!("{url}\nurll = 1")), 3, "store.urll", "url"),
        (changed(url, "url = 5"), 2, "store.url", "string"),
        (changed(url, "url = \"mongodb://localhost\""), 2, "store.url", "names no database"),
        (changed(url, "url = \"mysql://localhost\""), 2, "store.url", "names no database"),
        (changed(url, "url = \"nonsense\""), 2, "store.url", "not a database URL"),
        (changed(url, "url = \"${ONCEBOX_NOT_SET}\""), 2, "store.url", "ONCEBOX_NOT_SET"),
        (changed(url, &format!("{url}\nmax_connections = \"ten\"")), 3, "store.max_connections", "integer"),
        (changed(url, &format!("{url}\nmax_connections = 0")), 3, "store.max_connections", "1"),
        (
            changed(url, &format!("{url}\npartition_receipts = \"day\"")),
            3,
            "store.partition_receipts",
            "SQLite",
        ),
        (changed(brokers, "brokers = \"\""), 5, "kafka.brokers", "empty"),
        (
            changed(brokers, &format!("{brokers}\n[kafka.properties]\n\"group.id\" = \"x\"")),
            7,
            "kafka.properties.\"group.id\"",
            "group",
        ),
        (
            changed(brokers, &format!("{brokers}\n[kafka.properties]\nsecurity.protocol = \"ssl\"")),
            7,
            "kafka.properties.\"security\"",
            "quotes",
        ),
        (changed("consumer = \"stock\"", "consumer = \"a b\""), 8, "inbox[0].consumer", "letters"),
        (changed(topics, "topics = []"), 9, "inbox[0].topics", "empty"),
        (changed(topics, "topics = [\"a\", \"a\"]"), 9, "inbox[0].topics[1]", "twice"),
        (changed(id, ""), 7, "inbox[0].id", "missing"),
        (changed(id, "id = \"hedaer:x\""), 10, "inbox[0].id", "selector"),
        (after_id("start = \"now\""), 11, "inbox[0].start", "earliest"),
        (after_id("batch = { messages = 0 }"), 11, "inbox[0].batch.messages", "1"),
        (after_id("batch = { bytes = \"4M\" }"), 11, "inbox[0].batch.bytes", "MiB"),
        (after_id("lanes = 65"), 11, "inbox[0].lanes", "64"),
        (after_id("retry = { backoff = \"5s..1s\" }"), 11, "inbox[0].retry.backoff", ".."),
        (after_id("retention = \"1s\""), 11, "inbox[0].retention", "too short"),
        (after_id("on_failure = \"ignore\""), 11, "inbox[0].on_failure", "park"),
        (after_id("payload = \"xml\""), 11, "inbox[0].payload", "json"),
        (changed(each, ""), 12, "inbox[0].handler", "neither"),
        (changed(each, &format!("{each}\nbatch = [\"DELETE FROM x\"]")), 12, "inbox[0].handler", "exclude"),
        (changed(each, "each = [\"INSERT INTO x VALUES (:idd)\"]"), 13, "inbox[0].handler.each[0]", ":id"),
        (changed(each, "each = []"), 13, "inbox[0].handler.each", "empty"),
        (
            changed(each, "each = [{ sql = \"DELETE FROM x\", rows = -1 }]"),
            13,
            "inbox[0].handler.each[0].rows",
            "0",
        ),
        (
            changed(each, "batch = [{ sql = \"DELETE FROM x\", rows = 1 }]"),
            13,
            "inbox[0].handler.batch[0].rows",
            "each",
        ),
        (at_end("[http]\nlisten = \"0.0.0.0:80\""), 16, "http.listen", "allow_remote"),
        (at_end("[purge]\nevery = \"soon\""), 16, "purge.every", "duration"),
        (at_end("[outbox]\nrelay = 1"), 16, "outbox.relay", "true or false"),
        (at_end("[outbox]\nlease = \"1s\""), 16, "outbox.lease", "from 2s to 5m"),
        (at_end("[[webhook]]\ntopics = [\"t\"]\nurl = \"https://a\""), 15, "webhook[0]", "relay = true"),
        (
            at_end("[outbox]\nrelay = true\n[[webhook]]\ntopics = [\"a b\"]\nurl = \"https://a\""),
            18,
            "webhook[0].topics[0]",
            "`*` for anything",
        ),
        (
            at_end("[outbox]\nrelay = true\n[[webhook]]\ntopics = [\"t\"]\nurl = \"a\""),
            19,
            "webhook[0].url",
            "https://HOST/PATH",
        ),
        (
            at_end(
                "[[sweep]]\nname = \"a\"\nevery = \"1m\"\nsql = \"DELETE FROM x\"\nkey = \"id\"\nemit.topic = \"t\"",
            ),
            18,
            "sweep[0].sql",
            "SELECT",
        ),
        (
            at_end("[[sweep]]\nname = \"a\"\nsql = \"SELECT 1 AS id\"\nkey = \"id\"\nemit.topic = \"t\""),
            15,
            "sweep[0].every",
            "missing",
        ),
        (
            at_end(
                "[[inbox]]\nconsumer = \"stock\"\ntopics = [\"b\"]\nid = \"key\"\nhandler.each = [\"DELETE FROM x\"]",
            ),
            16,
            "inbox[1].consumer",
            "stock",
        ),
        (at_end("[dashboard]"), 15, "dashboard", "known"),
        (at_end("[purge\nevery = 1"), 15, "", ""),
    ];
    let mut wrong = Vec::new();
    for (text, line, key, word) in cases {
        let folder = with_config(&text);
        let answer = Answer::of(folder.path(), ["status"]);
        let place = format!("oncebox.toml:{line}: {key}");
        let untouched = answer.stdout.is_empty() && !folder.path().join("test.sqlite").exists();
        let told = answer.stderr.contains(&place) && answer.stderr.contains(word);
        if answer.code != Some(3) || !untouched || !told {
            wrong.push(format!("should exit 3 and say {place:?} and {word:?}:\n{answer}\nof\n{text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn all_problems_of_a_configuration_are_told_at_once() {
    let text = SQLITE
        .replace("sqlite://test.sqlite", "${ONCEBOX_NOT_SET}")
        .replace("header:event_id", "nowhere")
        .replace("brokers", "broker")
        .replace(":id", ":di");
    let answer = Answer::of(with_config(&text).path(), ["run"]).exits(3).says(&[
        "oncebox.toml:2: store.url",
        "kafka.brokers",
        "oncebox.toml:5: kafka.broker",
        "oncebox.toml:10: inbox[0].id",
        "oncebox.toml:13: inbox[0].handler.each[0]",
    ]);
    assert!(answer.stderr.lines().filter(|line| line.contains("oncebox.toml:")).count() >= 5, "{answer}");
}

#[test]
fn a_configuration_that_is_not_there_is_told_with_a_hint() {
    let empty = folder();
    for command in [
        &["status"][..],
        &["run"],
        &["check"],
        &["migrate"],
        &["purge"],
        &["dead", "list"],
        &["outbox", "list"],
        &["position", "list"],
    ] {
        Answer::of(empty.path(), command).exits(3).says(&["oncebox.toml", "oncebox init", "--config"]);
    }
    Answer::of(empty.path(), ["status", "--config", "other.toml"]).exits(3).says(&["other.toml"]);
    let mut command = oncebox(empty.path());
    command.arg("status").env("ONCEBOX_CONFIG", "by-variable.toml");
    Answer::of_command(command).exits(3).says(&["by-variable.toml"]);
}

#[test]
fn a_daemon_with_nothing_to_do_or_wrong_sql_does_not_start() {
    let nothing = with_config("[store]\nurl = \"sqlite://test.sqlite\"\n");
    Answer::of(nothing.path(), ["run"]).exits(3).says(&["[[inbox]]", "[[sweep]]", "relay = true"]);
    let nowhere = with_config("[store]\nurl = \"sqlite://test.sqlite\"\n[outbox]\nrelay = true\n");
    Answer::of(nowhere.path(), ["run"]).exits(3).says(&[
        "oncebox.toml:4: outbox.relay",
        "[kafka]",
        "[[webhook]]",
    ]);

    // What a promise depends on is not for the configuration; nothing is started with it.
    let property = format!("{SQLITE}\n[outbox]\nrelay = true\n").replace(
        "brokers = \"127.0.0.1:1\"",
        "brokers = \"127.0.0.1:1\"\n[kafka.properties]\n\"acks\" = \"1\"",
    );
    Answer::of(with_config(&property).path(), ["run"]).exits(3).says(&["kafka.properties", "acks"]);

    // The table of the statement is not there: told at the start, not message by message.
    let folder = with_config(SQLITE);
    Answer::of(folder.path(), ["run"]).exits(3).says(&["stock", "statement 1", "ledger"]);
    let found = Answer::of(folder.path(), ["check", "--output", "json"]).exits(4).json();
    let handler =
        found.as_array().into_iter().flatten().find(|f| f["subject"] == "handler of stock").cloned();
    let handler = handler.unwrap_or_else(|| panic!("nothing about the handler: {found:#}"));
    assert_eq!(handler["level"], "error", "{handler}");
}

#[test]
fn usage_errors_exit_2() {
    let folder = with_config(SQLITE);
    for wrong in [
        &["nonsense"][..],
        &[],
        &["status", "--output", "xml"],
        &["dead"],
        &["dead", "show", "many"],
        &["dead", "list", "--limit", "0"],
        &["outbox"],
        &["position"],
        &["position", "move", "--consumer", "stock", "--topic", "t"],
        &["position", "move", "--consumer", "stock", "--topic", "t", "--to", "soon"],
        &["position", "retire", "--consumer", "stock"],
        &["outbox", "show", "many"],
        &["outbox", "list", "--limit", "0"],
        &["outbox", "list", "--state", "lost"],
        &["outbox", "list", "--id", "17"],
        &["demo", "--messages", "0"],
        &["completions", "tcl"],
        &["status", "--log", "oncebox=nonsense=x"],
    ] {
        let answer = Answer::of(folder.path(), wrong).exits(2);
        assert_eq!(answer.stdout, "", "{wrong:?} {answer}");
        assert!(!answer.stderr.is_empty());
    }
}

#[test]
fn a_consumer_is_paused_and_resumed() {
    let folder = with_config(SQLITE);
    let oncebox = |arguments: &[&str]| Answer::of(folder.path(), arguments);
    oncebox(&["pause", "stock"]).exits(5).says(&["oncebox migrate"]);
    oncebox(&["migrate"]).exits(0);
    oncebox(&["pause", "stocks"]).exits(1).says(&["stocks", "known are stock", "--force"]);
    oncebox(&["resume", "stocks"]).exits(1).says(&["stocks", "known are stock"]);
    oncebox(&["pause", "no such name"]).exits(2);

    let paused =
        oncebox(&["pause", "stock", "--reason", "counting\u{1b}[2J", "--by", "ana", "--output", "json"]);
    let paused = paused.exits(0).json();
    assert_eq!(paused["changed"], true, "{paused}");
    assert_eq!((&paused["paused"]["by"], &paused["consumer"]), (&"ana".into(), &"stock".into()), "{paused}");
    let again = oncebox(&["pause", "stock", "--by", "ben", "--reason", "no"]).exits(0);
    assert!(again.stdout.contains("paused already") && again.stdout.contains("by ana: counting"), "{again}");
    assert!(!again.stdout.contains('\u{1b}'), "a reason is not obeyed by the terminal: {again}");
    let status = oncebox(&["status"]).exits(0);
    assert!(status.stdout.contains("stock is paused since") && status.stdout.contains("by ana"), "{status}");
    assert_eq!(oncebox(&["status", "--output", "json"]).exits(0).json()["paused"][0]["by"], "ana");

    let resumed = oncebox(&["resume", "stock"]).exits(0);
    assert!(resumed.stdout.contains("goes on"), "{resumed}");
    let nothing = oncebox(&["resume", "stock"]).exits(0);
    assert!(nothing.stdout.contains("is not paused"), "{nothing}");
    let nothing = oncebox(&["resume", "stock", "--output", "json"]).exits(0).json();
    assert_eq!((&nothing["changed"], &nothing["paused"]), (&false.into(), &serde_json::Value::Null));

    // Before its first start.
    oncebox(&["pause", "later", "--force"]).exits(0);
    let resumed = oncebox(&["resume", "later"]).exits(0);
    assert!(resumed.stdout.contains("goes on"), "{resumed}");
}

#[test]
fn help_and_version() {
    let empty = folder();
    let help = Answer::of(empty.path(), ["--help"]).exits(0).stdout;
    for command in [
        "demo",
        "init",
        "check",
        "migrate",
        "run",
        "status",
        "dead",
        "outbox",
        "position",
        "pause",
        "resume",
        "purge",
        "completions",
    ] {
        assert!(help.contains(command), "{command} is missing:\n{help}");
        Answer::of(empty.path(), [command, "--help"]).exits(0);
    }
    let dead = ["list", "show", "replay", "drop"].map(|action| ["dead", action, "--help"]);
    let outbox = ["list", "show", "retry", "park", "drop"].map(|action| ["outbox", action, "--help"]);
    let position = ["list", "move", "retire"].map(|action| ["position", action, "--help"]);
    for action in dead.iter().chain(&outbox).chain(&position) {
        let help = Answer::of(empty.path(), action).exits(0).stdout;
        assert!(help.contains("--output") && help.contains("--config"), "{help}");
    }
    let version = Answer::of(empty.path(), ["--version"]).exits(0).stdout;
    assert!(version.contains(env!("CARGO_PKG_VERSION")) && version.contains("librdkafka"), "{version}");
}

#[test]
fn help_tells_what_every_command_takes_from_its_own() {
    let help = Answer::of(folder().path(), ["dead", "list", "--help"]).exits(0).stdout;
    let (own, global) = help.split_once("Global options:").expect("a heading");
    assert!(own.contains("--message-id") && !own.contains("--log-format"), "{help}");
    assert!(global.contains("--config") && global.contains("--log-format"), "{help}");
}

#[test]
fn a_file_that_is_only_looked_at_is_not_made() {
    let folder = with_config("[store]\nurl = \"sqlite://no-such.sqlite\"\n");
    for command in [&["check"][..], &["status"], &["dead", "list"], &["outbox", "list"], &["purge"]] {
        let answer = Answer::of(folder.path(), command);
        assert!(answer.code != Some(0), "{answer}");
        let said = format!("{}{}", answer.stdout, answer.stderr);
        assert!(said.contains("no such file") && said.contains("oncebox migrate"), "{answer}");
        assert!(!folder.path().join("no-such.sqlite").exists(), "{command:?} has made it");
    }
    Answer::of(folder.path(), ["migrate"]).exits(0);
    Answer::of(folder.path(), ["status"]).exits(0);
}

#[tokio::test]
async fn printed_migrations_can_be_run_by_hand() {
    let folder = with_config("[store]\nurl = \"sqlite://test.sqlite\"\n");
    let printed = Answer::of(folder.path(), ["migrate", "sql"]).exits(0).stdout;
    Answer::of(folder.path(), ["migrate", "status"]).exits(1);
    let file = format!("sqlite://{}", folder.path().join("test.sqlite").display());
    let mut conn = sqlx::SqliteConnection::connect(&file).await.expect("the file is there");
    sqlx::raw_sql(sqlx::AssertSqlSafe(printed)).execute(&mut conn).await.expect("the statements run");
    Answer::of(folder.path(), ["migrate", "status"]).exits(0);
    Answer::of(folder.path(), ["migrate"]).exits(0).says(&["nothing to do"]);
}

#[test]
fn completions_for_three_shells() {
    let empty = folder();
    for (shell, word) in [("bash", "complete "), ("zsh", "#compdef oncebox"), ("fish", "complete -c oncebox")]
    {
        let answer = Answer::of(empty.path(), ["completions", shell]).exits(0);
        assert!(answer.stdout.contains(word) && answer.stdout.contains("replay"), "{shell}: {answer}");
        assert_eq!(answer.stderr, "");
    }
}

#[test]
fn init_writes_a_configuration_that_can_be_read() {
    let folder = folder();
    let file = folder.path().join("oncebox.toml");
    Answer::of(folder.path(), ["init"]).exits(0).says(&["oncebox check"]);
    let text = std::fs::read_to_string(&file).expect("the file is there");

    // It is a starting point: with another store it works as it is.
    write(folder.path(), &text.replace("postgres://erp@localhost/erp", "sqlite://test.sqlite"));
    Answer::of(folder.path(), ["migrate"]).exits(0);

    Answer::of(folder.path(), ["init"]).exits(5).says(&["exists already", "--force"]);
    assert_ne!(std::fs::read_to_string(&file).expect("the file is there"), text, "it was not overwritten");
    Answer::of(folder.path(), ["init", "--force"]).exits(0);
    assert_eq!(std::fs::read_to_string(&file).expect("the file is there"), text);
    Answer::of(folder.path(), ["init", "--config", "other.toml"]).exits(0);
    assert_eq!(std::fs::read_to_string(folder.path().join("other.toml")).expect("the file is there"), text);
    Answer::of(folder.path(), ["init", "--config", "no/such/folder.toml"])
        .exits(5)
        .says(&["no/such/folder.toml"]);
}

#[test]
fn an_unreachable_database_exits_4() {
    let folder =
        with_config(&SQLITE.replace("sqlite://test.sqlite", "postgres://u:pw-canary@127.0.0.1:1/db"));
    for command in [&["status"][..], &["migrate"], &["dead", "list"], &["outbox", "list"], &["purge"]] {
        let answer = Answer::of(folder.path(), command).exits(4).says(&["PostgreSQL", "refused"]);
        assert!(!answer.to_string().contains("pw-canary"), "{answer}");
    }
}

#[test]
fn an_unreachable_broker_exits_4() {
    let folder = with_config(SQLITE);
    Answer::of(folder.path(), ["migrate"]).exits(0);
    let found = Answer::of(folder.path(), ["check", "--output", "json"]).exits(4).json();
    let kafka = found.as_array().into_iter().flatten().find(|f| f["subject"] == "kafka").cloned();
    let kafka = kafka.unwrap_or_else(|| panic!("nothing about Kafka: {found:#}"));
    assert!(
        kafka["level"] == "error" && kafka["detail"].as_str().is_some_and(|d| d.contains("127.0.0.1:1")),
        "{kafka}"
    );
}

#[test]
fn the_commands_on_an_empty_sqlite_database() {
    // Without Kafka nobody has to wait for it.
    let folder = with_config("[store]\nurl = \"sqlite://test.sqlite\"\n");
    let json = |arguments: &[&str], code| {
        Answer::of(folder.path(), [arguments, &["--output", "json"]].concat()).exits(code).json()
    };
    let before = json(&["migrate", "status"], 1);
    assert!(before.as_array().is_some_and(|all| all.iter().all(|m| m["applied"] == false)), "{before:#}");
    Answer::of(folder.path(), ["migrate", "sql"]).exits(0);
    Answer::of(folder.path(), ["migrate"]).exits(0).says(&["applied 1", "applied 2"]);
    Answer::of(folder.path(), ["migrate", "up"]).exits(0).says(&["nothing to do"]);
    let after = json(&["migrate", "status"], 0);
    assert!(after.as_array().is_some_and(|all| all.iter().all(|m| m["applied"] == true)), "{after:#}");

    let status = json(&["status"], 0);
    assert_eq!(status["consumers"], serde_json::json!([]));
    assert_eq!(status["positions"], serde_json::json!([]));
    assert_eq!(json(&["purge"], 0)["receipts"], 0);
    assert_eq!(json(&["purge", "--dry-run"], 0)["dry_run"], true);
    assert_eq!(json(&["dead", "list"], 0), serde_json::json!([]));
    assert_eq!(json(&["dead", "replay", "--all", "--dry-run"], 1), serde_json::json!([]));
    assert_eq!(json(&["dead", "drop", "--all"], 1)["dropped"], 0);
    Answer::of(folder.path(), ["dead", "show", "1"]).exits(1).says(&["1"]);
    Answer::of(folder.path(), ["dead", "drop"]).exits(2).says(&["--all"]);
    for table in [&["status"][..], &["migrate", "status"], &["purge"]] {
        assert!(!Answer::of(folder.path(), table).exits(0).stdout.is_empty());
    }
}

/// The whole product in one process tree: a broker in the process, a SQLite file, consumers that get killed.
#[test]
fn the_demo_ends_with_a_good_verdict() {
    for source in ["kafka", "http"] {
        let empty = folder();
        let arguments =
            ["demo", "--source", source, "--messages", "2000", "--kills", "2", "--output", "json"];
        let verdict = Answer::of(empty.path(), arguments).exits(0).json();
        assert_eq!(verdict["verdict"], "ok", "{verdict:#}");
        for (name, value) in [
            ("produced", 2400),
            ("unique", 2000),
            ("effects", 2000),
            ("kills", 2),
            ("lost", 0),
            ("doubled", 0),
            ("out_of_order", 0),
        ] {
            assert_eq!(verdict[name], value, "{name} of {verdict:#}");
        }
        // Not fewer: what a process that is killed has counted is not lost.
        assert!(verdict["delivered"].as_i64() >= Some(2400), "{verdict:#}");
        assert!(verdict["duplicates_suppressed"].as_i64() >= Some(400), "{verdict:#}");
        let left = std::fs::read_dir(empty.path()).expect("the folder").count();
        assert_eq!(left, 0, "it leaves nothing behind");
    }
}

#[test]
fn a_demo_through_rabbitmq_says_what_it_misses() {
    let empty = folder();
    let demo = |arguments: &[&str]| Answer::of(empty.path(), [&["demo"], arguments].concat());
    demo(&["--source", "rabbitmq"]).exits(2).says(&["--rabbitmq amqp://"]);
    demo(&["--rabbitmq", "amqp://localhost"]).exits(2).says(&["--source rabbitmq"]);
    demo(&["--source", "rabbitmq", "--rabbitmq", "localhost:5672"]).exits(2).says(&["amqp://"]);
    let away = demo(&["--source", "rabbitmq", "--rabbitmq", "amqp://erp:canary@127.0.0.1:1"]).exits(4);
    let away = away.says(&["--rabbitmq", "127.0.0.1:1"]);
    assert!(!away.stderr.contains("canary"), "{away}");
    let left = std::fs::read_dir(empty.path()).expect("the folder").count();
    assert_eq!(left, 0, "it leaves nothing behind");
}

/// Ctrl-C in the middle: no folder, no process and no verdict are left.
#[test]
fn an_interrupted_demo_cleans_up() {
    let temporary = folder();
    let mut command = oncebox(temporary.path());
    command.args(["demo", "--messages", "1000000"]).env("TMPDIR", temporary.path());
    let mut demo = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("oncebox starts");
    let entries = || std::fs::read_dir(temporary.path()).expect("the folder").flatten();
    let is_at_work = || {
        let log = entries().next().map(|entry| entry.path().join("consumer-1.log"));
        log.is_some_and(|log| command::read(&log).contains(": ready"))
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_at_work() {
        assert!(Instant::now() < deadline, "the demo does not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = nix::unistd::Pid::from_raw(i32::try_from(demo.id()).expect("a process id"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).expect("it runs");
    let status = command::wait(&mut demo, Duration::from_secs(60)).expect("it ends");
    assert_eq!(status.code(), Some(1), "{status}");
    assert_eq!(entries().count(), 0, "its folder is gone");
}

/// `oncebox … | head -1`: the answer is known, only nobody wants to read it to its end.
#[test]
fn a_reader_that_goes_away_is_no_error_and_a_full_disk_is_one() {
    let folder = with_config("[store]\nurl = \"sqlite://test.sqlite\"\n");
    Answer::of(folder.path(), ["migrate"]).exits(0);
    for (arguments, code) in [
        (&["completions", "bash"][..], 0),
        (&["status"], 0),
        (&["status", "--output", "json"], 0),
        (&["dead", "list"], 0),
        (&["dead", "list", "--topic", "t"], 1),
        (&["migrate", "sql"], 0),
        (&["--help"], 0),
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = oncebox(folder.path());
        let child = command.args(arguments).stdout(writer).stderr(Stdio::piped()).spawn();
        let output = child.and_then(|child| child.wait_with_output()).expect("oncebox runs");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
    }
    let full = std::fs::File::options().write(true).open("/dev/full").expect("/dev/full");
    let mut command = oncebox(folder.path());
    let child = command.arg("status").stdout(full).stderr(Stdio::piped()).spawn();
    let output = child.and_then(|child| child.wait_with_output()).expect("oncebox runs");
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("No space left"), "{output:?}");
}

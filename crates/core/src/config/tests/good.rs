//! What is accepted, with which defaults, and that secrets stay secret.

use std::time::Duration;

use proptest::prelude::*;

use crate::config::*;
use crate::policy::{BatchBounds, OnFailure, RetryPolicy, StalePolicy, StartPolicy};
use crate::selector::Selector;
use crate::statement::RowRule;

const SMALL: &str = r#"
[store]
url = "sqlite://stock.db"
[kafka]
brokers = "a:9092, b:9092"
[[inbox]]
consumer = "stock"
topics = ["t"]
id = "key"
handler = { each = ["SELECT :id"] }
"#;

fn parse(text: &str) -> Config {
    Config::parse(text, &|_| None).unwrap()
}

#[test]
fn the_template_has_no_problems() {
    let config = parse(TEMPLATE);
    assert_eq!(config.store.kind, StoreKind::Postgres);
    let inbox = &config.inboxes[0];
    assert_eq!(inbox.handler.steps().len(), 2);
    assert!(inbox.handler.steps().iter().all(|step| step.statement.warnings().is_empty()));
}

#[test]
fn the_template_shows_the_defaults() {
    let template = parse(TEMPLATE);
    let small = parse(SMALL);
    let (shown, default) = (&template.inboxes[0], &small.inboxes[0]);
    let adjusted = InboxConfig {
        topics: shown.topics.clone(),
        identity: shown.identity.clone(),
        handler: shown.handler.clone(),
        ..default.clone()
    };
    assert_eq!(*shown, adjusted);
    assert_eq!((template.purge, template.outbox), (small.purge, small.outbox));
    assert_eq!(template.store.max_connections, small.store.max_connections);
}

#[test]
fn the_commented_keys_of_the_template_work_too() {
    let is_key = |line: &str| line.starts_with("# ") && line.contains(" = ") && !line.starts_with("# batch");
    let mut text = String::new();
    let mut in_batch = false;
    for line in TEMPLATE.lines() {
        in_batch |= line.starts_with("# batch = [");
        let uncomment = is_key(line) && !in_batch && !line.starts_with("# rows");
        text.push_str(if uncomment { &line[2..] } else { line });
        text.push('\n');
        in_batch &= line != "# ]";
    }
    let config = Config::parse(&text, &|_| Some("x".into())).unwrap();
    assert_eq!(config.kafka.unwrap().properties.len(), 4);
    assert_eq!(config.inboxes[0].identity.tenant, Some(Selector::Header("tenant".into())));

    let batch: String = TEMPLATE
        .lines()
        .skip_while(|line| !line.starts_with("# batch = ["))
        .take_while(|line| line.starts_with('#'))
        .map(|line| format!("{}\n", line.trim_start_matches("# ")))
        .collect();
    let text = SMALL.replace(r#"handler = { each = ["SELECT :id"] }"#, &format!("[inbox.handler]\n{batch}"));
    let config = parse(&text);
    let Handler::Batch(steps) = &config.inboxes[0].handler else { unreachable!() };
    assert!(steps.iter().all(|step| step.statement.warnings().is_empty()));
}

#[test]
fn defaults() {
    let config = parse(SMALL);
    assert_eq!(config.http, None);
    assert_eq!(config.purge.every, Duration::from_secs(3600));
    assert_eq!(config.outbox, OutboxConfig { relay: false, keep: Duration::ZERO });
    assert_eq!(config.kafka.unwrap().brokers, "a:9092,b:9092");
    let inbox = &config.inboxes[0];
    assert_eq!(inbox.group, "stock");
    assert_eq!(inbox.retention, Duration::from_secs(7 * 24 * 3600));
    assert_eq!((inbox.lanes, inbox.crash_limit), (1, 3));
    assert_eq!((inbox.batch, inbox.retry), (BatchBounds::default(), RetryPolicy::default()));
    assert_eq!((inbox.start, inbox.stale), (StartPolicy::Earliest, StalePolicy::Apply));
    assert_eq!((inbox.payload, inbox.retention_check), (PayloadKind::Json, RetentionCheck::Warn));
}

#[test]
fn every_key() {
    let config = parse(
        r#"
        [store]
        url = "postgresql://erp:pw@db/erp"
        max_connections = 3
        partition_receipts = "day"
        [kafka]
        brokers = "k"
        properties = { "a.b" = 5, "c" = true, "partition.assignment.strategy" = "roundrobin" }
        [http]
        listen = "0.0.0.0:80"
        allow_remote = true
        [purge]
        every = "5m"
        [outbox]
        keep = "1d"
        [[inbox]]
        consumer = "a"
        group = "g"
        topics = ["t", "u"]
        id = "cloudevents"
        tenant = "json:/tenant"
        start = "fail"
        batch = { messages = 10000, bytes = 1024 }
        lanes = 64
        retry = { attempts = 1, backoff = "1s..1s" }
        crash_limit = 1
        payload = "bytes"
        on_failure = "park-key"
        retention = "1m"
        retention_check = "refuse"
        stale = "park"
        handler = { each = ["SELECT payload ? 'a'", { sql = "SELECT :id", rows = "1.." }, { sql = "SELECT 1" }] }
        [[inbox]]
        consumer = "b"
        topics = ["t"]
        id = "coordinates"
        start = "latest"
        batch = { bytes = "1MB" }
        payload = "text"
        on_failure = "halt"
        handler.batch = ["INSERT INTO x SELECT id FROM messages"]
        "#,
    );
    let [a, b] = config.inboxes.as_slice() else { unreachable!() };
    assert_eq!((a.start, a.on_failure, a.stale), (StartPolicy::Fail, OnFailure::ParkKey, StalePolicy::Park));
    assert_eq!((a.payload, a.retention_check), (PayloadKind::Bytes, RetentionCheck::Refuse));
    assert_eq!(a.batch, BatchBounds { messages: 10_000, bytes: 1024 });
    assert_eq!((a.group.as_str(), b.group.as_str()), ("g", "b"));
    assert_eq!(a.handler.steps()[1].rows, "1..".parse::<RowRule>().ok());
    assert_eq!(b.batch.bytes, 1_000_000);
    assert!(matches!(b.handler, Handler::Batch(_)));
    assert_eq!(config.kafka.unwrap().properties["a.b"], "5");
    assert_eq!(config.store.partition_receipts, PartitionReceipts::Day);
    assert_eq!(config.outbox.keep, Duration::from_secs(86_400));
}

#[test]
fn variables_reach_every_string() {
    let text = SMALL.replace("stock.db", "${DIR}/stock.db").replace("\"t\"", "\"$${x}${TOPIC}\"");
    let env = |name: &str| Some(if name == "DIR" { "/data" } else { "orders" }.to_owned());
    let problems = Config::parse(&text, &env).unwrap_err();
    assert_eq!(problems.iter().next().map(|p| p.key.as_str()), Some("inbox[0].topics[0]"));
    let config = Config::parse(&text.replace("$${x}", ""), &env).unwrap();
    assert_eq!(config.store.url.expose(), "sqlite:///data/stock.db");
    assert_eq!(config.inboxes[0].topics, ["orders"]);
}

#[test]
fn secrets_show_up_nowhere() {
    let canary = "hunter2";
    let env = |_: &str| Some(canary.to_owned());
    let text = SMALL.replace("sqlite://stock.db", "postgres://erp:${PW}@db/erp").replace(
        "[[inbox]]",
        "[kafka.properties]\n\"sasl.password\" = \"${PW}\"\n\"ssl.key.pem\" = \"hunter2\"\n[[inbox]]",
    );
    let config = Config::parse(&text, &env).unwrap();
    assert!(!format!("{config:?} {config:#?} {}", config.store.url.redacted()).contains(canary));

    for (good, wrong) in [
        ("postgres://erp:${PW}@db/erp", "${PW}"),
        ("postgres://erp:${PW}@db/erp", "hunter2://x"),
        ("postgres://erp:${PW}@db/erp", "mysql://erp:${PW}@db/erp"),
        ("\"postgres://erp:${PW}@db/erp\"", "[\"hunter2\"]"),
        ("\"sasl.password\" = \"${PW}\"", "\"sasl.password\" = [\"hunter2\"]"),
        ("\"sasl.password\" = \"${PW}\"", "\"sasl.password\" = \"hunter2${\""),
        ("\"sasl.password\" = \"${PW}\"", "\"group.id\" = \"hunter2\""),
    ] {
        let problems = Config::parse(&text.replace(good, wrong), &env).unwrap_err();
        assert!(!format!("{problems} {problems:?}").contains(canary), "{wrong}: {problems}");
    }
}

proptest! {
    /// Whatever an editor leaves behind is answered, not a reason to panic.
    #[test]
    fn a_damaged_file_is_answered(from in 0..TEMPLATE.len(), len in 0..80_usize, junk in "[\\[\\]{}=\".,'a\n#$-]{0,6}") {
        let end = (from + len).min(TEMPLATE.len());
        if let (Some(head), Some(tail)) = (TEMPLATE.get(..from), TEMPLATE.get(end..)) {
            let text = format!("{head}{junk}{tail}");
            if let Err(problems) = Config::parse(&text, &|_| None) {
                prop_assert!(!problems.is_empty());
                let lines = text.lines().count() + 1;
                prop_assert!(problems.iter().all(|problem| (1..=lines).contains(&problem.line)));
            }
        }
    }

    #[test]
    fn any_headings_are_answered(lines in prop::collection::vec(
        "(\\[\\[?)?(store|inbox|kafka|http|handler|each)(\\.(url|handler|properties|each)){0,2}(\\]\\]?| = (1|\"x\"|\\{\\}|\\[\\]))?", 0..8,
    )) {
        let text = lines.join("\n");
        prop_assert!(Config::parse(&text, &|_| None).is_err());
    }
}

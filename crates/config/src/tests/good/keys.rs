//! What is there without being said, and every key that may be.

use std::time::Duration;

use oncebox_core::inbox::{BatchBounds, OnFailure, RetryPolicy, StalePolicy, StartPolicy};
use oncebox_core::telemetry::Ratio;
use oncebox_sql::{Handler, PayloadKind, RowRule};

use super::{SMALL, kafka, parse, sql};
use crate::*;

#[test]
fn defaults() {
    let config = parse(SMALL);
    assert_eq!(config.http, None);
    assert_eq!(config.purge.every, Duration::from_secs(3600));
    let outbox = OutboxConfig {
        exchange: None,
        cluster: None,
        routes: Vec::new(),
        relay: false,
        keep: Duration::ZERO,
        source: "oncebox".to_owned(),
        lease: Duration::from_secs(10),
        max_age: Duration::from_secs(300),
        batch: BatchBounds { messages: 4000, bytes: 4 * 1024 * 1024 },
        max_connections: None,
    };
    assert_eq!(config.outbox, outbox);
    assert_eq!(config.kafka.get(None).unwrap().brokers, "a:9092,b:9092");
    let inbox = &config.inboxes[0];
    assert_eq!(kafka(inbox).group, "stock");
    assert_eq!(inbox.retention, Duration::from_secs(7 * 24 * 3600));
    assert_eq!((inbox.lanes, inbox.crash_limit), (1, 3));
    assert_eq!((inbox.batch, inbox.retry), (BatchBounds::default(), RetryPolicy::default()));
    assert_eq!((kafka(inbox).start, inbox.stale), (StartPolicy::Earliest, StalePolicy::Apply));
    assert_eq!((inbox.payload, kafka(inbox).retention_check), (PayloadKind::Json, RetentionCheck::Warn));
}

#[test]
fn every_key() {
    let config = parse(
        r#"
        [store]
        url = "postgresql://erp:pw@db/erp"
        max_connections = 9
        partition_receipts = "day"
        [kafka]
        brokers = "k"
        properties = { "a.b" = 5, "c" = true, "partition.assignment.strategy" = "roundrobin" }
        [http]
        listen = "0.0.0.0:80"
        allow_remote = true
        payloads = "hide"
        trace_url = "https://jaeger.example/trace/{trace}"
        [http.auth]
        read = ["read-read-read-read"]
        act = ["act-act-act-act-act"]
        proxy = { header = "X-User", from = ["10.0.0.1"], act = ["ana"] }
        [limits]
        memory = "1GiB"
        [purge]
        every = "5m"
        [outbox]
        relay = true
        keep = "1d"
        source = "/erp/stock"
        lease = "2s"
        max_age = "1h"
        batch = { messages = 1, bytes = 1024 }
        max_connections = 3
        [[inbox]]
        consumer = "a"
        group = "g"
        topics = ["t", "u"]
        id = "cloudevents"
        tenant = "json:/tenant"
        start = "fail"
        batch = { messages = 10000, bytes = 1024 }
        lanes = 64
        max_connections = 4
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
    assert_eq!(
        (kafka(a).start, a.on_failure, a.stale),
        (StartPolicy::Fail, OnFailure::ParkKey, StalePolicy::Park)
    );
    assert_eq!((a.payload, kafka(a).retention_check), (PayloadKind::Bytes, RetentionCheck::Refuse));
    assert_eq!(a.batch, BatchBounds { messages: 10_000, bytes: 1024 });
    assert_eq!((kafka(a).group.as_str(), kafka(b).group.as_str()), ("g", "b"));
    assert_eq!(sql(a).steps()[1].rows, "1..".parse::<RowRule>().ok());
    assert_eq!(b.batch.bytes, 1_000_000);
    assert!(matches!(sql(b), Handler::Batch(_)));
    assert_eq!(config.kafka.get(None).unwrap().properties["a.b"], "5");
    assert_eq!(config.store.partition_receipts, PartitionReceipts::Day);
    let outbox = OutboxConfig {
        exchange: None,
        cluster: None,
        routes: Vec::new(),
        relay: true,
        keep: Duration::from_secs(86_400),
        source: "/erp/stock".to_owned(),
        lease: Duration::from_secs(2),
        max_age: Duration::from_secs(3600),
        batch: BatchBounds { messages: 1, bytes: 1024 },
        max_connections: Some(3),
    };
    assert_eq!(config.outbox, outbox);
    assert_eq!((a.max_connections, b.max_connections), (Some(4), None));
    assert_eq!(config.limits, LimitsConfig { memory: 1 << 30 });
}

#[test]
fn telemetry_is_off_unless_a_collector_is_named() {
    assert_eq!(parse(SMALL).telemetry, None);
    let telemetry = |keys: &str| parse(&format!("{SMALL}[telemetry]\n{keys}")).telemetry.unwrap();
    let small = telemetry("otlp = \"http://127.0.0.1:4318\"");
    assert_eq!((small.service_name.as_str(), small.message_ids), ("oncebox", false));
    assert_eq!((small.sample, small.headers.len()), (Ratio::default(), 0));
    let all = "otlp = \"https://otlp.example.com/secret\"\nheaders = { \"x-api-key\" = \"canary\" }\n\
               service_name = \"shop\"\nsample = 0.25\nmessage_ids = true";
    let all = telemetry(all);
    assert_eq!(Some(all.sample), Ratio::new(0.25));
    assert_eq!((all.service_name.as_str(), all.message_ids), ("shop", true));
    assert_eq!(all.headers[0].1.expose(), "canary");
    let shown = format!("{all:?}");
    assert!(!shown.contains("canary") && !shown.contains("secret"), "{shown}");
    assert_eq!(Some(telemetry("otlp = \"http://h\"\nsample = 1").sample), Ratio::new(1.0));
}

#[test]
fn the_log_has_a_level_and_a_summary() {
    let log = |keys: &str| parse(&format!("{SMALL}[log]\n{keys}")).log;
    assert_eq!(log(""), LogConfig::default());
    let of =
        |level: &str, seconds| LogConfig { level: level.to_owned(), summary: Duration::from_secs(seconds) };
    assert_eq!(log(""), of("info", 60));
    assert_eq!(
        log("level = \"info,oncebox_kafka=debug\"\nsummary = \"0s\""),
        of("info,oncebox_kafka=debug", 0)
    );
}

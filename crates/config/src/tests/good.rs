//! What is accepted, with which defaults, and that secrets stay secret.

use std::num::NonZeroU32;
use std::time::Duration;

use oncebox_core::inbox::Selector;
use oncebox_core::inbox::{BatchBounds, OnFailure, RetryPolicy, StalePolicy, StartPolicy};
use oncebox_core::secret::Secret;
use oncebox_core::store::{Adopt, Sweep};
use oncebox_sql::{Handler, PayloadKind, RowRule};
use proptest::prelude::*;

use crate::*;
use oncebox_core::backoff::Backoff;

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

const RELAYING: &str = r#"
[store]
url = "sqlite://stock.db"
[outbox]
relay = true
[kafka]
brokers = "k"
"#;

fn parse_with(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Config, Problems> {
    Config::parse(text, &Surroundings { env, ..Surroundings::default() })
}

fn parse(text: &str) -> Config {
    parse_with(text, &|_| None).unwrap()
}

fn sql(inbox: &InboxConfig) -> &Handler {
    let HandlerConfig::Sql(handler) = &inbox.handler else { unreachable!() };
    handler
}

fn kafka(inbox: &InboxConfig) -> &KafkaInbox {
    inbox.source.kafka().unwrap()
}

fn topics(inbox: &InboxConfig) -> &[String] {
    &kafka(inbox).topics
}

#[test]
fn a_queue_of_rabbitmq_is_read_instead_of_topics() {
    let queue = SMALL.replace("topics = [\"t\"]", "queue = \"stock.updates\"").replace(
        "[kafka]\nbrokers = \"a:9092, b:9092\"",
        "[rabbitmq]\nurl = \"amqp://guest:s3cret@a:5672/%2f,amqp://guest:s3cret@b\"",
    );
    let config = parse(&queue);
    let expected = RabbitmqInbox { queue: "stock.updates".to_owned(), prefetch: 500, key: None };
    assert_eq!(config.inboxes[0].source, SourceConfig::Rabbitmq(expected));
    assert!(config.kafka.is_none());
    assert!(!format!("{config:?}").contains("s3cret"));
    let more = queue.replace("id = \"key\"", "id = \"key\"\nprefetch = 20\nkey = \"header:sku\"");
    let SourceConfig::Rabbitmq(inbox) = &parse(&more).inboxes[0].source else { unreachable!() };
    assert_eq!((inbox.prefetch, &inbox.key), (20, &Some(Selector::Header("sku".into()))));
}

#[test]
fn events_go_to_exchanges_by_their_topics() {
    let config = parse(
        r#"
        [store]
        url = "sqlite://stock.db"
        [rabbitmq]
        url = "amqp://h"
        [outbox]
        relay = true
        exchange = "events"
        [[outbox.route]]
        topics = ["invoice.*", "mail"]
        exchange = ""
        routing_key = "{topic}.{key}"
        [[outbox.route]]
        topics = ["audit"]
        exchange = "audit"
        "#,
    );
    assert_eq!(config.outbox.exchange.as_deref(), Some("events"));
    let [invoices, audit] = config.outbox.routes.as_slice() else { unreachable!() };
    assert_eq!(
        (invoices.topics.len(), invoices.exchange.as_str(), invoices.routing_key.as_str()),
        (2, "", "{topic}.{key}")
    );
    assert_eq!((audit.exchange.as_str(), audit.routing_key.as_str()), ("audit", "{topic}"));
}

const REQUESTS: &str = r#"
[store]
url = "sqlite://stock.db"
[http]
listen = "127.0.0.1:7878"
[[inbox]]
consumer = "orders"
id = "header:Idempotency-Key"
handler = { each = ["SELECT :id"] }
[inbox.http]
path = "/in/orders"
"#;

fn http(config: &Config) -> &HttpInbox {
    let SourceConfig::Http(http) = &config.inboxes[0].source else { unreachable!() };
    http
}

#[test]
fn requests_are_taken_instead_of_topics() {
    let config = parse(REQUESTS);
    let (inbox, requests) = (&config.inboxes[0], http(&config));
    assert_eq!((inbox.on_failure, inbox.retry.attempts), (OnFailure::GiveBack, 1), "the sender tries again");
    assert_eq!((requests.path.as_str(), requests.status, requests.body.as_str()), ("/in/orders", 204, ""));
    assert_eq!((requests.timeout, requests.max_body), (Duration::from_secs(10), 1024 * 1024));
    assert_eq!((&requests.key, requests.compare_body, &requests.verify), (&None, true, &None));

    let all = format!(
        "{REQUESTS}mode = \"apply\"\nstatus = 201\nbody = \"done\"\ntimeout = \"2s\"\nmax_body = \"64KiB\"\nkey = \"json:/sku\"\n\
         compare_body = false\n\
         verify = {{ scheme = \"hmac\", header = \"x-sig\", encoding = \"base64\", prefix = \"v1=\", secrets = [\"s3cret\"], \
         tolerance = \"1m\" }}\n"
    );
    let config = parse(&all);
    let requests = http(&config);
    assert_eq!((requests.status, requests.body.as_str(), requests.max_body), (201, "done", 64 * 1024));
    assert!(!requests.compare_body);
    let scheme = VerifyScheme::Hmac { header: "x-sig".into(), base64: true, prefix: "v1=".into() };
    let verify = requests.verify.as_ref().unwrap();
    assert_eq!((&verify.scheme, verify.tolerance), (&scheme, Some(Duration::from_secs(60))));
    assert!(!format!("{config:?}").contains("s3cret"));
}

#[test]
fn what_is_accepted_is_parked_if_it_fails_and_needs_no_sink_besides() {
    let text = format!(
        "{REQUESTS}mode = \"accept\"\nhandshake = {{ origins = [\"eventgrid.azure.net\"], rate = 120 }}\n\
         verify = {{ scheme = \"standard\", secrets = {{ acme = [\"s3cret\", \"new\"], zenith = [\"hush\"] }} }}\n\
         [outbox]\nrelay = true\n"
    );
    let config = parse(&text);
    let (inbox, requests) = (&config.inboxes[0], http(&config));
    assert_eq!((requests.mode, inbox.on_failure), (HttpMode::Accept, OnFailure::Park));
    assert_eq!(inbox.retry, parse(SMALL).inboxes[0].retry, "nobody else tries it again");
    let handshake = requests.handshake.as_ref().unwrap();
    assert_eq!(
        (handshake.origins.as_slice(), handshake.rate),
        (&["eventgrid.azure.net".to_owned()][..], NonZeroU32::new(120))
    );
    let SecretsConfig::Each { parameter, secrets } = &requests.verify.as_ref().unwrap().secrets else {
        unreachable!()
    };
    let of_each: Vec<_> = secrets.iter().map(|(tenant, secrets)| (tenant.as_str(), secrets.len())).collect();
    assert_eq!((parameter.as_str(), of_each), ("tenant", vec![("acme", 2), ("zenith", 1)]));
    assert!(!format!("{config:?}").contains("s3cret"));
}

#[test]
fn the_template_has_no_problems() {
    let config = parse(TEMPLATE);
    assert_eq!(config.store.kind, StoreKind::Postgres);
    let inbox = &config.inboxes[0];
    let steps = sql(inbox).steps();
    assert_eq!(steps.len(), 2);
    assert!(steps.iter().all(|step| step.sql.warnings().is_empty()));
}

#[test]
fn an_id_of_several_parts_is_a_list() {
    let text = SMALL.replace("\"key\"", "[\"json:/eventCode\", \"json:/pspReference\"]");
    let parts = ["/eventCode", "/pspReference"].map(|pointer| Selector::Json(pointer.to_owned()));
    assert_eq!(parse(&text).inboxes[0].identity.id, Selector::all(parts).unwrap());
}

#[test]
fn the_template_shows_the_defaults() {
    let template = parse(TEMPLATE);
    let small = parse(SMALL);
    let (shown, default) = (&template.inboxes[0], &small.inboxes[0]);
    let adjusted = InboxConfig {
        source: SourceConfig::Kafka(KafkaInbox { topics: topics(shown).to_vec(), ..kafka(default).clone() }),
        identity: shown.identity.clone(),
        handler: shown.handler.clone(),
        ..default.clone()
    };
    assert_eq!(*shown, adjusted);
    assert_eq!((template.purge, template.outbox), (small.purge, small.outbox));
    assert!(template.webhooks.is_empty() && template.sweeps.is_empty());
}

#[test]
fn the_commented_keys_of_the_template_work_too() {
    let is_key = |line: &str| {
        let key = line.starts_with("# ") && line.contains(" = ") && !line.starts_with("# batch");
        // The template is one for PostgreSQL.
        let key = key && !line.contains("# (MongoDB)");
        key || line.starts_with("# [")
    };
    let mut text = String::new();
    let mut in_batch = false;
    for line in TEMPLATE.lines() {
        in_batch |= line.starts_with("# batch = [");
        let uncomment = is_key(line) && !in_batch;
        text.push_str(if uncomment { &line[2..] } else { line });
        text.push('\n');
        in_batch &= line != "# ]";
    }
    let text = text.replace("relay = false", "relay = true");
    let config = parse_with(&text, &|_| Some("x".into())).unwrap();
    let [webhook] = config.webhooks.as_slice() else { unreachable!() };
    let small = parse(&format!("{RELAYING}[[webhook]]\ntopics = [\"invoice.*\"]\nurl = \"https://a\"\n"));
    let adjusted = WebhookConfig {
        url: webhook.url.clone(),
        secret: webhook.secret.clone(),
        headers: webhook.headers.clone(),
        timeout: webhook.timeout,
        at_once: webhook.at_once,
        ..small.webhooks[0].clone()
    };
    assert_eq!(*webhook, adjusted, "the commented keys are the defaults");
    let [SweepConfig { sweep, .. }] = config.sweeps.as_slice() else { unreachable!() };
    let needed = "name = \"a\"\nevery = \"5m\"\nsql = \"SELECT 1\"\nkey = \"id\"\nemit = { topic = \"t\" }\n";
    let small = parse(&format!("{RELAYING}[[sweep]]\n{needed}"));
    let default = &small.sweeps[0].sweep;
    assert_eq!((sweep.window, sweep.limit), (default.window, default.limit));
    assert_eq!(config.store.adopt.map(|adopt| adopt.columns().count()), Some(5));
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
    let Handler::Batch(steps) = sql(&config.inboxes[0]) else { unreachable!() };
    assert!(steps.iter().all(|step| step.sql.warnings().is_empty()));
}

#[test]
fn defaults() {
    let config = parse(SMALL);
    assert_eq!(config.http, None);
    assert_eq!(config.purge.every, Duration::from_secs(3600));
    let outbox = OutboxConfig {
        exchange: None,
        routes: Vec::new(),
        relay: false,
        keep: Duration::ZERO,
        source: "oncebox".to_owned(),
        lease: Duration::from_secs(10),
        max_age: Duration::from_secs(300),
        batch: BatchBounds { messages: 4000, bytes: 4 * 1024 * 1024 },
    };
    assert_eq!(config.outbox, outbox);
    assert_eq!(config.kafka.unwrap().brokers, "a:9092,b:9092");
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
        relay = true
        keep = "1d"
        source = "/erp/stock"
        lease = "2s"
        max_age = "1h"
        batch = { messages = 1, bytes = 1024 }
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
    assert_eq!(config.kafka.unwrap().properties["a.b"], "5");
    assert_eq!(config.store.partition_receipts, PartitionReceipts::Day);
    let outbox = OutboxConfig {
        exchange: None,
        routes: Vec::new(),
        relay: true,
        keep: Duration::from_secs(86_400),
        source: "/erp/stock".to_owned(),
        lease: Duration::from_secs(2),
        max_age: Duration::from_secs(3600),
        batch: BatchBounds { messages: 1, bytes: 1024 },
    };
    assert_eq!(config.outbox, outbox);
}

#[test]
fn every_key_of_an_adopted_table() {
    let adopt = "adopt = { table = \"shop.inbox\", message_id = \"event_id\", processed_at = \"at\", consumer = \"who\", \
         tenant = \"shop\", set = { kind = \"header:type\", number = \"json:/n\" } }\n[kafka]";
    let adopt = parse(&SMALL.replace("[kafka]", adopt)).store.adopt.unwrap();
    let mut expected = Adopt::table("shop.inbox", "event_id").unwrap();
    for (map, column) in [
        (Adopt::processed_at as fn(Adopt, &str) -> _, "at"),
        (Adopt::consumer, "who"),
        (Adopt::tenant, "shop"),
    ] {
        expected = map(expected, column).unwrap();
    }
    expected = expected.set("kind", Selector::Header("type".to_owned())).unwrap();
    assert_eq!(adopt, expected.set("number", Selector::Json("/n".to_owned())).unwrap());
    assert_eq!(parse(SMALL).store.adopt, None);
}

#[test]
fn every_key_of_webhooks_and_sweeps() {
    // Neither an inbox nor [kafka] is needed.
    let config = parse(
        r#"
        [store]
        url = "postgres://erp@db/erp"
        [outbox]
        relay = true
        [[webhook]]
        topics = ["invoice.*", "mail"]
        url = "https://u:p@mail.example.com:8443/in?token=x"
        secret = "s"
        timeout = "5m"
        retry = { attempts = 20, backoff = "1s..10m" }
        at_once = 256
        headers = { "X-Team" = "erp", "x-level" = 5 }
        [[webhook]]
        topics = ["*"]
        url = "http://[::1]:8080"
        retry = { backoff = "1s..2s" }
        [[sweep]]
        name = "due"
        every = "1s"
        sql = "WITH d AS (SELECT 1 AS id) SELECT id, 'a'::text AS customer FROM d; -- all of them"
        key = "id"
        window = "7d"
        emit = { topic = "invoice.mail", key = "customer" }
        limit = 10000
        "#,
    );
    let [mail, rest] = config.webhooks.as_slice() else { unreachable!() };
    assert_eq!(mail.topics, ["invoice.*", "mail"]);
    assert_eq!(mail.url.expose(), "https://u:p@mail.example.com:8443/in?token=x");
    assert_eq!(
        (mail.url.origin().as_str(), mail.url.is_in_the_clear()),
        ("https://mail.example.com:8443", false)
    );
    assert_eq!(mail.secret, Some(Secret::new("s")));
    assert_eq!((mail.timeout, mail.at_once), (Some(Duration::from_secs(300)), Some(256)));
    let (second, minutes) = (Duration::from_secs(1), Duration::from_secs(600));
    assert_eq!(mail.retry, RetryPolicy { attempts: 20, backoff: Backoff { min: second, max: minutes } });
    let headers: Vec<_> = mail.headers.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
    assert_eq!(headers, [("X-Team", "erp"), ("x-level", "5")]);
    assert_eq!((rest.retry.attempts, rest.timeout, rest.at_once), (u32::MAX, None, None));

    let [due] = config.sweeps.as_slice() else { unreachable!() };
    let sweep = Sweep {
        name: "due".to_owned(),
        query: "WITH d AS (SELECT 1 AS id) SELECT id, 'a'::text AS customer FROM d".to_owned(),
        row_key: "id".to_owned(),
        window: Duration::from_secs(7 * 86_400),
        topic: "invoice.mail".to_owned(),
        event_key: Some("customer".to_owned()),
        limit: 10_000,
    };
    assert_eq!(*due, SweepConfig { every: second, sweep });
}

#[test]
fn a_sweep_needs_no_relay() {
    let text = RELAYING.replace("relay = true", "relay = false").replace("[kafka]\nbrokers = \"k\"\n", "");
    let sweep = "name = \"a\"\nevery = \"1m\"\nsql = \"SELECT 1 AS id\"\nkey = \"id\"\nemit.topic = \"t\"\n";
    let config = parse(&format!("{text}[[sweep]]\n{sweep}"));
    let sweep = &config.sweeps[0].sweep;
    assert_eq!((sweep.window, sweep.limit), (Duration::from_secs(86_400), 1000));
    assert_eq!(sweep.event_key, None);
}

#[test]
fn plain_http_is_safe_on_this_machine_only() {
    for (url, in_the_clear) in [
        ("http://localhost:80/x", false),
        ("http://mail.localhost", false),
        ("http://127.3.0.1", false),
        ("http://[::1]/", false),
        ("http://[::ffff:127.0.0.1]/", false),
        ("http://10.0.0.1", true),
        ("http://localhost.example.com", true),
        ("https://10.0.0.1", false),
    ] {
        let config = parse(&format!("{RELAYING}[[webhook]]\ntopics = [\"t\"]\nurl = \"{url}\"\n"));
        assert_eq!(config.webhooks[0].url.is_in_the_clear(), in_the_clear, "{url}");
    }
}

#[test]
fn variables_reach_every_string() {
    let text = SMALL.replace("stock.db", "${DIR}/stock.db").replace("\"t\"", "\"$${x}${TOPIC}\"");
    let env = |name: &str| Some(if name == "DIR" { "/data" } else { "orders" }.to_owned());
    let problems = parse_with(&text, &env).unwrap_err();
    assert_eq!(problems.iter().next().map(|p| p.key.as_str()), Some("inbox[0].topics[0]"));
    let config = parse_with(&text.replace("$${x}", ""), &env).unwrap();
    assert_eq!(config.store.url.expose(), "sqlite:///data/stock.db");
    assert_eq!(topics(&config.inboxes[0]), ["orders"]);
}

#[test]
fn the_kind_of_the_store_is_in_its_url() {
    for (url, kind) in [
        ("postgresql://erp@db/erp", StoreKind::Postgres),
        ("mysql://erp:pw@db:3307/erp?ssl-mode=REQUIRED", StoreKind::Mysql),
        ("mariadb://erp@db/erp", StoreKind::Mysql),
        ("sqlite://erp.db?mode=rwc", StoreKind::Sqlite),
    ] {
        let config = parse(&SMALL.replace("sqlite://stock.db", url));
        assert_eq!((config.store.kind, config.store.url.expose()), (kind, url));
    }
    // Said for any store, as long as it asks for nothing.
    let text = SMALL.replace("sqlite://stock.db\"", "mysql://db/erp\"\npartition_receipts = \"none\"");
    assert_eq!(parse(&text).store.partition_receipts, PartitionReceipts::None);
}

#[test]
fn secrets_show_up_nowhere() {
    let canary = "hunter2";
    let env = |_: &str| Some(canary.to_owned());
    let text = SMALL.replace("sqlite://stock.db", "postgres://erp:${PW}@db/erp").replace(
        "[[inbox]]",
        "[kafka.properties]\n\"sasl.password\" = \"${PW}\"\n\"ssl.key.pem\" = \"hunter2\"\n[[inbox]]",
    );
    let config = parse_with(&text, &env).unwrap();
    assert!(!format!("{config:?} {config:#?} {}", config.store.url.redacted()).contains(canary));

    let webhook = "[[webhook]]\ntopics = [\"t\"]\nurl = \"https://u:${PW}@host/${PW}?a=${PW}#${PW}\"\nsecret = \"${PW}\"\n\
                   headers = { \"authorization\" = \"${PW}\" }\n";
    let relaying = format!("{RELAYING}{webhook}");
    let config = parse_with(&relaying, &env).unwrap();
    assert!(!format!("{config:?} {}", config.webhooks[0].url.origin()).contains(canary), "{config:?}");
    for (good, wrong) in [
        ("\"https://u:${PW}@host/${PW}?a=${PW}#${PW}\"", "\"${PW}\""),
        ("\"https://u:${PW}@host/${PW}?a=${PW}#${PW}\"", "\"ftp://${PW}\""),
        ("secret = \"${PW}\"", "secret = [\"hunter2\"]"),
        ("= \"${PW}\" }", "= \"hunter2\\n\" }"),
    ] {
        assert!(relaying.contains(good), "{good}");
        let problems = parse_with(&relaying.replace(good, wrong), &env).unwrap_err();
        assert!(!format!("{problems} {problems:?}").contains(canary), "{wrong}: {problems}");
    }

    for (good, wrong) in [
        ("postgres://erp:${PW}@db/erp", "${PW}"),
        ("postgres://erp:${PW}@db/erp", "hunter2://x"),
        ("postgres://erp:${PW}@db/erp", "mongodb://erp:${PW}@db"),
        ("postgres://erp:${PW}@db/erp", "mysql://erp:${PW}@db"),
        ("\"postgres://erp:${PW}@db/erp\"", "[\"hunter2\"]"),
        ("\"sasl.password\" = \"${PW}\"", "\"sasl.password\" = [\"hunter2\"]"),
        ("\"sasl.password\" = \"${PW}\"", "\"sasl.password\" = \"hunter2${\""),
    ] {
        let problems = parse_with(&text.replace(good, wrong), &env).unwrap_err();
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
            if let Err(problems) = parse_with(&text, &|_| None) {
                prop_assert!(!problems.is_empty());
                let lines = text.lines().count() + 1;
                prop_assert!(problems.iter().all(|problem| (1..=lines).contains(&problem.line)));
            }
        }
    }

    #[test]
    fn any_headings_are_answered(lines in prop::collection::vec(
        "(\\[\\[?)?(store|inbox|kafka|http|handler|each|outbox|webhook|sweep|emit)(\\.(url|handler|properties|each)){0,2}(\\]\\]?| = (1|\"x\"|\\{\\}|\\[\\]))?", 0..8,
    )) {
        let text = lines.join("\n");
        prop_assert!(parse_with(&text, &|_| None).is_err());
    }
}

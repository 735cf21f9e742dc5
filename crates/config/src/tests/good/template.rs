//! The template that `oncebox init` writes.

use oncebox_core::inbox::Selector;
use oncebox_sql::Handler;

use super::{RELAYING, SMALL, kafka, parse, parse_with, sql, topics};
use crate::*;

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
    assert_eq!(template.log, small.log);
    assert!(template.webhooks.is_empty() && template.sweeps.is_empty());
}

#[test]
fn the_commented_keys_of_the_template_work_too() {
    let is_key = |line: &str| {
        let key = line.starts_with("# ") && line.contains(" = ") && !line.starts_with("# batch");
        // The template is one for PostgreSQL and Kafka.
        let key = key
            && !["# (MongoDB)", "# (RabbitMQ)", "# (without url)"].iter().any(|other| line.contains(other));
        key || line.starts_with("# [")
    };
    let mut text = String::new();
    let (mut in_batch, mut in_requests) = (false, false);
    for line in TEMPLATE.lines() {
        in_batch |= line.starts_with("# batch = [");
        in_requests = line.starts_with("# [inbox.http]") || (in_requests && !line.is_empty());
        let uncomment = is_key(line) && !in_batch && !in_requests;
        text.push_str(if uncomment { &line[2..] } else { line });
        text.push('\n');
        in_batch &= line != "# ]";
    }
    let text = text.replace("relay = false", "relay = true");
    // Tokens of a dashboard must not be guessed, and differ.
    let set = |name: &str| Some(if name.starts_with("ONCEBOX_") { name.repeat(2) } else { "x".to_owned() });
    let config = parse_with(&text, &set).unwrap();
    let [webhook] = config.webhooks.as_slice() else { unreachable!() };
    let small = parse(&format!("{RELAYING}[[webhook]]\ntopics = [\"invoice.*\"]\nurl = \"https://a\"\n"));
    let adjusted = WebhookConfig {
        name: Some("crm".to_owned()),
        url: webhook.url.clone(),
        secret: webhook.secret.clone(),
        headers: webhook.headers.clone(),
        timeout: webhook.timeout,
        at_once: webhook.at_once,
        park_on: webhook.park_on.clone(),
        ..small.webhooks[0].clone()
    };
    assert_eq!(*webhook, adjusted, "the commented keys are the defaults");
    let [SweepConfig { sweep, .. }] = config.sweeps.as_slice() else { unreachable!() };
    let needed = "name = \"a\"\nevery = \"5m\"\nsql = \"SELECT 1\"\nkey = \"id\"\nemit = { topic = \"t\" }\n";
    let small = parse(&format!("{RELAYING}[[sweep]]\n{needed}"));
    let default = &small.sweeps[0].sweep;
    assert_eq!((sweep.window, sweep.limit), (default.window, default.limit));
    assert_eq!(config.store.adopt.map(|adopt| adopt.columns().count()), Some(5));
    assert_eq!(config.kafka.get(None).unwrap().properties.len(), 4);
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

/// The template with these comments as keys, and without the keys that only topics have. Whether a comment is one is asked with the line and
/// the last heading.
fn template_with(is_key: impl Fn(&str, &str) -> bool) -> Config {
    let only_topics = ["topics = ", "start = ", "retention_check = ", "on_failure = "];
    let (mut text, mut heading) = (String::new(), "");
    for line in TEMPLATE.lines() {
        let bare = line.strip_prefix("# ").unwrap_or(line);
        if bare.starts_with('[') {
            heading = bare.split_whitespace().next().unwrap_or_default();
        }
        if !only_topics.iter().any(|key| line.starts_with(key)) {
            text.push_str(if is_key(bare, heading) { bare } else { line });
            text.push('\n');
        }
    }
    parse_with(&text, &|_| Some("x".into())).unwrap()
}

#[test]
fn the_other_sources_of_the_template_work_too() {
    let config = template_with(|line, heading| {
        ["[rabbitmq]", "[[outbox.route]]"].contains(&heading) || line.contains("# (RabbitMQ)")
    });
    let SourceConfig::Rabbitmq(shown) = &config.inboxes[0].source else { unreachable!() };
    assert_eq!((shown.queue.as_str(), shown.prefetch), ("stock.updates", 500));
    assert_eq!((config.outbox.exchange.as_deref(), config.outbox.routes.len()), (Some("events"), 1));

    let config = template_with(|_, heading| heading == "[inbox.http]");
    let SourceConfig::Http(shown) = &config.inboxes[0].source else { unreachable!() };
    assert!(shown.verify.is_some() && shown.handshake.is_some() && shown.key.is_some());
    assert_eq!((shown.path.as_str(), shown.status, shown.body.as_str()), ("/in/orders", 204, ""));
}

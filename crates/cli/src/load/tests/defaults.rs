//! The default of a key stands once, in the code. The guide and the template show it, and here is seen that they are right.

use std::collections::BTreeSet;

use oncebox_config::{Config, TEMPLATE};
use oncebox_postgres::PgStoreBuilder;

use super::super::parse;

const GUIDE: &str = include_str!("../../../../../docs/guides/daemon.md");

/// What is required in each section.
const SMALLEST: [(&str, &str, &str); 13] = [
    ("store", "[store]", "url = \"postgres://erp@db/erp\""),
    ("kafka", "[kafka]", "brokers = \"k\""),
    ("rabbitmq", "[rabbitmq]", "url = \"amqp://host\""),
    ("http", "[http]", ""),
    ("log", "[log]", ""),
    ("telemetry", "[telemetry]", "otlp = \"http://host\""),
    ("limits", "[limits]", ""),
    ("purge", "[purge]", ""),
    ("outbox", "[outbox]", ""),
    ("outbox.route", "[[outbox.route]]", "topics = [\"r\"]\nexchange = \"e\""),
    ("inbox", "[[inbox]]", "consumer = \"stock\"\nid = \"header:id\"\nhandler.each = [\"SELECT :id\"]"),
    ("webhook", "[[webhook]]", "topics = [\"w\"]\nurl = \"https://host/path\""),
    (
        "sweep",
        "[[sweep]]",
        "name = \"due\"\nevery = \"5m\"\nsql = \"SELECT 1 AS id\"\nkey = \"id\"\nemit = { topic = \"t\" }",
    ),
];

/// The section of an inbox that reads a queue.
const QUEUE: &str = "inbox with a queue";

/// A file with one more line in this section, as the daemon understands it.
fn with(section: &str, line: &str) -> Config {
    let mut text = String::new();
    for (name, heading, required) in SMALLEST {
        let more = match (name, section) {
            // Only a webhook wants a relay.
            ("webhook", _) if section != "webhook" => continue,
            ("outbox.route", _) if section != "outbox.route" => continue,
            ("outbox", "webhook") => "relay = true",
            ("inbox", QUEUE) => &format!("queue = \"q\"\n{line}"),
            ("inbox", "inbox.http") => &format!("[inbox.http]\npath = \"/in\"\n{line}"),
            ("inbox", _) => &format!("topics = [\"t\"]\n{}", if section == "inbox" { line } else { "" }),
            _ if name == section => line,
            _ => "",
        };
        text.push_str(&format!("{heading}\n{required}\n{more}\n"));
    }
    let mut config = parse(&text).unwrap_or_else(|problems| panic!("{line}: {problems}"));
    // What the file leaves to the store and the sink.
    config.store.max_connections.get_or_insert(PgStoreBuilder::DEFAULT_MAX_CONNECTIONS);
    for webhook in &mut config.webhooks {
        webhook.timeout.get_or_insert(oncebox_webhook::DEFAULT_TIMEOUT);
        webhook.at_once.get_or_insert(oncebox_webhook::DEFAULT_AT_ONCE);
        webhook.park_on.get_or_insert_with(|| oncebox_webhook::DEFAULT_PARK_ON.to_vec());
    }
    config
}

/// The rows of the guide's table: section, key, and the default if there is one.
fn guide() -> Vec<(&'static str, &'static str, Option<&'static str>)> {
    let table = GUIDE.split("## All keys and their defaults").nth(1).unwrap();
    let mut rows = Vec::new();
    for line in table.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let default = cells[2].strip_prefix('`').and_then(|rest| rest.split('`').next());
        for key in cells[1].split(", ").map(|key| key.trim_matches('`')) {
            let (section, key) = key.rsplit_once('.').unwrap();
            rows.push((section, key, default));
        }
    }
    rows
}

/// The keys of the template, also those in comments, with their values.
fn template() -> Vec<(String, String, String)> {
    let mut keys = Vec::new();
    let mut section = String::new();
    for line in TEMPLATE.lines() {
        let line = line.strip_prefix("# ").unwrap_or(line);
        let code = line.split("  #").next().unwrap_or_default().trim_end();
        let is_name = |name: &str| name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        if code.starts_with('[') {
            section = code.trim_matches(['[', ']']).to_owned();
        } else if let Some((key, value)) = code.split_once(" = ")
            && is_name(key)
        {
            keys.push((section.clone(), key.to_owned(), value.to_owned()));
        }
    }
    keys
}

#[test]
fn the_guide_names_the_true_defaults() {
    let defaults = guide().into_iter().filter_map(|(section, key, default)| Some((section, key, default?)));
    for (section, key, default) in defaults {
        let section = if (section, key) == ("inbox", "prefetch") { QUEUE } else { section };
        let line = format!("{key} = {default}");
        assert_eq!(with(section, &line), with(section, ""), "[{section}] {line}");
    }
}

#[test]
fn the_template_and_the_guide_agree() {
    let template = template();
    for (section, key, default) in guide() {
        let shown = template.iter().find(|(s, k, _)| s == section && k == key);
        if key != "properties" {
            let (.., value) = shown.unwrap_or_else(|| panic!("the template has no {section}.{key}"));
            assert!(default.is_none_or(|default| default == value), "{section}.{key}: {value}");
        }
    }
    let guide: BTreeSet<_> = guide().into_iter().map(|(section, key, _)| (section, key)).collect();
    for (section, key, _) in &template {
        assert!(guide.contains(&(section.as_str(), key.as_str())), "the guide has no {section}.{key}");
    }
}

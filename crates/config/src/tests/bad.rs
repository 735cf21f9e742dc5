//! What is refused, section by section: each case names the key, the line and a part of what is said.

mod file;
mod handler;
mod inbox;
mod kafka;
mod outbox;
mod services;
mod sources;
mod store;
mod sweep;
mod webhook;

use oncebox_sql::{Sql, StatementError};

use crate::{Config, Problems, RefusedProperty, StoreKind, Surroundings};

/// The lines are numbered so that the cases can count on them.
const BASE: &str = r#"[store]
url = "postgres://erp@localhost/erp"
[kafka]
brokers = "localhost:9092"
[kafka.properties]
"security.protocol" = "plaintext"
[http]
listen = "127.0.0.1:7878"
[[inbox]]
consumer = "stock"
topics = ["stock.updates"]
id = "header:event_id"
retention = "7d"
[inbox.handler]
each = [
  "SELECT :id",
  { sql = "SELECT :key", rows = 1 },
]
[outbox]
relay = true
[[webhook]]
topics = ["invoice.*"]
url = "https://host/path"
[[sweep]]
name = "due"
every = "5m"
sql = "SELECT id, customer FROM invoice"
key = "id"
emit = { topic = "invoice.mail", key = "customer" }
"#;

fn parse(text: &str) -> Result<Config, Problems> {
    let env = |name: &str| match name {
        "SET" => Some("value".to_owned()),
        "SLASH" => Some("db/other".to_owned()),
        _ => None,
    };
    let surroundings = Surroundings {
        env: &env,
        check_dialect: &no_questions,
        refused_property: &refused_property,
        refused_together: &|properties| {
            let why =
                || RefusedProperty { why: "half is nothing".into(), fix: "add it".into(), instead: None };
            (properties.contains_key("half") && !properties.contains_key("whole"))
                .then(|| ("whole".into(), why()))
        },
        check_topic_pattern: &|pattern| {
            if pattern.ends_with('(') { Err("it is not closed".to_owned()) } else { Ok(()) }
        },
        ..Surroundings::default()
    };
    Config::parse(text, &surroundings)
}

fn problems(text: &str) -> Problems {
    parse(text).unwrap_err()
}

/// A dialect in which `?` is a placeholder.
fn no_questions(store: StoreKind, sql: &Sql) -> Result<(), StatementError> {
    match sql.source().find('?').filter(|_| store == StoreKind::Sqlite) {
        Some(offset) => Err(StatementError::Positional { text: "?".to_owned(), offset }),
        None => Ok(()),
    }
}

/// A client that wants some properties for itself.
fn refused_property(name: &str, value: &str) -> Option<RefusedProperty> {
    let refused = |why: &str, instead| {
        Some(RefusedProperty { why: why.to_owned(), fix: "remove it".to_owned(), instead })
    };
    match (name, value) {
        ("enable.auto.commit", _) => refused("it commits", None),
        ("auto.offset.reset", _) => refused("a gap is an error", Some("start")),
        ("group.id", _) => refused("each has its own", Some("group")),
        ("bootstrap.servers", _) => refused("once is enough", Some("brokers")),
        ("statistics.interval.ms", "0") => refused("it reads them", None),
        _ => None,
    }
}

/// In place of this text of the base, this text; the key, the line, and a part of the message or the fix.
type Case = (&'static str, &'static str, &'static str, usize, &'static str);

/// The cases of all sections.
fn cases() -> impl Iterator<Item = &'static Case> {
    [
        file::CASES,
        store::CASES,
        kafka::CASES,
        services::CASES,
        inbox::CASES,
        handler::CASES,
        outbox::CASES,
        webhook::CASES,
        sweep::CASES,
    ]
    .into_iter()
    .flatten()
}

#[test]
fn every_bad_value_is_named_with_its_line() {
    let mut missed = String::new();
    for (good, bad, key, line, part) in cases() {
        assert!(BASE.contains(good), "the base has no {good}");
        let problems = problems(&BASE.replacen(good, bad, 1));
        let found = problems.iter().any(|problem| {
            let said = format!("{}; {}", problem.message, problem.fix);
            problem.key == *key && problem.line == *line && said.contains(part)
        });
        if !found {
            missed.push_str(&format!("{bad}\n  expected line {line}: {key}: {part}\n  but got {problems}\n"));
        }
    }
    assert!(missed.is_empty(), "{missed}");
}

#[test]
fn a_bad_value_is_one_problem() {
    let several = ["each = []\nx = [", "batch = [", "batch = [\n  \"SELECT :id\""];
    for (good, bad, ..) in cases().filter(|(_, bad, ..)| !several.contains(bad)) {
        let problems = problems(&BASE.replacen(good, bad, 1));
        let renamed = bad.contains("htttp") || bad.contains("keep = 1");
        assert!(problems.len() == 1 || renamed, "{bad}:\n{problems}");
    }
}

#[test]
fn the_base_itself_is_good() {
    assert!(parse(BASE).is_ok());
}

//! `[[sweep]]`: a query whose rows become events.

use std::time::Duration;

use oncebox_core::names::ConsumerName;
use oncebox_core::outbox::check_topic;
use oncebox_core::store::Sweep;
use oncebox_sql::{Sql, StatementError};

use super::bounds::duration;
use super::operations;
use super::reader::{Entry, Section};
use super::store::StoreKind;

/// `[[sweep]]`: what is due by the clock rather than by a message, such as a reminder or a mail nobody has sent yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepConfig {
    /// `every`: how often the query runs. Required, at least `1s`.
    pub every: Duration,
    /// `name`, `sql` (or `aggregate` and `pipeline`), `key` and `emit` (required), `window` (default `1d`) and `limit` (default 1000).
    pub sweep: Sweep,
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const SECOND: Duration = Duration::from_secs(1);
const NO_PARAMETERS: &str = "a sweep has no message, so write the value into the query";

/// `taken` holds the names of the earlier sweeps.
pub(super) fn read(
    mut section: Section<'_, '_>,
    store: Option<StoreKind>,
    taken: &mut Vec<String>,
) -> Option<SweepConfig> {
    let name = section
        .required("name", "it is missing", "give the sweep a stable name, such as \"mail-due-invoices\"")
        .and_then(|entry| name(&entry, taken));
    let every = section
        .required("every", "it is missing", "say how often the query runs, such as \"5m\"")
        .and_then(|entry| duration(&entry, SECOND));
    let query = match store.filter(|store| !store.speaks_sql()) {
        Some(store) => {
            if let Some(sql) = section.optional("sql") {
                sql.report("the store does not speak SQL", "write `aggregate` and `pipeline` instead");
            }
            operations::sweep(&mut section, store)
        }
        None => {
            for key in ["aggregate", "pipeline"] {
                if let Some(entry) = section.optional(key).filter(|_| store.is_some()) {
                    entry.report("this is for MongoDB, but the store speaks SQL", "write `sql` instead");
                }
            }
            section
                .required("sql", "it is missing", "write a query; each of its rows becomes an event")
                .and_then(|entry| query(&entry, store))
        }
    };
    let row_key = section
        .required("key", "it is missing", "name the column that identifies a row, such as \"id\"")
        .and_then(|entry| entry.filled_text());
    let window = section.or("window", DAY, |e| duration(&e, SECOND));
    let emit = section
        .required("emit", "it is missing", "write { topic = \"…\" }, where the events go")
        .and_then(Entry::into_section)
        .map(emit);
    let limit = section.or("limit", 1000, |e| e.integer(&(1..=10_000)));
    section.finish();

    let (topic, event_key) = emit?;
    let limit = u32::try_from(limit).ok()?;
    let (name, query, row_key, topic) = (name?, query?, row_key?, topic?);
    Some(SweepConfig {
        every: every?,
        sweep: Sweep { name, query, row_key, window, topic, event_key, limit },
    })
}

fn name(entry: &Entry<'_, '_>, taken: &mut Vec<String>) -> Option<String> {
    let name = entry.text()?;
    // The same rule as for consumers.
    if ConsumerName::new(name.as_str()).is_err() {
        entry.report("this is not a name for a sweep", "use up to 200 letters, digits, `.`, `_` and `-`");
        return None;
    }
    if taken.contains(&name) {
        entry.report(format!("another sweep is called {name} too"), "give each sweep its own name");
    }
    taken.push(name.clone());
    Some(name)
}

fn query(entry: &Entry<'_, '_>, store: Option<StoreKind>) -> Option<String> {
    let text = entry.text()?;
    let refused = |error: StatementError| {
        let fix = match &error {
            StatementError::UnknownParam { .. } | StatementError::Positional { .. } => NO_PARAMETERS,
            StatementError::SecondStatement { .. } => "keep one query",
            StatementError::Empty => "write a query",
            _ => &error.fix(),
        };
        entry.report_within(&text, error.offset(), error.message(), fix);
    };
    let sql = Sql::parse(&text).map_err(refused).ok()?;
    if let Some(param) = sql.params().first() {
        entry.report(format!("nobody binds `{param}` in a sweep"), NO_PARAMETERS);
        return None;
    }
    if let Some(store) = store {
        (entry.surroundings().check_dialect)(store, &sql).map_err(refused).ok()?;
    }
    if !matches!(sql.first_keyword(), "SELECT" | "WITH" | "VALUES" | "TABLE") {
        entry.report("this is not a query", "write a SELECT; each of its rows becomes an event");
        return None;
    }
    Some(sql.source().to_owned())
}

/// The topic, and the column of the key.
fn emit(mut section: Section<'_, '_>) -> (Option<String>, Option<String>) {
    let topic = section
        .required("topic", "it is missing", "name the topic of the events, such as \"invoice.mail\"")
        .and_then(|entry| {
            let topic = entry.text()?;
            if check_topic(&topic).is_err() {
                entry.report(
                    "this is not a name of a topic",
                    "use up to 249 letters, digits, `.`, `_` and `-`",
                );
                return None;
            }
            Some(topic)
        });
    let key = section.or("key", None, |e| e.filled_text().map(Some));
    section.finish();
    (topic, key)
}

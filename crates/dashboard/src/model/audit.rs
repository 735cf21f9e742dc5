//! Who did what, when, how, and what came of it.

use oncebox_core::store::{AuditEntry, AuditFilter};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::Time;
use crate::fields::Fields;

/// So many stand on a page.
const PAGE: u32 = 50;

/// A page of the audit.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct AuditList {
    pub(crate) actions: Vec<Audited>,
    /// Ask for this page next: the value of `before`.
    pub(crate) next: Option<i64>,
}

/// Something that somebody did.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Audited {
    pub(crate) number: i64,
    pub(crate) at: Time,
    /// Nothing: it is under way, or its process has died.
    pub(crate) ended_at: Option<Time>,
    pub(crate) who: String,
    pub(crate) action: String,
    pub(crate) consumer: Option<String>,
    /// How, in words.
    pub(crate) parameters: String,
    /// What came of it, in words.
    pub(crate) result: String,
    /// Why it failed.
    pub(crate) error: Option<String>,
}

/// What is asked for.
pub(crate) fn filter(fields: &Fields) -> Result<AuditFilter, String> {
    Ok(AuditFilter {
        who: fields.maybe("who"),
        action: fields.maybe("action"),
        consumer: fields.maybe("consumer"),
        before: fields.number("before")?,
        limit: PAGE,
    })
}

impl AuditList {
    /// One more than a page was asked for, if there is one.
    pub(crate) fn of(mut found: Vec<AuditEntry>, limit: u32) -> Self {
        let limit = limit as usize;
        let more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| more).map(|last| last.number);
        Self { actions: found.into_iter().map(Audited::of).collect(), next }
    }
}

impl Audited {
    fn of(entry: AuditEntry) -> Self {
        Self {
            number: entry.number,
            at: Time(entry.at_ms),
            ended_at: entry.ended_at_ms.map(Time),
            who: entry.who,
            action: entry.action,
            consumer: entry.consumer,
            parameters: in_words(Some(&entry.parameters)),
            result: in_words(entry.result.as_ref()),
            error: entry.error,
        }
    }
}

/// An object as people write it.
fn in_words(value: Option<&Value>) -> String {
    let Some(Value::Object(members)) = value else { return String::new() };
    let pair = |(name, value): (&String, &Value)| match value {
        Value::String(text) => format!("{name} {text}"),
        other => format!("{name} {other}"),
    };
    members.iter().map(pair).collect::<Vec<_>>().join(", ")
}

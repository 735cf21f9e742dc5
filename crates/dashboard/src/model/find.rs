//! One message: where it was seen, and what it caused.

use oncebox_core::names::{ConsumerName, MessageId, Tenant};
use oncebox_core::operate::FoundAt;
use schemars::JsonSchema;
use serde::Serialize;

use super::Time;
use super::events::EventRow;
use super::letters::LetterRow;
use crate::backend::{Located, Sought};
use crate::fields::Fields;

/// What is known of a message.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct FoundMessage {
    pub(crate) message_id: String,
    /// Whether a consumer or the outbox knows anything of it.
    pub(crate) seen: bool,
    pub(crate) consumers: Vec<FoundConsumer>,
    /// The events that it caused and that are still in the outbox.
    pub(crate) events: Vec<EventRow>,
    /// The W3C trace ids of its dead letters and events.
    pub(crate) traces: Vec<String>,
    /// The consumers that were asked.
    pub(crate) asked: Vec<String>,
    /// False: there may be receipts of tenants, which are found by their tenant only.
    pub(crate) all_tenants: bool,
    /// False: only the newest events were looked at.
    pub(crate) whole_outbox: bool,
    /// The same on the command line.
    pub(crate) command: String,
}

/// A message as one consumer knows it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct FoundConsumer {
    pub(crate) consumer: String,
    pub(crate) tenant: String,
    /// What became of it.
    pub(crate) state: FoundState,
    /// When its receipt was written, if its table tells.
    pub(crate) receipt_at: Option<Time>,
    pub(crate) dead_letters: Vec<LetterRow>,
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FoundState {
    /// It has a receipt and no dead letter: it was applied, or its dead letter was dropped.
    Settled,
    /// It has a dead letter, and was not applied.
    GivenUp,
}

/// What is asked for; `None` if nobody asks for anything yet.
pub(crate) fn sought(fields: &Fields) -> Result<Option<Sought>, String> {
    let Some(id) = fields.maybe("id") else { return Ok(None) };
    let id = MessageId::new(id).map_err(|e| e.to_string())?;
    let tenant = fields.maybe("tenant").map(Tenant::new).transpose().map_err(|e| e.to_string())?;
    let consumer = fields.maybe("consumer").map(ConsumerName::new).transpose().map_err(|e| e.to_string())?;
    Ok(Some(Sought { id, tenant, consumer }))
}

impl FoundMessage {
    pub(crate) fn of(sought: &Sought, located: Located) -> Self {
        let Located { found, all_tenants } = located;
        Self {
            message_id: sought.id.as_str().to_owned(),
            seen: found.is_seen(),
            consumers: found.at.into_iter().map(FoundConsumer::of).collect(),
            events: found.events.events.into_iter().map(|entry| EventRow::of(entry, false)).collect(),
            traces: found.traces,
            asked: found.asked.iter().map(ToString::to_string).collect(),
            all_tenants,
            whole_outbox: found.events.looked_at_all,
            command: command(sought),
        }
    }
}

impl FoundConsumer {
    fn of(at: FoundAt) -> Self {
        Self {
            consumer: at.consumer.to_string(),
            tenant: at.tenant.as_str().to_owned(),
            state: if at.letters.is_empty() { FoundState::Settled } else { FoundState::GivenUp },
            receipt_at: at.receipt.and_then(|receipt| receipt.processed_at_ms).map(Time),
            dead_letters: at.letters.into_iter().map(LetterRow::of).collect(),
        }
    }
}

/// The command that finds the same.
fn command(sought: &Sought) -> String {
    let mut command = "oncebox find".to_owned();
    let consumer = sought.consumer.as_ref().map(ConsumerName::as_str);
    for (option, value) in
        [("--consumer", consumer), ("--tenant", sought.tenant.as_ref().map(Tenant::as_str))]
    {
        if let Some(value) = value {
            command.push_str(&format!(" {option} {}", quoted(value)));
        }
    }
    // What begins with a dash would be an option.
    let dashes = if sought.id.as_str().starts_with('-') { "-- " } else { "" };
    format!("{command} {dashes}{}", quoted(sought.id.as_str()))
}

/// A word as a shell takes it, whatever stands in it.
fn quoted(word: &str) -> String {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "-_.:/@%+,=".contains(c);
    if !word.is_empty() && word.chars().all(is_safe) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command_of(query: &str) -> String {
        command(&sought(&Fields::of_form(query.as_bytes())).unwrap().unwrap())
    }

    #[test]
    fn a_command_is_safe_to_paste() {
        assert_eq!(command_of("id=order-17"), "oncebox find order-17");
        assert_eq!(
            command_of("id=it%27s+%24%28rm%29&tenant=a+b&consumer=stock"),
            r"oncebox find --consumer stock --tenant 'a b' 'it'\''s $(rm)'"
        );
        assert_eq!(command_of("id=-v"), "oncebox find -- -v");
    }

    #[test]
    fn nothing_is_looked_for_without_an_id() {
        assert!(sought(&Fields::of_form(b"id=&tenant=a")).unwrap().is_none());
        assert!(sought(&Fields::of_form(b"id=a&consumer=%00")).is_err());
    }
}

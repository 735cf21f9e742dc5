//! The arguments a queue was made with. AMQP has no question for them, so they are found out with a declaration that cannot succeed.
//!
//! To declare a queue that exists changes nothing; if it was made with other arguments, the broker refuses and says which one differs,
//! what we sent and what it has. So we send an argument with a value that no queue can have, which would not even make a new queue, and
//! read the answer; what it says of other arguments is sent along the next time. Only this module reads texts of the broker: nothing
//! depends on them but what `oncebox check` prints, and what is not understood is not known.

use std::collections::BTreeMap;

use lapin::options::QueueDeclareOptions;
use lapin::types::{AMQPValue, FieldTable, ShortString};

use crate::connection::{Connection, answer};
use crate::error::{Error, code};

/// More arguments than a queue has.
const MAX_QUESTIONS: usize = 40;

/// A value that an argument cannot have.
type Impossible = fn() -> AMQPValue;

/// What is asked for, and with what.
const IMPOSSIBLE: [(&str, Impossible); 4] = [
    ("x-queue-type", || AMQPValue::LongString("oncebox-asks".into())),
    ("x-dead-letter-exchange", || AMQPValue::Boolean(true)),
    ("x-delivery-limit", || AMQPValue::LongString("oncebox-asks".into())),
    ("x-single-active-consumer", || AMQPValue::LongString("oncebox-asks".into())),
];

/// What is known about how a queue was made.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arguments {
    /// Whether it outlives a restart of the broker.
    pub durable: bool,
    /// `classic`, `quorum` or `stream`.
    pub queue_type: String,
    /// Where messages go that are given up by the broker.
    pub dead_letter_exchange: Option<String>,
    /// How often a delivery may go wrong.
    pub delivery_limit: Option<i64>,
    /// Whether only one of its consumers is served at a time.
    pub single_active_consumer: bool,
}

/// Finds out how a queue was made. `None` if the broker does not say, or not in words that are known.
pub(super) async fn arguments(
    connection: &Connection,
    queue: &ShortString,
) -> Result<Option<Arguments>, Error> {
    let mut known = Known::default();
    let mut questions = 0;
    for (name, impossible) in IMPOSSIBLE {
        while !known.arguments.contains_key(name) {
            questions += 1;
            if questions > MAX_QUESTIONS {
                return Ok(None);
            }
            match known.ask(connection, queue, name, impossible()).await? {
                Asked::Told => {}
                // It does not look at this argument for a queue of that type.
                Asked::NotCompared => drop(known.arguments.insert(name.to_owned(), None)),
                Asked::NotUnderstood => return Ok(None),
            }
        }
    }
    let text = |name: &str| match known.arguments.get(name) {
        Some(Some(AMQPValue::LongString(text))) => Some(text.to_string()),
        _ => None,
    };
    Ok(Some(Arguments {
        durable: known.durable,
        queue_type: text("x-queue-type").unwrap_or_else(|| "classic".to_owned()),
        dead_letter_exchange: text("x-dead-letter-exchange"),
        delivery_limit: match known.arguments.get("x-delivery-limit") {
            Some(Some(AMQPValue::LongLongInt(limit))) => Some(*limit),
            Some(Some(AMQPValue::LongInt(limit))) => Some((*limit).into()),
            _ => None,
        },
        single_active_consumer: known.arguments.get("x-single-active-consumer")
            == Some(&Some(AMQPValue::Boolean(true))),
    }))
}

enum Asked {
    Told,
    NotCompared,
    NotUnderstood,
}

struct Known {
    durable: bool,
    auto_delete: bool,
    /// `None` for one that the queue was made without.
    arguments: BTreeMap<String, Option<AMQPValue>>,
}

impl Default for Known {
    fn default() -> Self {
        Self { durable: true, auto_delete: false, arguments: BTreeMap::new() }
    }
}

impl Known {
    async fn ask(
        &mut self,
        connection: &Connection,
        queue: &ShortString,
        name: &str,
        impossible: AMQPValue,
    ) -> Result<Asked, Error> {
        let mut table = FieldTable::default();
        for (name, value) in &self.arguments {
            if let Some(value) = value
                && let Ok(name) = ShortString::try_new(name.as_str())
            {
                table.insert(name, value.clone());
            }
        }
        table.insert(name.into(), impossible);
        let options = QueueDeclareOptions {
            durable: self.durable,
            auto_delete: self.auto_delete,
            ..QueueDeclareOptions::default()
        };
        let channel = connection.channel().await?;
        let asking = channel.queue_declare(queue.clone(), options, table);
        match answer(&format!("asking for the arguments of queue {queue}"), asking).await {
            Ok(_) => {
                answer("closing a channel", channel.close(200, "done".into())).await?;
                Ok(Asked::NotCompared)
            }
            Err(Error::Request { reason, code: Some(code::PRECONDITION_FAILED), .. }) => {
                Ok(if self.take_in(&reason).is_some() { Asked::Told } else { Asked::NotUnderstood })
            }
            // Only who may make queues may ask.
            Err(Error::Request { code: Some(code::ACCESS_REFUSED), .. }) => Ok(Asked::NotUnderstood),
            Err(error) => Err(error),
        }
    }

    fn take_in(&mut self, reason: &str) -> Option<()> {
        let (name, current) = differing(reason)?;
        match name {
            "durable" => self.durable = current == "'true'",
            "auto_delete" => self.auto_delete = current == "'true'",
            // Told again, or something that cannot be sent back: there would be no end to it.
            _ if self.arguments.contains_key(name) => return None,
            _ => drop(self.arguments.insert(name.to_owned(), value(name, current)?)),
        }
        Some(())
    }
}

/// The argument and what the queue has of it, out of `inequivalent arg 'NAME' for queue 'Q' in vhost 'V': received … but current is …`.
fn differing(reason: &str) -> Option<(&str, &str)> {
    let (_, rest) = reason.split_once("inequivalent arg '")?;
    let (name, rest) = rest.split_once('\'')?;
    // The last one: the name of a queue may hold anything.
    let (_, current) = rest.rsplit_once(" but current is ")?;
    Some((name, current.trim()))
}

/// `none`, `the value '20' of type 'signedint'`, or `'20'` where both have the argument.
fn value(name: &str, current: &str) -> Option<Option<AMQPValue>> {
    if current == "none" {
        return Some(None);
    }
    let (text, kind) = match current.strip_prefix("the value '") {
        Some(rest) => {
            rest.rsplit_once("' of type '").map(|(text, kind)| (text, kind.trim_end_matches('\'')))?
        }
        None => (current.strip_prefix('\'')?.strip_suffix('\'')?, usual_kind(name)?),
    };
    Some(Some(match kind {
        "longstr" => AMQPValue::LongString(text.into()),
        "signedint" => AMQPValue::LongInt(text.parse().ok()?),
        "long" => AMQPValue::LongLongInt(text.parse().ok()?),
        "short" => AMQPValue::ShortInt(text.parse().ok()?),
        "byte" => AMQPValue::ShortShortInt(text.parse().ok()?),
        "bool" => AMQPValue::Boolean(text.parse().ok()?),
        _ => return None,
    }))
}

fn usual_kind(name: &str) -> Option<&'static str> {
    match name {
        "x-queue-type" | "x-dead-letter-exchange" => Some("longstr"),
        "x-delivery-limit" => Some("long"),
        "x-single-active-consumer" => Some("bool"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answers_of_the_broker_are_understood() {
        let prefix = "PRECONDITION_FAILED - inequivalent arg";
        for (reason, name, expected) in [
            (
                "'x-delivery-limit' for queue 'q' in vhost '/': received none but current is the value '7' of type 'signedint'",
                "x-delivery-limit",
                Some(Some(AMQPValue::LongInt(7))),
            ),
            (
                "'x-dead-letter-exchange' for queue 'q' in vhost '/': received 'true' but current is 'it's dead'",
                "x-dead-letter-exchange",
                Some(Some(AMQPValue::LongString("it's dead".into()))),
            ),
            (
                "'x-queue-type' for queue 'a but current is none' in vhost '/': received the value 'x' of type 'longstr' but current is none",
                "x-queue-type",
                Some(None),
            ),
            (
                "'x-new' for queue 'q' in vhost '/': received none but current is the value '1' of type 'other'",
                "x-new",
                None,
            ),
        ] {
            let reason = format!("{prefix} {reason}");
            let (found, current) = differing(&reason).expect("an argument");
            assert_eq!((found, value(name, current)), (name, expected), "{reason}");
        }
        assert_eq!(differing("PRECONDITION_FAILED - something else"), None);
    }
}

//! What a statement sees of a message.

use std::borrow::Cow;
use std::collections::BTreeSet;

use oncebox_core::error::reject;
use oncebox_core::inbox::Failure;
use oncebox_core::message::Message;
use oncebox_core::store::headers_json;
use oncebox_sql::{Param, PayloadKind};

use super::json;
use crate::quote::{push_bytes, push_digits, push_text};
use crate::time::LAST_MS;

/// Years 1 to 9999; a time outside of it is a producer's mistake.
const TIMES_MS: std::ops::RangeInclusive<i64> = -62_135_596_800_000..=LAST_MS;

/// A value that the server can hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value<'m> {
    Null,
    Integer(i64),
    Text(Cow<'m, str>),
    Bytes(&'m [u8]),
    /// In milliseconds since 1970.
    Time(i64),
}

/// The values of one message, in the order of [`Wanted::used`].
pub(super) type Values<'m> = Vec<Value<'m>>;

/// Which values a handler uses, and what its payload is.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) used: BTreeSet<Param>,
    pub(super) payload: PayloadKind,
    /// How deep a payload of JSON may be nested.
    pub(super) levels: usize,
}

impl Wanted {
    /// The values of all messages. What is used and not as it should be rejects its message, before any statement runs.
    pub(super) fn values<'m>(&self, messages: &'m [Message]) -> Result<Vec<Values<'m>>, Failure> {
        let of_message = |(at, message)| {
            let value = |param: &Param| {
                self.value(*param, message).map_err(|why| Failure { at: Some(at), error: reject(why) })
            };
            self.used.iter().map(value).collect()
        };
        messages.iter().enumerate().map(of_message).collect()
    }

    fn value<'m>(&self, param: Param, message: &'m Message) -> Result<Value<'m>, String> {
        let record = message.record();
        match param {
            Param::Id => Ok(borrowed(message.id().as_str())),
            Param::Key => message.key().map_or(Ok(Value::Null), |key| text("key", key).map(borrowed)),
            Param::Payload => match (self.payload, message.payload()) {
                (_, None) => Ok(Value::Null),
                (PayloadKind::Json, Some(bytes)) => json_text(bytes, self.levels).map(borrowed),
                (PayloadKind::Text, Some(bytes)) => text("payload", bytes).map(borrowed),
                (PayloadKind::Bytes, Some(bytes)) => Ok(Value::Bytes(bytes)),
            },
            Param::Headers => Ok(Value::Text(headers_json::to_object(&record.headers).into())),
            Param::Topic => Ok(borrowed(message.topic())),
            Param::Partition => Ok(Value::Integer(record.partition.into())),
            Param::Offset => Ok(Value::Integer(record.offset)),
            Param::Timestamp => {
                record.timestamp_ms.map_or(Ok(Value::Null), |ms| match TIMES_MS.contains(&ms) {
                    true => Ok(Value::Time(ms)),
                    false => Err(format!("the timestamp {ms} ms is out of range")),
                })
            }
            Param::Tenant => Ok(borrowed(message.tenant().as_str())),
        }
    }

    /// Where in [`Values`] a parameter is.
    pub(super) fn place(&self, param: Param) -> Option<usize> {
        self.used.iter().position(|used| *used == param)
    }
}

fn borrowed(text: &str) -> Value<'_> {
    Value::Text(Cow::Borrowed(text))
}

fn text<'b>(what: &str, bytes: &'b [u8]) -> Result<&'b str, String> {
    std::str::from_utf8(bytes).map_err(|_| format!("the {what} is not UTF-8"))
}

fn json_text(bytes: &[u8], levels: usize) -> Result<&str, String> {
    let text = text("payload", bytes)?;
    json::check(text, levels)?;
    Ok(text)
}

/// All messages as one JSON text, an array for each. A payload is a string in it, whatever it holds: as a part of the JSON one
/// that is nested too deeply, or has a number too large, would fail the whole batch. Bytes are hexadecimal digits.
pub(super) fn to_json(messages: &[Values<'_>]) -> String {
    let mut json = String::with_capacity(messages.len() * 100 + 2);
    json.push('[');
    for (at, values) in messages.iter().enumerate() {
        json.push_str(if at == 0 { "[" } else { ",[" });
        for (at, value) in values.iter().enumerate() {
            if at > 0 {
                json.push(',');
            }
            match value {
                Value::Null => json.push_str("null"),
                Value::Integer(number) | Value::Time(number) => json.push_str(&number.to_string()),
                Value::Text(text) => push_string(&mut json, text),
                Value::Bytes(bytes) => {
                    json.push('"');
                    push_digits(&mut json, bytes);
                    json.push('"');
                }
            }
        }
        json.push(']');
    }
    json.push(']');
    json
}

fn push_string(json: &mut String, text: &str) {
    json.push('"');
    let mut plain = 0;
    for (at, byte) in text.bytes().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        json.push_str(&text[plain..at]);
        match byte {
            b'"' => json.push_str("\\\""),
            b'\\' => json.push_str("\\\\"),
            _ => json.push_str(&format!("\\u{byte:04x}")),
        }
        plain = at + 1;
    }
    json.push_str(&text[plain..]);
    json.push('"');
}

/// The value as a literal of the same type that a local variable has.
pub(super) fn push_literal(sql: &mut String, value: &Value<'_>) {
    match value {
        Value::Null => sql.push_str("NULL"),
        Value::Integer(number) => sql.push_str(&format!("({number})")),
        Value::Time(ms) => sql.push_str(&format!(
            "CAST(TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ({ms}) * 1000 MICROSECOND AS DATETIME(3))"
        )),
        Value::Text(text) => {
            sql.push('(');
            push_text(sql, text);
            sql.push_str(" COLLATE utf8mb4_bin)");
        }
        Value::Bytes(bytes) => push_bytes(sql, bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oncebox_core::message::Record;
    use oncebox_core::names::{MessageId, Tenant};

    fn message(record: Record) -> Message {
        Message::new(MessageId::new("a").unwrap(), Tenant::none(), record)
    }

    #[test]
    fn the_json_holds_every_kind_of_value() {
        let values = vec![
            Value::Null,
            Value::Integer(-3),
            Value::Text("a\"\\\u{0}\n\u{1f600}".into()),
            Value::Bytes(&[0, 0xff]),
            Value::Bytes(&[]),
            Value::Time(7),
        ];
        let json = to_json(&[values, vec![Value::Null]]);
        assert_eq!(json, "[[null,-3,\"a\\\"\\\\\\u0000\\u000a\u{1f600}\",\"00ff\",\"\",7],[null]]");
        assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok());
    }

    #[test]
    fn what_is_wrong_is_rejected_only_if_it_is_used() {
        let mut record = Record::at("orders", 0, 0);
        record.payload = Some("{".into());
        record.key = Some(vec![0xff].into());
        record.timestamp_ms = Some(i64::MAX);
        let messages = [message(Record::at("orders", 0, 1)), message(record)];
        for param in [Param::Payload, Param::Key, Param::Timestamp] {
            let wanted = Wanted { used: [param].into(), payload: PayloadKind::Json, levels: 31 };
            assert_eq!(wanted.values(&messages).unwrap_err().at, Some(1), "{param}");
        }
        let wanted = Wanted { used: [Param::Id].into(), payload: PayloadKind::Json, levels: 31 };
        assert!(wanted.values(&messages).is_ok());
    }
}

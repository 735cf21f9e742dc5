//! What a statement sees of a message.

use std::borrow::Cow;
use std::collections::BTreeSet;

use oncebox_core::error::reject;
use oncebox_core::inbox::Failure;
use oncebox_core::message::Message;
use oncebox_core::store::headers_json;
use oncebox_sql::Param;
use oncebox_sql::PayloadKind;
use serde::de::IgnoredAny;

/// Years 1 to 9999; a time outside of it is a producer's mistake.
const TIMES_MS: std::ops::RangeInclusive<i64> = -62_135_596_800_000..=253_402_300_799_999;

/// A value that SQLite can hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value<'m> {
    Null,
    Integer(i64),
    Text(Cow<'m, str>),
    Blob(&'m [u8]),
}

/// The values of one message, in the order of [`Param::ALL`].
pub(super) type Values<'m> = [Value<'m>; Param::ALL.len()];

/// Which values a handler uses, and what its payload is.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) used: BTreeSet<Param>,
    pub(super) payload: PayloadKind,
}

impl Wanted {
    /// The values of all messages. What is not used is NULL; what is used and not as it should be rejects its message,
    /// before any statement runs.
    pub(super) fn values<'m>(&self, messages: &'m [Message]) -> Result<Vec<Values<'m>>, Failure> {
        let of_message = |(at, message)| {
            let mut values = Param::ALL.map(|_| Value::Null);
            for param in &self.used {
                values[param.index() - 1] = value(*param, self.payload, message)
                    .map_err(|why| Failure { at: Some(at), error: reject(why) })?;
            }
            Ok(values)
        };
        messages.iter().enumerate().map(of_message).collect()
    }
}

fn value(param: Param, payload: PayloadKind, message: &Message) -> Result<Value<'_>, String> {
    let record = message.record();
    match param {
        Param::Id => Ok(borrowed(message.id().as_str())),
        Param::Key => message.key().map_or(Ok(Value::Null), |key| text("key", key).map(borrowed)),
        Param::Payload => match (payload, message.payload()) {
            (_, None) => Ok(Value::Null),
            (PayloadKind::Json, Some(bytes)) => json_text(bytes).map(borrowed),
            (PayloadKind::Text, Some(bytes)) => text("payload", bytes).map(borrowed),
            (PayloadKind::Bytes, Some(bytes)) => Ok(Value::Blob(bytes)),
        },
        Param::Headers => Ok(Value::Text(headers_json::to_object(&record.headers).into())),
        Param::Topic => Ok(borrowed(message.topic())),
        Param::Partition => Ok(Value::Integer(record.partition.into())),
        Param::Offset => Ok(Value::Integer(record.offset)),
        Param::Timestamp => record.timestamp_ms.map_or(Ok(Value::Null), timestamp),
        Param::Tenant => Ok(borrowed(message.tenant().as_str())),
    }
}

fn borrowed(text: &str) -> Value<'_> {
    Value::Text(Cow::Borrowed(text))
}

fn text<'b>(what: &str, bytes: &'b [u8]) -> Result<&'b str, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| format!("the {what} is not UTF-8"))?;
    if text.contains('\0') {
        return Err(format!("the {what} contains NUL, at which SQLite's functions end a text"));
    }
    Ok(text)
}

fn json_text(bytes: &[u8]) -> Result<&str, String> {
    let text = text("payload", bytes)?;
    serde_json::from_str::<IgnoredAny>(text).map_err(|error| format!("the payload is not JSON: {error}"))?;
    Ok(text)
}

fn timestamp(ms: i64) -> Result<Value<'static>, String> {
    let time = jiff::Timestamp::from_millisecond(ms).ok().filter(|_| TIMES_MS.contains(&ms));
    let time = time.ok_or_else(|| format!("the timestamp {ms} ms is out of range"))?;
    Ok(Value::Text(format!("{time:.3}").into()))
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
    fn values_are_what_sqlite_reads() {
        let mut record = Record::at("orders", 3, 9);
        record.timestamp_ms = Some(1_700_000_000_120);
        record.headers.push("a", Some("1".into()));
        record.headers.push("b", Some(vec![0xff].into()));
        record.headers.push("a", Some("2".into()));
        record.headers.push("c", None);
        let message = [message(record)];
        let wanted = Wanted { used: Param::ALL.into(), payload: PayloadKind::Json };
        let [values] = &wanted.values(&message).unwrap()[..] else { panic!("one message") };
        assert_eq!(values[Param::Timestamp.index() - 1], borrowed("2023-11-14T22:13:20.120Z"));
        assert_eq!(
            values[Param::Headers.index() - 1],
            borrowed(r#"{"a":"2","b":{"base64":"/w=="},"c":null}"#)
        );
        assert_eq!(values[Param::Payload.index() - 1], Value::Null);
        assert_eq!(values[Param::Partition.index() - 1], Value::Integer(3));
    }

    #[test]
    fn what_is_wrong_is_rejected_only_if_it_is_used() {
        let mut record = Record::at("orders", 0, 0);
        record.payload = Some("{".into());
        record.key = Some(vec![0xff].into());
        record.timestamp_ms = Some(i64::MAX);
        let messages = [message(Record::at("orders", 0, 1)), message(record)];
        for param in [Param::Payload, Param::Key, Param::Timestamp] {
            let wanted = Wanted { used: [param].into(), payload: PayloadKind::Json };
            assert_eq!(wanted.values(&messages).unwrap_err().at, Some(1), "{param}");
        }
        let wanted = Wanted { used: [Param::Id].into(), payload: PayloadKind::Json };
        assert!(wanted.values(&messages).is_ok());
    }
}

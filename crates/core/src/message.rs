//! What a source delivers ([`Record`]) and what a handler sees ([`Message`]).

use std::sync::Arc;

use bytes::Bytes;
use serde::de::DeserializeOwned;

use crate::error::{BoxError, Outcome, WithValues, Wording, describe, reject};
use crate::names::{MessageId, Tenant};
use crate::source::LogId;

/// What the properties of a message are called among its headers: `property:message_id`. Some brokers have them beside the
/// headers; their sources put them there, and see to it that no sender's own header has such a name.
pub const PROPERTY_PREFIX: &str = "property:";

/// What the parameters of the path of an HTTP request are called among the headers of its message: `path:tenant`. No sender can
/// set them: the name of an HTTP header has no colon.
pub const PATH_PREFIX: &str = "path:";

/// The headers of a message: ordered, names may repeat, values are bytes or absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, Option<Bytes>)>);

impl Headers {
    /// No headers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a header; an earlier one of the same name stays.
    pub fn push(&mut self, name: impl Into<String>, value: Option<Bytes>) {
        self.0.push((name.into(), value));
    }

    /// The value of the last header of that name, as Kafka's own clients read it.
    #[must_use]
    pub fn last(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().rev().find(|(n, _)| n == name).and_then(|(_, v)| v.as_deref())
    }

    /// All headers in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, Option<&[u8]>)> {
        self.0.iter().map(|(n, v)| (n.as_str(), v.as_deref()))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes of all names and values.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.0.iter().map(|(n, v)| n.len() + v.as_ref().map_or(0, Bytes::len)).sum()
    }
}

impl<N: Into<String>> FromIterator<(N, Option<Bytes>)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, Option<Bytes>)>>(iter: I) -> Self {
        Self(iter.into_iter().map(|(n, v)| (n.into(), v)).collect())
    }
}

/// A message as its source delivered it, before its id is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The topic or queue.
    pub topic: Arc<str>,
    /// The partition; 0 where a source has none.
    pub partition: i32,
    /// The offset; where a source has none, a number it can acknowledge the message by.
    pub offset: i64,
    /// The key; messages of one key keep their order.
    pub key: Option<Bytes>,
    /// The payload; `None` is a tombstone.
    pub payload: Option<Bytes>,
    /// The headers.
    pub headers: Headers,
    /// When it was produced, in milliseconds since 1970, if the source knows.
    pub timestamp_ms: Option<i64>,
    /// The log it stands in, if the source knows: the same place in another log is another message.
    pub log: Option<LogId>,
    /// The broker says that it had delivered it before, and was told nothing: its process may have ended because of it. That
    /// is where the crash guard of a queue looks. It never says that the message is a duplicate.
    pub redelivered: bool,
}

impl Record {
    /// An empty record at that place; fill in the rest.
    pub fn at(topic: impl Into<Arc<str>>, partition: i32, offset: i64) -> Self {
        Self {
            topic: topic.into(),
            partition,
            offset,
            key: None,
            payload: None,
            headers: Headers::new(),
            timestamp_ms: None,
            log: None,
            redelivered: false,
        }
    }

    /// The memory its content takes: what batch and queue bounds count.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.key.as_ref().map_or(0, Bytes::len)
            + self.payload.as_ref().map_or(0, Bytes::len)
            + self.headers.byte_len()
    }

    /// `topic/partition/offset`, for logs and errors.
    #[must_use]
    pub fn coordinates(&self) -> String {
        format!("{}/{}/{}", self.topic, self.partition, self.offset)
    }
}

/// A message with its identity: what handlers get. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    inner: Arc<Inner>,
}

#[derive(Debug, PartialEq, Eq)]
struct Inner {
    id: MessageId,
    tenant: Tenant,
    record: Record,
}

impl Message {
    /// A record whose id and tenant are known.
    #[must_use]
    pub fn new(id: MessageId, tenant: Tenant, record: Record) -> Self {
        Self { inner: Arc::new(Inner { id, tenant, record }) }
    }

    /// The stable id.
    #[must_use]
    pub fn id(&self) -> &MessageId {
        &self.inner.id
    }

    /// The tenant, `""` when none.
    #[must_use]
    pub fn tenant(&self) -> &Tenant {
        &self.inner.tenant
    }

    /// The record as delivered: headers, timestamp, coordinates.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.inner.record
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        self.inner.record.key.as_deref()
    }

    /// The payload; `None` is a tombstone.
    #[must_use]
    pub fn payload(&self) -> Option<&[u8]> {
        self.inner.record.payload.as_deref()
    }

    /// The topic it came from.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.inner.record.topic
    }

    /// The value of the last header of that name, as text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.inner.record.headers.last(name).and_then(|v| std::str::from_utf8(v).ok())
    }

    /// The payload read as JSON. A payload that is no such JSON is a reason to reject the message: no retry can help.
    ///
    /// ```
    /// use oncebox::Message;
    /// use oncebox::message::{MessageId, Record, Tenant};
    ///
    /// let mut record = Record::at("orders", 0, 7);
    /// record.payload = Some(br#"{"qty": 2}"#.as_slice().into());
    /// let message = Message::new(MessageId::new("o-1")?, Tenant::none(), record);
    /// let order: serde_json::Value = message.json()?;
    /// assert_eq!(order["qty"], 2);
    /// # Ok::<(), oncebox::BoxError>(())
    /// ```
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, BoxError> {
        let payload = self.payload().ok_or_else(|| reject("the message has no payload (a tombstone)"))?;
        serde_json::from_slice(payload).map_err(|e| {
            let whole = format!("the payload is not the expected JSON: {e}");
            let plain = format!("the payload is not the expected JSON: {}", describe(&e));
            let rejected = Outcome::Reject { reason: whole.clone() };
            WithValues::new(Wording { whole, plain }, rejected).into()
        })
    }
}

//! Events: what a handler or an application puts into the outbox, in its own transaction.

#[cfg(test)]
mod tests;

use std::future::Future;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde::Serialize;
use uuid::Uuid;

use crate::error::Error;
use crate::inbox::call::{self, CORRELATION_ID, Cause};
use crate::message::{Headers, Message, Record};
use crate::names::MAX_ID_BYTES;
use crate::outbox::time::{EXPIRY, When, to_rfc3339};
use crate::outbox::wake;
use crate::store::Outbox;
use crate::store::headers_json;
use crate::telemetry::TRACEPARENT;

/// The longest topic, in bytes: Kafka's own limit.
pub const MAX_TOPIC_BYTES: usize = 249;
/// The longest key, in bytes.
pub const MAX_EVENT_KEY_BYTES: usize = 64 * 1024;
/// The most header bytes of an event.
pub const MAX_EVENT_HEADER_BYTES: usize = 256 * 1024;
/// The longest payload, in bytes. A broker or a receiver may take less.
pub const MAX_EVENT_PAYLOAD_BYTES: usize = 64 * 1024 * 1024;

/// Why an event cannot be written. Nothing a retry could help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// The topic is not a topic.
    #[error("{0:?} is not a topic: 1 to 249 letters, digits, dots, underscores or dashes")]
    Topic(String),
    /// Larger than its limit.
    #[error("the {what} of an event to {topic} has {len} bytes, more than {max}")]
    TooLarge {
        /// Which part.
        what: &'static str,
        /// Where the event goes.
        topic: String,
        /// Its size.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// It would expire before it is due, so nobody would ever get it.
    #[error("an event to {topic} would expire before its time has come")]
    ExpiresBeforeDue {
        /// Where the event goes.
        topic: String,
    },
}

/// An event to be written into the outbox. It is published after the transaction has committed, and never if it has not.
///
/// ```
/// use oncebox::Event;
///
/// let event = Event::to("stock.changed").key("A-1").json(&serde_json::json!({"qty": 2}))?;
/// assert_eq!(event.topic(), "stock.changed");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "an event is nothing until it is emitted"]
pub struct Event {
    id: Uuid,
    topic: String,
    key: Option<Bytes>,
    payload: Option<Bytes>,
    headers: Headers,
    cause: Option<Message>,
    causation_id: Option<String>,
    deliver: Option<When>,
    expires: Option<When>,
}

impl Event {
    /// An event for this topic, with a new id (UUIDv7) and no payload yet.
    pub fn to(topic: impl Into<String>) -> Self {
        Self {
            id: Uuid::now_v7(),
            topic: topic.into(),
            key: None,
            payload: None,
            headers: Headers::new(),
            cause: None,
            causation_id: None,
            deliver: None,
            expires: None,
        }
    }

    /// The event that carries this record, as it is.
    pub(super) fn carrying(topic: &str, record: Record) -> Self {
        Self { key: record.key, payload: record.payload, headers: record.headers, ..Self::to(topic) }
    }

    /// Events of one topic and key are published in the order in which they were written.
    pub fn key(mut self, key: impl AsRef<[u8]>) -> Self {
        self.key = Some(Bytes::copy_from_slice(key.as_ref()));
        self
    }

    /// The payload as JSON.
    pub fn json<T: Serialize + ?Sized>(mut self, payload: &T) -> Result<Self, serde_json::Error> {
        self.payload = Some(serde_json::to_vec(payload)?.into());
        Ok(self.content_type("application/json"))
    }

    /// The payload as it is. Without a payload the event is a tombstone.
    pub fn bytes(mut self, payload: impl Into<Bytes>) -> Self {
        self.payload = Some(payload.into());
        self
    }

    /// A header of the published message. `ce_type`, `ce_source`, `correlation-id`, `traceparent` and `content-type` replace what
    /// would be written otherwise.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.headers.push(name, Some(value.into()));
        self
    }

    /// The CloudEvents type. Default: the topic.
    pub fn event_type(self, name: impl Into<String>) -> Self {
        self.header("ce_type", name.into())
    }

    /// The CloudEvents source. Default: that of the relay.
    pub fn event_source(self, source: impl Into<String>) -> Self {
        self.header("ce_source", source.into())
    }

    /// The id of the business process that this event belongs to: the header `correlation-id`. Default: that of the message
    /// that caused it, if it has one.
    pub fn correlation_id(self, id: impl Into<String>) -> Self {
        self.header(CORRELATION_ID, id.into())
    }

    /// Publishes it so long after it was written, by the clock of this process, and not before. Later events of its topic and
    /// key wait for it.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use oncebox::Event;
    ///
    /// let reminder = Event::to("invoice.remind").key("4711").delay(Duration::from_secs(14 * 86_400));
    /// ```
    pub fn delay(mut self, delay: Duration) -> Self {
        self.deliver = Some(When::In(delay));
        self
    }

    /// As [`Event::delay`], with the time itself.
    pub fn deliver_at(mut self, time: SystemTime) -> Self {
        self.deliver = Some(When::At(time));
        self
    }

    /// After this time it is of no use: if it was not published by then, it is parked instead. Receivers find the time in the
    /// header `ce_expirytime`.
    pub fn expires_at(mut self, time: SystemTime) -> Self {
        self.expires = Some(When::At(time));
        self
    }

    /// As [`Event::expires_at`], so long after it was written.
    pub fn expires_in(mut self, duration: Duration) -> Self {
        self.expires = Some(When::In(duration));
        self
    }

    /// The message that this event follows from. Handlers of single messages need not say it.
    pub fn caused_by(mut self, message: &Message) -> Self {
        self.cause = Some(message.clone());
        self
    }

    /// The id of what this event follows from, if that is not a message of an inbox: a request or a command of your own. Published as
    /// the header `oncebox-causation-id`; at most 512 bytes. Default: the message that caused it.
    pub fn causation_id(mut self, id: impl Into<String>) -> Self {
        self.causation_id = Some(id.into());
        self
    }

    /// The stable id: the same in every copy that is published.
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// Where it goes.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    fn content_type(self, value: &'static str) -> Self {
        if self.headers.last("content-type").is_some() {
            return self;
        }
        self.header("content-type", value)
    }

    /// The columns of this event, checked, with what is known of its cause: for stores.
    pub fn row(&self) -> Result<EventRow<'_>, EventError> {
        check_topic(&self.topic)?;
        let sizes = [
            ("key", self.key.as_ref().map_or(0, Bytes::len), MAX_EVENT_KEY_BYTES),
            ("causation id", self.causation_id.as_ref().map_or(0, String::len), MAX_ID_BYTES),
            ("headers", self.headers.byte_len(), MAX_EVENT_HEADER_BYTES),
            ("payload", self.payload.as_ref().map_or(0, Bytes::len), MAX_EVENT_PAYLOAD_BYTES),
        ];
        if let Some((what, len, max)) = sizes.into_iter().find(|(_, len, max)| len > max) {
            return Err(EventError::TooLarge { what, topic: self.topic.clone(), len, max });
        }
        let now = SystemTime::now();
        let deliver_at_ms = self.deliver.map(|when| when.as_ms(now));
        let expires_at_ms = self.expires.map(|when| when.as_ms(now));
        if let (Some(due), Some(expiry)) = (deliver_at_ms, expires_at_ms)
            && expiry <= due
        {
            return Err(EventError::ExpiresBeforeDue { topic: self.topic.clone() });
        }
        let mut cause = call::cause(self.cause.as_ref());
        let headers = self.headers_json(&mut cause, expires_at_ms);
        Ok(EventRow {
            id: self.id,
            topic: &self.topic,
            key: self.key.as_deref(),
            payload: self.payload.as_deref(),
            headers,
            consumer: cause.consumer,
            tenant: cause.tenant,
            causation_id: self.causation_id.clone().or(cause.message_id),
            deliver_at_ms,
        })
    }

    /// Its own headers, and those that follow from its cause and its expiry where it has none of that name.
    fn headers_json(&self, cause: &mut Cause, expires_at_ms: Option<i64>) -> String {
        let further = [
            (TRACEPARENT, cause.traceparent.take()),
            (CORRELATION_ID, cause.correlation_id.take()),
            (EXPIRY, expires_at_ms.map(to_rfc3339)),
        ];
        if further.iter().all(|(_, value)| value.is_none()) {
            return headers_json::compact(&self.headers);
        }
        let mut headers = self.headers.clone();
        for (name, value) in further {
            if let Some(value) = value.filter(|_| self.headers.last(name).is_none()) {
                headers.push(name, Some(value.into()));
            }
        }
        headers_json::compact(&headers)
    }
}

/// Whether Kafka would take this as the name of a topic.
pub fn check_topic(topic: &str) -> Result<(), EventError> {
    let fits = (1..=MAX_TOPIC_BYTES).contains(&topic.len()) && topic != "." && topic != "..";
    if fits && topic.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-')) {
        return Ok(());
    }
    Err(EventError::Topic(topic.to_owned()))
}

/// The columns of an event, as a store writes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRow<'a> {
    /// The stable id.
    pub id: Uuid,
    /// Where it goes.
    pub topic: &'a str,
    /// The key.
    pub key: Option<&'a [u8]>,
    /// The payload; `None` is a tombstone.
    pub payload: Option<&'a [u8]>,
    /// The headers as JSON: an object, or an array of pairs where a name repeats.
    pub headers: String,
    /// The consumer whose handler wrote it.
    pub consumer: Option<String>,
    /// The tenant of the message that caused it.
    pub tenant: Option<String>,
    /// The id of the message that caused it: with consumer and tenant, its receipt.
    pub causation_id: Option<String>,
    /// Not to be published before this time, in milliseconds since 1970.
    pub deliver_at_ms: Option<i64>,
}

/// Writes events into the outbox from inside a transaction.
///
/// Implemented for the connection types of the stores, so it works in handlers and on a transaction of your own; neither
/// needs to know a broker. Bring it into scope with `use oncebox::Emit`. `S` is the store; it is inferred.
///
/// ```
/// use oncebox::{Emit, Event, Message};
/// use sqlx::SqliteConnection;
///
/// async fn bill(tx: &mut SqliteConnection, message: &Message) -> oncebox::Result {
///     let cents: i64 = message.json()?;
///     sqlx::query("INSERT INTO invoice (cents) VALUES (?)").bind(cents).execute(&mut *tx).await?;
///     tx.emit(Event::to("invoice.issued").key(message.id().as_str()).json(&cents)?).await?;
///     Ok(())
/// }
/// ```
pub trait Emit<S: Outbox> {
    /// Writes one event and returns its id.
    fn emit(&mut self, event: Event) -> impl Future<Output = Result<Uuid, Error>> + Send;

    /// Writes many events at once, in their order.
    fn emit_all(&mut self, events: &[Event]) -> impl Future<Output = Result<(), Error>> + Send;
}

/// What the implementations of [`Emit`] share: checks the events and writes them.
pub async fn emit_all<S: Outbox>(conn: &mut S::Conn, events: &[Event]) -> Result<(), Error> {
    let rows = events.iter().map(Event::row).collect::<Result<Vec<_>, _>>()?;
    S::write_events(conn, &rows).await?;
    wake::events_written();
    Ok(())
}

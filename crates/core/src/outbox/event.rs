//! Events: what a handler or an application puts into the outbox, in its own transaction.

use std::future::Future;

use bytes::Bytes;
use serde::Serialize;
use uuid::Uuid;

use crate::error::Error;
use crate::inbox::call;
use crate::message::{Headers, Message};
use crate::outbox::wake;
use crate::store::Outbox;
use crate::store::headers_json;

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
        }
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

    /// A header of the published message. `ce_type`, `ce_source`, `traceparent` and `content-type` replace what the relay
    /// would write itself.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.headers.push(name, Some(value.into()));
        self
    }

    /// The CloudEvents type. Default: the topic.
    pub fn event_type(self, name: impl Into<String>) -> Self {
        self.header("ce_type", name.into())
    }

    /// The message that this event follows from. Handlers of single messages need not say it.
    pub fn caused_by(mut self, message: &Message) -> Self {
        self.cause = Some(message.clone());
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
            ("headers", self.headers.byte_len(), MAX_EVENT_HEADER_BYTES),
            ("payload", self.payload.as_ref().map_or(0, Bytes::len), MAX_EVENT_PAYLOAD_BYTES),
        ];
        if let Some((what, len, max)) = sizes.into_iter().find(|(_, len, max)| len > max) {
            return Err(EventError::TooLarge { what, topic: self.topic.clone(), len, max });
        }
        let cause = call::cause(self.cause.as_ref());
        let traced = cause.traceparent.filter(|_| self.headers.last("traceparent").is_none());
        let headers = match traced {
            None => headers_json::compact(&self.headers),
            Some(traceparent) => {
                let mut headers = self.headers.clone();
                headers.push("traceparent", Some(traceparent.into()));
                headers_json::compact(&headers)
            }
        };
        Ok(EventRow {
            id: self.id,
            topic: &self.topic,
            key: self.key.as_deref(),
            payload: self.payload.as_deref(),
            headers,
            consumer: cause.consumer,
            tenant: cause.tenant,
            causation_id: cause.message_id,
        })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Record;
    use crate::names::{ConsumerName, MessageId, Tenant};

    fn message(traceparent: Option<&str>) -> Message {
        let mut record = Record::at("orders", 0, 7);
        if let Some(value) = traceparent {
            record.headers.push("traceparent", Some(value.to_owned().into()));
        }
        let id = MessageId::new("order-7").unwrap_or_else(|e| panic!("{e}"));
        Message::new(id, Tenant::none(), record)
    }

    #[test]
    fn what_cannot_be_a_topic_is_refused() {
        for topic in ["", ".", "..", "a b", "ä", "a/b", &"x".repeat(250)] {
            assert!(Event::to(topic).row().is_err(), "{topic:?}");
        }
        for topic in ["a", "a.b_c-d9", &"x".repeat(249)] {
            assert!(Event::to(topic).row().is_ok(), "{topic:?}");
        }
    }

    #[test]
    fn what_is_too_large_is_refused() {
        let error = Event::to("t").key(vec![0; MAX_EVENT_KEY_BYTES + 1]).row().unwrap_err();
        assert_eq!(error.to_string(), "the key of an event to t has 65537 bytes, more than 65536");
    }

    #[test]
    fn json_says_what_it_is_unless_told_otherwise() {
        let event = Event::to("t").json(&1).unwrap();
        assert_eq!(event.row().unwrap().headers, r#"{"content-type":"application/json"}"#);
        let event = Event::to("t").header("content-type", "text/x").json(&1).unwrap();
        assert_eq!(event.row().unwrap().headers, r#"{"content-type":"text/x"}"#);
    }

    #[test]
    fn a_message_can_be_named_as_the_cause() {
        let event = Event::to("t").caused_by(&message(Some("00-aa-bb-01")));
        let row = event.row().unwrap();
        assert_eq!(row.causation_id.as_deref(), Some("order-7"));
        assert_eq!(row.consumer, None, "nobody's handler runs");
        assert_eq!(row.headers, r#"{"traceparent":"00-aa-bb-01"}"#);
        let own = Event::to("t").header("traceparent", "mine").caused_by(&message(Some("theirs")));
        assert_eq!(own.row().unwrap().headers, r#"{"traceparent":"mine"}"#);
    }

    #[tokio::test]
    async fn the_message_being_handled_is_the_cause() {
        let consumer = ConsumerName::new("billing").unwrap();
        let work = async {
            let before = Event::to("t").row().unwrap().causation_id;
            call::set_message(&message(None));
            assert!(call::note_events_written());
            (before, Event::to("t").row().unwrap().consumer, Event::to("t").row().unwrap().causation_id)
        };
        let ((before, emitter, after), events) = call::scope(&consumer, work).await;
        assert!(events);
        assert_eq!(before, None);
        assert_eq!((emitter.as_deref(), after.as_deref()), (Some("billing"), Some("order-7")));
        assert!(!call::note_events_written(), "outside there is nobody to note it");
    }
}

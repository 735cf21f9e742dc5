//! What lies in the outbox, or what a sink was given, with assertions that say what is there instead.

use std::fmt;

use bytes::Bytes;
use oncebox_core::message::Headers;
use oncebox_core::outbox::OutgoingEvent;
use oncebox_core::store::{EventFilter, OutboxAdmin, OutboxEntry};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use uuid::Uuid;

/// How many events are read at once.
const PAGE: u32 = 1000;

/// The events in the outbox of a store, whoever has written them, in their order.
///
/// # Panics
/// If the store cannot be read.
pub async fn events<S: OutboxAdmin>(store: &S) -> Events {
    let mut all = Vec::new();
    let mut filter = EventFilter { limit: PAGE, ..EventFilter::default() };
    loop {
        let page = match store.events(&filter).await {
            Ok(page) => page,
            Err(e) => panic!("the outbox cannot be read: {e}"),
        };
        let Some(last) = page.last() else { return Events(all) };
        filter.after = last.event.seq;
        all.extend(page.into_iter().map(TestEvent::stored));
    }
}

/// An event that a test looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestEvent {
    id: Uuid,
    topic: String,
    key: Option<Bytes>,
    payload: Option<Bytes>,
    headers: Headers,
    consumer: Option<String>,
}

impl TestEvent {
    fn stored(entry: OutboxEntry) -> Self {
        let OutboxEntry { event, consumer, .. } = entry;
        Self {
            id: event.id,
            topic: event.topic.to_string(),
            key: event.key,
            payload: event.payload,
            headers: event.headers,
            consumer,
        }
    }

    pub(crate) fn outgoing(event: &OutgoingEvent) -> Self {
        Self {
            id: event.id(),
            topic: event.topic().to_owned(),
            key: event.key().map(Bytes::copy_from_slice),
            payload: event.payload().cloned(),
            headers: event.headers(),
            consumer: None,
        }
    }

    /// The stable id: the same in every copy.
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// Where it goes.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        self.key.as_deref()
    }

    /// The payload; `None` is a tombstone.
    #[must_use]
    pub fn payload(&self) -> Option<&[u8]> {
        self.payload.as_deref()
    }

    /// The value of the last header of that name, as text. In the outbox an event has the headers it was written with, in a
    /// sink those it travels with.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.last(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// The payload read as JSON.
    ///
    /// # Panics
    /// If it is no such JSON.
    #[must_use]
    #[track_caller]
    pub fn json<T: DeserializeOwned>(&self) -> T {
        match serde_json::from_slice(self.payload().unwrap_or(b"null")) {
            Ok(payload) => payload,
            Err(e) => panic!("the payload is not the expected JSON: {e}\n{self}"),
        }
    }

    /// The key is this one.
    ///
    /// # Panics
    /// If it is not.
    #[track_caller]
    pub fn assert_key(&self, key: impl AsRef<[u8]>) -> &Self {
        let key = key.as_ref();
        assert!(self.key() == Some(key), "expected: the key {}\n{self}", key.escape_ascii());
        self
    }

    /// The payload is this JSON, whatever the order of its fields.
    ///
    /// # Panics
    /// If it is not.
    #[track_caller]
    pub fn assert_json<T: Serialize + ?Sized>(&self, payload: &T) -> &Self {
        let expected = match serde_json::to_value(payload) {
            Ok(expected) => expected,
            Err(e) => panic!("the expected payload cannot be written as JSON: {e}"),
        };
        assert!(self.json::<Value>() == expected, "expected: the payload {expected}\n{self}");
        self
    }

    /// The last header of that name has this value.
    ///
    /// # Panics
    /// If it has not.
    #[track_caller]
    pub fn assert_header(&self, name: &str, value: &str) -> &Self {
        let found = self.header(name);
        assert!(found == Some(value), "expected: the header {name} = {value}, it is {found:?}\n{self}");
        self
    }
}

impl fmt::Display for TestEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.topic)?;
        match self.key() {
            Some(key) => write!(f, ", key {}", key.escape_ascii())?,
            None => f.write_str(", no key")?,
        }
        match self.payload().map(std::str::from_utf8) {
            Some(Ok(text)) => write!(f, ": {}", text.escape_debug()),
            Some(Err(_)) => write!(f, ": {} bytes", self.payload().map_or(0, <[u8]>::len)),
            None => f.write_str(": a tombstone"),
        }
    }
}

/// Events in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Events(pub(crate) Vec<TestEvent>);

impl Events {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[TestEvent] {
        &self.0
    }

    /// Those of one topic.
    #[must_use]
    pub fn to(&self, topic: &str) -> Vec<&TestEvent> {
        self.0.iter().filter(|event| event.topic == topic).collect()
    }

    pub(crate) fn of_consumer(mut self, consumer: &str) -> Self {
        self.0.retain(|event| event.consumer.as_deref() == Some(consumer));
        self
    }

    /// There is one event to this topic, and no second one.
    ///
    /// # Panics
    /// If there is not.
    #[track_caller]
    pub fn assert_one(&self, topic: &str) -> &TestEvent {
        match *self.to(topic) {
            [event] => event,
            _ => panic!("expected: one event to {topic}\n{self}"),
        }
    }

    /// There are none, to whatever topic.
    ///
    /// # Panics
    /// If there are.
    #[track_caller]
    pub fn assert_none(&self) {
        assert!(self.0.is_empty(), "expected: no events\n{self}");
    }
}

impl fmt::Display for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("there are no events");
        }
        let lines: Vec<String> = self.0.iter().map(|event| format!("  {event}")).collect();
        write!(f, "there are:\n{}", lines.join("\n"))
    }
}

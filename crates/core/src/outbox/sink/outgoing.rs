//! An event on its way, with the headers it travels with.

use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use crate::message::{Headers, Record};
use crate::outbox::time::to_rfc3339;
use crate::store::StoredEvent;
use crate::telemetry::{SpanContext, set_traceparent};

/// An event on its way to a sink. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutgoingEvent {
    stored: Arc<StoredEvent>,
    source: Arc<str>,
}

impl OutgoingEvent {
    /// An event of the outbox; `source` becomes its CloudEvents source unless it says another.
    #[must_use]
    pub fn new(stored: StoredEvent, source: Arc<str>) -> Self {
        Self { stored: Arc::new(stored), source }
    }

    /// The stable id: the same in every copy. What a receiver tells duplicates by.
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.stored.id
    }

    /// Where it goes.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.stored.topic
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        self.stored.key.as_deref()
    }

    /// The payload; `None` is a tombstone.
    #[must_use]
    pub fn payload(&self) -> Option<&Bytes> {
        self.stored.payload.as_ref()
    }

    /// The payload read as JSON.
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(self.payload().map_or(b"null".as_slice(), |bytes| bytes))
    }

    /// When it was written, in milliseconds since 1970.
    #[must_use]
    pub fn created_at_ms(&self) -> i64 {
        self.stored.created_at_ms
    }

    /// Its place in the outbox.
    #[must_use]
    pub fn seq(&self) -> i64 {
        self.stored.seq
    }

    /// How often its delivery has failed before.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.stored.attempts
    }

    /// The same event, whose trace goes on with that span.
    pub(in crate::outbox) fn continued_by(&self, span: &SpanContext) -> Self {
        let headers = set_traceparent(&self.stored.headers, span);
        Self::new(StoredEvent { headers, ..(*self.stored).clone() }, Arc::clone(&self.source))
    }

    pub(in crate::outbox) fn stored(&self) -> &StoredEvent {
        &self.stored
    }

    /// The record that this event [carries](crate::outbox::Event), as it was put in.
    pub(in crate::outbox) fn carried(&self, topic: &str) -> Record {
        Record {
            key: self.stored.key.clone(),
            payload: self.stored.payload.clone(),
            headers: self.stored.headers.clone(),
            timestamp_ms: Some(self.stored.created_at_ms),
            ..Record::at(topic, 0, 0)
        }
    }

    /// Calls `visit` with each header of the published message: `oncebox-id`, the CloudEvents attributes in Kafka's binary
    /// mode (`ce_id`, `ce_source`, `ce_specversion`, `ce_time`, `ce_type`), `oncebox-causation-id` if a message caused the
    /// event, and what it was written with. A header that the event brings itself wins over ours, except for its id.
    pub fn visit_headers(&self, mut visit: impl FnMut(&str, Option<&[u8]>)) {
        let event = &*self.stored;
        let mut buffer = Uuid::encode_buffer();
        let id: &str = event.id.hyphenated().encode_lower(&mut buffer);
        let own = |name: &str| event.headers.iter().any(|(own, _)| own == name);
        visit("oncebox-id", Some(id.as_bytes()));
        visit("ce_id", Some(id.as_bytes()));
        if !own("ce_specversion") {
            visit("ce_specversion", Some(b"1.0"));
        }
        if !own("ce_source") {
            visit("ce_source", Some(self.source.as_bytes()));
        }
        if !own("ce_type") {
            visit("ce_type", Some(event.topic.as_bytes()));
        }
        if !own("ce_time") {
            visit("ce_time", Some(to_rfc3339(event.created_at_ms).as_bytes()));
        }
        if let Some(cause) = event.causation_id.as_deref().filter(|_| !own("oncebox-causation-id")) {
            visit("oncebox-causation-id", Some(cause.as_bytes()));
        }
        for (name, value) in event.headers.iter().filter(|(name, _)| !matches!(*name, "oncebox-id" | "ce_id"))
        {
            visit(name, value);
        }
    }

    /// The headers of the published message: see [`OutgoingEvent::visit_headers`].
    #[must_use]
    pub fn headers(&self) -> Headers {
        let mut headers = Headers::new();
        self.visit_headers(|name, value| headers.push(name, value.map(Bytes::copy_from_slice)));
        headers
    }
}

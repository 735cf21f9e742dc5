//! An event on its way, with the headers it travels with.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use uuid::Uuid;

use crate::message::Headers;
use crate::store::StoredEvent;

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
            visit("ce_time", Some(rfc3339(event.created_at_ms).as_bytes()));
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

/// The last millisecond of the year 9999: what comes after has no such form.
const MAX_RFC3339_MS: u64 = 253_402_300_799_999;

fn rfc3339(ms: i64) -> String {
    let since_1970 = Duration::from_millis(u64::try_from(ms).unwrap_or_default().min(MAX_RFC3339_MS));
    humantime::format_rfc3339_millis(SystemTime::UNIX_EPOCH + since_1970).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_time_can_be_written() {
        assert_eq!(rfc3339(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
        assert_eq!(rfc3339(i64::MIN), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(i64::MAX), "9999-12-31T23:59:59.999Z");
    }
}

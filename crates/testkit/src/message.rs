//! Messages as a producer would send them.

use std::sync::Arc;

use bytes::Bytes;
use oncebox_core::clock::Clock;
use oncebox_core::inbox::{Identity, Selector};
use oncebox_core::message::{Headers, Record};
use serde::Serialize;

/// A message with this id. The id is put where the inbox looks for it, unless the message brings it there itself; what the
/// inbox then reads must be this id, or the test fails.
///
/// An id inside of the payload (`json:/…`) is yours to write.
///
/// ```
/// use oncebox_testkit::message;
///
/// let order = message("order-1").key("bolt").json(&serde_json::json!({"sku": "bolt", "qty": 2}));
/// ```
pub fn message(id: impl Into<String>) -> TestMessage {
    TestMessage { id: Some(id.into()), ..message_without_id() }
}

/// A message as you write it and no more: to test what happens to one without an id.
pub fn message_without_id() -> TestMessage {
    TestMessage {
        id: None,
        topic: "test".into(),
        key: None,
        payload: None,
        headers: Headers::new(),
        timestamp_ms: Clock::system().now_ms(),
    }
}

/// A message that a test delivers. Each delivery of it is a copy at an offset of its own. Without a payload it is a
/// tombstone.
#[derive(Debug, Clone)]
#[must_use = "a message is nothing until it is delivered"]
pub struct TestMessage {
    id: Option<String>,
    topic: Arc<str>,
    key: Option<Bytes>,
    payload: Option<Bytes>,
    headers: Headers,
    timestamp_ms: i64,
}

impl TestMessage {
    /// The topic it comes from. Default: `test`.
    pub fn topic(mut self, topic: impl Into<Arc<str>>) -> Self {
        self.topic = topic.into();
        self
    }

    /// The key: messages of one key keep their order.
    pub fn key(mut self, key: impl AsRef<[u8]>) -> Self {
        self.key = Some(Bytes::copy_from_slice(key.as_ref()));
        self
    }

    /// A header.
    pub fn header(mut self, name: impl Into<String>, value: impl AsRef<[u8]>) -> Self {
        self.headers.push(name, Some(Bytes::copy_from_slice(value.as_ref())));
        self
    }

    /// The payload as JSON.
    ///
    /// # Panics
    /// If it cannot be written as JSON.
    #[track_caller]
    pub fn json<T: Serialize + ?Sized>(mut self, payload: &T) -> Self {
        match serde_json::to_vec(payload) {
            Ok(payload) => self.payload = Some(payload.into()),
            Err(e) => panic!("the payload cannot be written as JSON: {e}"),
        }
        self
    }

    /// The payload as it is.
    pub fn bytes(mut self, payload: impl AsRef<[u8]>) -> Self {
        self.payload = Some(Bytes::copy_from_slice(payload.as_ref()));
        self
    }

    /// When it was produced, in milliseconds since 1970. Default: when it was described.
    pub fn produced_at_ms(mut self, timestamp_ms: i64) -> Self {
        self.timestamp_ms = timestamp_ms;
        self
    }

    pub(crate) fn topic_name(&self) -> &Arc<str> {
        &self.topic
    }

    /// The record that a source would hand over, at an offset that its log decides.
    pub(crate) fn record(&self, identity: &Identity) -> Record {
        let mut record = Record::at(Arc::clone(&self.topic), 0, 0);
        record.key.clone_from(&self.key);
        record.payload.clone_from(&self.payload);
        record.headers = self.headers.clone();
        record.timestamp_ms = Some(self.timestamp_ms);
        if let Some(id) = &self.id {
            put_id(&mut record, id, &identity.id);
        }
        record
    }
}

fn put_id(record: &mut Record, id: &str, selector: &Selector) {
    if selector.select(record).is_err() {
        let value = || Some(Bytes::copy_from_slice(id.as_bytes()));
        match selector {
            Selector::Key => record.key = value(),
            Selector::Header(name) => record.headers.push(name, value()),
            Selector::CloudEvents => {
                record.headers.push("ce_id", value());
                record.headers.push("ce_source", Some(Bytes::from_static(b"test")));
            }
            _ => {}
        }
    }
    let read = selector.select(record);
    let same = match (selector, &read) {
        (Selector::Coordinates, _) => true,
        // The id of a CloudEvent has its source before it.
        (Selector::CloudEvents, Ok(found)) => found.rsplit_once(' ').is_some_and(|(_, found)| found == id),
        (_, Ok(found)) => found == id,
        (_, Err(_)) => false,
    };
    if !same {
        let found = read.map_or_else(|e| e.to_string(), |found| format!("it finds {found:?}"));
        panic!("message({id:?}): the inbox reads the id from `{selector}`, and there {found}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id_of(message: &TestMessage, selector: Selector) -> String {
        let identity = Identity::new(selector, None);
        let record = message.record(&identity);
        identity
            .identify(record)
            .map_or_else(|unfit| unfit.reason, |message| message.id().as_str().to_owned())
    }

    #[test]
    fn the_id_is_where_the_inbox_looks_for_it() {
        assert_eq!(id_of(&message("a"), Selector::Key), "a");
        assert_eq!(id_of(&message("a").key("k"), Selector::Header("event_id".into())), "a");
        assert_eq!(id_of(&message("a"), Selector::CloudEvents), "test a");
        assert_eq!(id_of(&message("a"), Selector::Coordinates), "test/0/0");
        let order = serde_json::json!({"order": "a"});
        assert_eq!(id_of(&message("a").json(&order), Selector::Json("/order".into())), "a");
    }

    #[test]
    fn a_message_without_an_id_gets_none() {
        assert_eq!(
            id_of(&message_without_id(), Selector::Header("event_id".into())),
            "the message has no id: no header `event_id`"
        );
    }

    #[test]
    #[should_panic(expected = "the inbox reads the id from `json:/order`, and there it finds \"b\"")]
    fn another_id_than_the_one_that_was_named_is_a_mistake() {
        id_of(&message("a").json(&serde_json::json!({"order": "b"})), Selector::Json("/order".into()));
    }

    #[test]
    #[should_panic(expected = "the payload has nothing at /order")]
    fn an_id_that_is_missing_from_the_payload_is_a_mistake() {
        id_of(&message("a").json(&serde_json::json!({})), Selector::Json("/order".into()));
    }
}

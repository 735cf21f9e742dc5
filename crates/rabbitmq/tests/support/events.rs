//! Events to publish.

use std::sync::Arc;

use bytes::Bytes;
use lapin::message::Delivery as Received;
use oncebox_core::message::Headers;
use oncebox_core::outbox::{Delivery, OutgoingEvent};
use oncebox_core::store::StoredEvent;
use uuid::Uuid;

/// When the test events were written.
pub const CREATED_MS: i64 = 1_700_000_000_123;

pub fn stored(topic: &str, seq: i64, key: Option<&str>, payload: Option<Vec<u8>>) -> StoredEvent {
    StoredEvent {
        seq,
        id: Uuid::from_u128(seq as u128),
        topic: topic.into(),
        key: key.map(|key| Bytes::copy_from_slice(key.as_bytes())),
        payload: payload.map(Bytes::from),
        headers: Headers::new(),
        created_at_ms: CREATED_MS,
        deliver_at_ms: None,
        causation_id: None,
        attempts: 0,
    }
}

pub fn outgoing(stored: StoredEvent) -> OutgoingEvent {
    OutgoingEvent::new(stored, Arc::from("test"))
}

/// Events with the numbers of the range as payloads, over ten keys.
pub fn numbered(topic: &str, numbers: std::ops::Range<i64>) -> Vec<OutgoingEvent> {
    let event = |n: i64| stored(topic, n, Some(&format!("key-{}", n % 10)), Some(n.to_string().into()));
    numbers.map(|n| outgoing(event(n))).collect()
}

pub fn all_delivered(deliveries: &[Delivery], count: usize) {
    assert_eq!(deliveries.len(), count);
    assert!(deliveries.iter().all(|d| *d == Delivery::Delivered), "{deliveries:?}");
}

pub fn number(received: &Received) -> i64 {
    std::str::from_utf8(&received.data).unwrap().parse().unwrap()
}

/// The numbers are there, perhaps more than once; the first copies of each key are in order.
pub fn assert_first_copies_in_order(received: &[Received], expected: std::ops::Range<i64>) {
    let mut seen = std::collections::BTreeSet::new();
    let first: Vec<i64> = received.iter().map(number).filter(|n| seen.insert(*n)).collect();
    for key in 0..10 {
        let of_key: Vec<i64> = first.iter().copied().filter(|n| n % 10 == key).collect();
        assert!(of_key.is_sorted(), "key {key}: {of_key:?}");
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

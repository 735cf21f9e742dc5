//! Events to publish, and what a topic holds afterwards.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use oncebox_core::message::Headers;
use oncebox_core::outbox::{Delivery, OutgoingEvent};
use oncebox_core::store::StoredEvent;
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers as _, Message};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
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

/// A record as a consumer sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Read {
    pub partition: i32,
    pub key: Option<String>,
    pub payload: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    pub timestamp_ms: Option<i64>,
}

impl Read {
    pub fn number(&self) -> i64 {
        String::from_utf8(self.payload.clone().unwrap()).unwrap().parse().unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().find(|(own, _)| own == name).and_then(|(_, value)| value.as_deref())
    }
}

/// All that the topic holds now, in the order of its partitions.
pub fn read_all(brokers: &str, topic: &str) -> Vec<Read> {
    let wait = Duration::from_secs(10);
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", "reads")
        .set("enable.auto.commit", "false")
        .create()
        .unwrap();
    let metadata = consumer.fetch_metadata(Some(topic), wait).unwrap();
    let (mut list, mut left) = (TopicPartitionList::new(), 0);
    for partition in metadata.topics()[0].partitions() {
        list.add_partition_offset(topic, partition.id(), Offset::Beginning).unwrap();
        let (low, high) = consumer.fetch_watermarks(topic, partition.id(), wait).unwrap();
        left += high - low;
    }
    consumer.assign(&list).unwrap();
    let (mut records, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(60));
    while left > 0 {
        assert!(Instant::now() < deadline, "{left} records of {topic} do not arrive");
        let Some(message) = consumer.poll(Duration::from_millis(100)) else { continue };
        let message = message.unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let header = |h: rdkafka::message::Header<'_, &[u8]>| (h.key.to_owned(), h.value.map(<[u8]>::to_vec));
        records.push(Read {
            partition: message.partition(),
            key: message.key().map(text),
            payload: message.payload().map(<[u8]>::to_vec),
            headers: message.headers().map(|all| all.iter().map(header).collect()).unwrap_or_default(),
            timestamp_ms: message.timestamp().to_millis(),
        });
        left -= 1;
    }
    records.sort_by_key(|read| read.partition);
    records
}

/// All of these numbers are there, each once, ascending within each partition.
pub fn assert_numbers_in_order(read: &[Read], expected: std::ops::Range<i64>) {
    let ascending =
        |pair: &[Read]| pair[0].partition != pair[1].partition || pair[0].number() < pair[1].number();
    assert!(read.windows(2).all(ascending), "out of order or doubled");
    let mut numbers: Vec<i64> = read.iter().map(Read::number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, expected.collect::<Vec<_>>());
}

/// The numbers are there, perhaps more than once; the first copies of each key are in order.
pub fn assert_first_copies_in_order(read: &[Read], expected: std::ops::Range<i64>) {
    let mut seen = std::collections::BTreeSet::new();
    let first: Vec<&Read> = read.iter().filter(|read| seen.insert(read.number())).collect();
    for key in 0..10 {
        let of_key: Vec<i64> = first.iter().map(|r| r.number()).filter(|n| n % 10 == key).collect();
        assert!(of_key.is_sorted(), "key {key}: {of_key:?}");
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

pub fn all_delivered(deliveries: &[Delivery], count: usize) {
    assert_eq!(deliveries.len(), count);
    assert!(deliveries.iter().all(|d| *d == Delivery::Delivered), "{deliveries:?}");
}

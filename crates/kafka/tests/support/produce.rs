//! Producing to a topic, and asking what a group has committed.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::OwnedHeaders;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

pub struct Sender(BaseProducer);

impl Sender {
    pub fn to(brokers: &str) -> Self {
        Self::with(brokers, &[])
    }

    pub fn with(brokers: &str, properties: &[(&str, &str)]) -> Self {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", brokers)
            .set("linger.ms", "5")
            .set("queue.buffering.max.messages", "2000000");
        for (name, value) in properties {
            config.set(*name, *value);
        }
        Self(config.create().unwrap())
    }

    /// One message; key, payload and headers may be absent.
    pub fn send(
        &self,
        topic: &str,
        partition: i32,
        key: Option<&[u8]>,
        payload: Option<&[u8]>,
        headers: Option<OwnedHeaders>,
    ) {
        let mut record = BaseRecord::<[u8], [u8]>::to(topic).partition(partition);
        record.key = key;
        record.payload = payload;
        record.headers = headers;
        self.0.send(record).map_err(|(e, _)| e).unwrap();
    }

    /// `count` messages with their number as payload.
    pub fn send_numbered(&self, topic: &str, partition: i32, count: usize) {
        for number in 0..count {
            self.send(topic, partition, Some(b"k"), Some(number.to_string().as_bytes()), None);
            if number % 1_000 == 0 {
                self.0.poll(Duration::ZERO);
            }
        }
    }

    pub fn flush(&self) {
        self.0.flush(Duration::from_secs(30)).unwrap();
    }
}

pub fn committed(brokers: &str, group: &str, topic: &str, partition: i32) -> Option<i64> {
    match committed_list(brokers, group, topic, partition).elements()[0].offset() {
        Offset::Offset(offset) => Some(offset),
        _ => None,
    }
}

/// What stands beside the committed offset.
pub fn committed_note(brokers: &str, group: &str, topic: &str, partition: i32) -> String {
    committed_list(brokers, group, topic, partition).elements()[0].metadata().to_owned()
}

fn committed_list(brokers: &str, group: &str, topic: &str, partition: i32) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    list.add_partition(topic, partition);
    group_client(brokers, group).committed_offsets(list, Duration::from_secs(10)).unwrap()
}

pub fn commit(brokers: &str, group: &str, topic: &str, partition: i32, offset: i64) {
    commit_with(brokers, group, topic, partition, offset, "");
}

/// Commits an offset with something beside it.
pub fn commit_with(brokers: &str, group: &str, topic: &str, partition: i32, offset: i64, note: &str) {
    let client = group_client(brokers, group);
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition, Offset::Offset(offset)).unwrap();
    list.elements()[0].set_metadata(note);
    client.commit(&list, rdkafka::consumer::CommitMode::Sync).unwrap();
}

fn group_client(brokers: &str, group: &str) -> BaseConsumer {
    ClientConfig::new().set("bootstrap.servers", brokers).set("group.id", group).create().unwrap()
}

//! What lies in a topic.

use std::time::{Duration, Instant};

use rdkafka::Message;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Headers;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::topic::{Topic, config};

const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A record, as a consumer sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) partition: i32,
    pub(crate) key: Option<String>,
    pub(crate) payload: Option<String>,
    pub(crate) headers: Vec<(String, String)>,
    /// Milliseconds since 1970.
    pub(crate) timestamp: Option<i64>,
}

impl Record {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// The stable id of an event.
    #[track_caller]
    pub(crate) fn id(&self) -> &str {
        self.header("oncebox-id").unwrap_or_else(|| panic!("an event without its id: {self:?}"))
    }
}

impl Topic {
    /// All that is in the topic now, each partition in its order.
    pub(crate) fn read(&self) -> Vec<Record> {
        let consumer: BaseConsumer =
            config(&self.brokers).set("group.id", "e2e-reader").create().expect("a consumer");
        let mut list = TopicPartitionList::new();
        for partition in 0..self.partitions {
            list.add_partition_offset(&self.name, partition, Offset::Beginning).expect("an offset");
        }
        consumer.assign(&list).expect("partitions");
        let mut left: i64 = self.ends().iter().sum();
        let mut records = Vec::new();
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        while left > 0 {
            assert!(Instant::now() < deadline, "{left} records of {} do not come", self.name);
            let Some(message) = consumer.poll(Duration::from_millis(200)) else { continue };
            let message = message.unwrap_or_else(|e| panic!("reading {}: {e}", self.name));
            left -= 1;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            records.push(Record {
                partition: message.partition(),
                key: message.key().map(text),
                payload: message.payload().map(text),
                headers: message
                    .headers()
                    .into_iter()
                    .flat_map(Headers::iter)
                    .map(|header| (header.key.to_owned(), header.value.map(text).unwrap_or_default()))
                    .collect(),
                timestamp: message.timestamp().to_millis(),
            });
        }
        records
    }
}

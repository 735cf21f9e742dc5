//! Making, cutting and deleting topics on a real broker.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

/// The broker to test against.
pub fn brokers() -> String {
    std::env::var("ONCEBOX_TEST_KAFKA")
        .expect("ONCEBOX_TEST_KAFKA must name a broker as host:port; `cargo xtask services` starts one")
}

/// A name that no other test uses.
pub fn unique(prefix: &str) -> String {
    let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    format!("{prefix}-{}-{nanos}", std::process::id())
}

pub struct Topics(AdminClient<DefaultClientContext>);

impl Topics {
    pub fn new() -> Self {
        Self(ClientConfig::new().set("bootstrap.servers", brokers()).create().unwrap())
    }

    pub async fn create(&self, topic: &str, partitions: i32, settings: &[(&str, &str)]) {
        let mut new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
        for (name, value) in settings {
            new = new.set(name, value);
        }
        let options = AdminOptions::new().operation_timeout(Some(Duration::from_secs(20)));
        for result in self.0.create_topics(&[new], &options).await.unwrap() {
            result.unwrap();
        }
    }

    pub async fn grow(&self, topic: &str, partitions: usize) {
        let more = NewPartitions::new(topic, partitions);
        for result in self.0.create_partitions(&[more], &AdminOptions::new()).await.unwrap() {
            result.unwrap();
        }
    }

    /// Removes the messages below `offset`.
    pub async fn cut(&self, topic: &str, partition: i32, offset: i64) {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, partition, Offset::Offset(offset)).unwrap();
        let done = self.0.delete_records(&list, &AdminOptions::new()).await.unwrap();
        done.elements().iter().for_each(|e| e.error().unwrap());
    }

    pub async fn delete(&self, topic: &str) {
        for result in self.0.delete_topics(&[topic], &AdminOptions::new()).await.unwrap() {
            result.unwrap();
        }
        // The broker answers before the topic is gone.
        while self
            .0
            .inner()
            .fetch_metadata(None, Duration::from_secs(5))
            .unwrap()
            .topics()
            .iter()
            .any(|t| t.name() == topic)
        {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

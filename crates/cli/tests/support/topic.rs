//! A topic of its own for each test.

use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::kafka_cluster::KafkaCluster;
use super::orders::Order;
use super::service;

const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A topic, and a producer for it.
pub(crate) struct Topic {
    pub(crate) name: String,
    pub(crate) partitions: i32,
    pub(crate) brokers: String,
    producer: BaseProducer,
    client: BaseConsumer,
}

/// A record that is no order.
#[derive(Default)]
pub(crate) struct Odd<'a> {
    pub(crate) partition: i32,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) payload: Option<&'a [u8]>,
    pub(crate) headers: &'a [(&'a str, Option<&'a [u8]>)],
    /// Milliseconds since 1970; now, unless given.
    pub(crate) timestamp: Option<i64>,
}

impl Topic {
    pub(crate) async fn create(name: &str, partitions: i32) -> Self {
        Self::create_at(&service("ONCEBOX_TEST_KAFKA"), name, partitions).await
    }

    /// In the cluster behind these brokers.
    pub(crate) async fn create_at(brokers: &str, name: &str, partitions: i32) -> Self {
        Self::make(brokers, name, partitions, TopicReplication::Fixed(1)).await
    }

    /// On a cluster of the test's own, with one replica of each partition, on the brokers of these numbers.
    pub(crate) async fn create_on(cluster: &KafkaCluster, name: &str, brokers: &[i32]) -> Self {
        let replicas: Vec<&[i32]> = brokers.iter().map(std::slice::from_ref).collect();
        let partitions = i32::try_from(brokers.len()).expect("few partitions");
        Self::make(&cluster.addresses(), name, partitions, TopicReplication::Variable(&replicas)).await
    }

    async fn make(brokers: &str, name: &str, partitions: i32, replication: TopicReplication<'_>) -> Self {
        let brokers = brokers.to_owned();
        // Fifty days: some tests send records of ten days ago, which the broker would remove when it looks, every five minutes;
        // others keep receipts for sixty days, longer than the topic.
        let new = NewTopic::new(name, partitions, replication).set("retention.ms", "4320000000");
        let options =
            AdminOptions::new().operation_timeout(Some(ANSWER_TIMEOUT)).request_timeout(Some(ANSWER_TIMEOUT));
        let created = admin(&brokers).create_topics([&new], &options).await.expect("Kafka answers");
        assert!(created.iter().all(Result::is_ok), "creating {name}: {created:?}");
        let (producer, client) = clients(&brokers);
        let topic = Self { name: name.to_owned(), partitions, brokers, producer, client };
        topic.wait_for_leaders().await;
        topic
    }

    /// The broker answers that the topic exists a moment before every partition has a leader.
    async fn wait_for_leaders(&self) {
        super::eventually("the topic has leaders", async || {
            (0..self.partitions).all(|p| self.client.fetch_watermarks(&self.name, p, ANSWER_TIMEOUT).is_ok())
        })
        .await;
    }

    /// Sends orders in their sequence and waits until the broker has them all.
    pub(crate) fn send(&self, orders: &[Order]) {
        for order in orders {
            let headers = [("event_id", Some(order.id.as_bytes()))];
            self.enqueue(&Odd {
                partition: self.partition_of(order),
                key: Some(order.key().as_bytes()),
                payload: Some(order.payload().as_bytes()),
                headers: &headers,
                timestamp: None,
            });
        }
        self.flush();
    }

    /// Sends one record and waits for it; returns its offset.
    pub(crate) fn send_odd(&self, odd: &Odd<'_>) -> i64 {
        self.enqueue(odd);
        self.flush();
        self.end(odd.partition) - 1
    }

    pub(crate) fn partition_of(&self, order: &Order) -> i32 {
        i32::try_from(order.sku).expect("few articles") % self.partitions
    }

    /// Sends one record; [`Topic::flush`] waits for it.
    pub(crate) fn enqueue(&self, odd: &Odd<'_>) {
        let headers = odd
            .headers
            .iter()
            .fold(OwnedHeaders::new(), |headers, (key, value)| headers.insert(Header { key, value: *value }));
        let mut record = BaseRecord::<[u8], [u8]>::to(&self.name).partition(odd.partition).headers(headers);
        record.key = odd.key;
        record.payload = odd.payload;
        record.timestamp = odd.timestamp;
        while let Err((error, same)) = self.producer.send(record) {
            assert_eq!(error, KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), "producing");
            self.producer.poll(Duration::from_millis(10));
            record = same;
        }
    }

    /// Waits until the broker has all records.
    pub(crate) fn flush(&self) {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        while self.producer.in_flight_count() > 0 {
            assert!(Instant::now() < deadline, "Kafka does not take the messages");
            self.producer.poll(Duration::from_millis(10));
        }
    }

    /// One past the newest offset of a partition.
    pub(crate) fn end(&self, partition: i32) -> i64 {
        self.client.fetch_watermarks(&self.name, partition, ANSWER_TIMEOUT).expect("watermarks").1
    }

    /// The ends of all partitions.
    pub(crate) fn ends(&self) -> Vec<i64> {
        (0..self.partitions).map(|partition| self.end(partition)).collect()
    }

    /// Gives the topic more partitions.
    pub(crate) async fn grow(&mut self, partitions: i32) {
        let new = NewPartitions::new(&self.name, usize::try_from(partitions).expect("a number"));
        let options = AdminOptions::new().operation_timeout(Some(ANSWER_TIMEOUT));
        let grown = admin(&self.brokers).create_partitions([&new], &options).await.expect("Kafka answers");
        assert!(grown.iter().all(Result::is_ok), "growing {}: {grown:?}", self.name);
        self.partitions = partitions;
        // Those that were there remember the smaller topic for minutes.
        (self.producer, self.client) = clients(&self.brokers);
        self.wait_for_leaders().await;
    }

    /// Deletes the topic and creates it anew, with the same name.
    pub(crate) async fn recreate(&mut self) {
        self.delete().await;
        super::eventually("the topic is gone", async || !self.exists(&self.name)).await;
        let new = NewTopic::new(&self.name, self.partitions, TopicReplication::Fixed(1));
        let options =
            AdminOptions::new().operation_timeout(Some(ANSWER_TIMEOUT)).request_timeout(Some(ANSWER_TIMEOUT));
        super::eventually("the topic is there again", async || {
            let created = admin(&self.brokers).create_topics([&new], &options).await.expect("Kafka answers");
            created.iter().all(Result::is_ok)
        })
        .await;
        (self.producer, self.client) = clients(&self.brokers);
        self.wait_for_leaders().await;
    }

    /// What a group has committed, by partition.
    pub(crate) fn committed(&self, group: &str) -> Vec<Option<i64>> {
        let mut list = TopicPartitionList::new();
        list.add_partition_range(&self.name, 0, self.partitions - 1);
        let answer = self.member(group).committed_offsets(list, ANSWER_TIMEOUT).expect("committed offsets");
        (0..self.partitions)
            .map(|partition| match answer.find_partition(&self.name, partition)?.offset() {
                Offset::Offset(offset) => Some(offset),
                _ => None,
            })
            .collect()
    }

    /// What an operator does to rewind a group that is stopped.
    pub(crate) fn commit(&self, group: &str, offset: i64) {
        let mut list = TopicPartitionList::new();
        for partition in 0..self.partitions {
            list.add_partition_offset(&self.name, partition, Offset::Offset(offset)).expect("an offset");
        }
        self.member(group).commit(&list, CommitMode::Sync).expect("the group is empty");
    }

    /// Removes what lies before this offset of a partition.
    pub(crate) async fn delete_before(&self, partition: i32, offset: i64) {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&self.name, partition, Offset::Offset(offset)).expect("an offset");
        let options = AdminOptions::new().operation_timeout(Some(ANSWER_TIMEOUT));
        let answer = admin(&self.brokers).delete_records(&list, &options).await.expect("Kafka answers");
        assert!(answer.elements().iter().all(|e| e.error().is_ok()), "deleting records: {answer:?}");
    }

    /// Keeps messages for this long, and nothing else changes.
    pub(crate) async fn keep_for(&self, time: Duration) {
        let kept = time.as_millis().to_string();
        let change = AlterConfig::new(ResourceSpecifier::Topic(&self.name)).set("retention.ms", &kept);
        let options = AdminOptions::new().request_timeout(Some(ANSWER_TIMEOUT));
        let changed = admin(&self.brokers).alter_configs([&change], &options).await.expect("Kafka answers");
        assert!(changed.iter().all(Result::is_ok), "changing {}: {changed:?}", self.name);
    }

    /// Whether Kafka knows a topic.
    pub(crate) fn exists(&self, topic: &str) -> bool {
        let metadata = self.client.fetch_metadata(None, ANSWER_TIMEOUT).expect("metadata");
        metadata.topics().iter().any(|known| known.name() == topic)
    }

    fn member(&self, group: &str) -> BaseConsumer {
        config(&self.brokers).set("group.id", group).create().expect("a consumer")
    }

    /// Removes the topic, as far as Kafka lets us: nothing depends on it.
    pub(crate) async fn delete(&self) {
        admin(&self.brokers).delete_topics(&[&self.name], &AdminOptions::new()).await.ok();
    }
}

fn clients(brokers: &str) -> (BaseProducer, BaseConsumer) {
    let producer = config(brokers)
        .set("enable.idempotence", "true")
        .set("linger.ms", "2")
        .set("queue.buffering.max.messages", "500000")
        .create();
    let client = config(brokers).set("group.id", "e2e-client").create();
    (producer.expect("a producer"), client.expect("a consumer"))
}

pub(crate) fn config(brokers: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers);
    config
}

fn admin(brokers: &str) -> AdminClient<DefaultClientContext> {
    config(brokers).create().expect("an admin client")
}

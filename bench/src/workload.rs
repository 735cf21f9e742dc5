//! The stock workload: an UPDATE and an INSERT per message, one message in ten a duplicate.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};

/// What a topic looks like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Topic {
    pub(crate) partitions: i32,
    /// How many different articles are updated.
    pub(crate) rows: u64,
    /// Whether an article stays in its partition.
    pub(crate) keyed_by_row: bool,
    pub(crate) records: u64,
}

impl Topic {
    /// One partition, one worker for everybody.
    pub(crate) fn plain(records: u64) -> Self {
        Self { partitions: 1, rows: 1_000, keyed_by_row: true, records }
    }
}

/// Makes a topic and fills it.
pub(crate) async fn topic(brokers: &str, name: &str, topic: Topic) -> Result<()> {
    create_topic(brokers, name, topic.partitions).await?;
    let (name, brokers) = (name.to_owned(), brokers.to_owned());
    tokio::task::spawn_blocking(move || produce(&brokers, &name, topic)).await?
}

/// Makes an empty topic.
pub(crate) async fn create_topic(brokers: &str, name: &str, partitions: i32) -> Result<()> {
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", brokers).create()?;
    let new = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
    for created in admin.create_topics([&new], &AdminOptions::new()).await? {
        if let Err((topic, code)) = created {
            bail!("creating topic {topic}: {code}");
        }
    }
    Ok(())
}

fn produce(brokers: &str, topic: &str, shape: Topic) -> Result<()> {
    let producer: ThreadedProducer<DefaultProducerContext> = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("enable.idempotence", "true")
        .set("linger.ms", "20")
        .set("compression.type", "lz4")
        .create()?;
    for (number, Message { id, sku, payload }) in (0_u64..).zip(messages(&shape)) {
        let key = if shape.keyed_by_row { sku } else { number.to_string() };
        let mut record = BaseRecord::to(topic)
            .key(&key)
            .payload(&payload)
            .headers(OwnedHeaders::new().insert(Header { key: "event_id", value: Some(&id) }));
        while let Err((error, same)) = producer.send(record) {
            if error != KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) {
                return Err(error.into());
            }
            record = same;
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    producer.flush(Duration::from_secs(60)).context("flushing the producer")
}

/// A message of the workload.
#[derive(Clone)]
pub(crate) struct Message {
    pub(crate) id: String,
    pub(crate) sku: String,
    pub(crate) payload: String,
}

/// The messages, in their order.
pub(crate) fn messages(shape: &Topic) -> impl Iterator<Item = Message> + use<> {
    let rows = shape.rows;
    let mut last: VecDeque<Message> = VecDeque::new();
    (0..shape.records).map(move |number| {
        // One in ten is a copy of the fifth before it.
        let message = match (number % 10, last.front()) {
            (9, Some(first)) => first.clone(),
            _ => message(number, rows),
        };
        last.push_back(message.clone());
        if last.len() > 5 {
            last.pop_front();
        }
        message
    })
}

fn message(number: u64, rows: u64) -> Message {
    let sku = format!("sku-{}", number.wrapping_mul(7_919) % rows);
    let payload = format!(
        r#"{{"sku":"{sku}","qty":1,"order":{number},"note":"a payload of a usual size, about 120 bytes"}}"#
    );
    Message { id: uuid::Uuid::now_v7().to_string(), sku, payload }
}

/// How many effects `records` records have.
pub(crate) fn unique(records: u64) -> u64 {
    records - records / 10
}

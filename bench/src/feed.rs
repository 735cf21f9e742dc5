//! Where contestants read from: topics of Kafka, which all of them read, or queues of RabbitMQ, one for each run, since reading
//! empties them.

use anyhow::Result;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};

use crate::contestant::Contestant;
use crate::workload::{self, Message, Topic};

/// How many messages may be without a confirmation.
const UNCONFIRMED: usize = 1_000;

pub(crate) enum Feed {
    Kafka { topics: [(u64, String); 2] },
    Rabbitmq { url: String },
}

/// Whether this is the address of a RabbitMQ; otherwise it names brokers of Kafka.
pub(crate) fn is_rabbitmq(brokers: &str) -> bool {
    brokers.starts_with("amqp://") || brokers.starts_with("amqps://")
}

impl Feed {
    /// Makes whatever runs can share: for each of the two numbers of records.
    pub(crate) async fn prepare(brokers: &str, run: &str, records: [u64; 2]) -> Result<Self> {
        if is_rabbitmq(brokers) {
            return Ok(Self::Rabbitmq { url: brokers.to_owned() });
        }
        eprintln!("producing {} and {} records", records[0], records[1]);
        let [fast, slow] = records;
        let topics = [(fast, format!("bench-fast-{run}")), (slow, format!("bench-slow-{run}"))];
        for (records, topic) in &topics {
            workload::topic(brokers, topic, Topic::plain(*records)).await?;
        }
        Ok(Self::Kafka { topics })
    }

    /// Who takes part.
    pub(crate) fn contestants(&self, server: &str) -> &'static [Contestant] {
        match self {
            Self::Kafka { .. } => Contestant::on(server),
            Self::Rabbitmq { .. } => &Contestant::ON_RABBITMQ,
        }
    }

    /// A topic or a queue with so many records, for the run of this name.
    pub(crate) async fn filled(&self, name: &str, records: u64) -> Result<String> {
        match self {
            Self::Kafka { topics } => {
                let found = topics.iter().find(|(held, _)| *held == records);
                Ok(found.map(|(_, topic)| topic.clone()).unwrap_or_default())
            }
            Self::Rabbitmq { url } => {
                let (_connection, channel) = connect(url).await?;
                fill(&channel, name, records).await?;
                Ok(name.to_owned())
            }
        }
    }

    /// Removes what that run alone had.
    pub(crate) async fn done(&self, name: &str) -> Result<()> {
        if let Self::Rabbitmq { url } = self {
            let (_connection, channel) = connect(url).await?;
            channel.queue_delete(name.into(), QueueDeleteOptions::default()).await?;
        }
        Ok(())
    }
}

pub(crate) async fn connect(url: &str) -> Result<(Connection, Channel)> {
    let connection = Connection::connect(url, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    Ok((connection, channel))
}

/// A durable quorum queue, with persistent messages.
async fn fill(channel: &Channel, name: &str, records: u64) -> Result<()> {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(name.into(), durable, arguments).await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let mut unconfirmed = Vec::with_capacity(UNCONFIRMED);
    for Message { id, sku, payload } in workload::messages(&Topic::plain(records)) {
        let mut headers = FieldTable::default();
        headers.insert("sku".into(), AMQPValue::LongString(sku.as_str().into()));
        let properties = BasicProperties::default()
            .with_message_id(id.as_str().into())
            .with_headers(headers)
            .with_delivery_mode(2);
        let options = BasicPublishOptions::default();
        let sent = channel.basic_publish("".into(), name.into(), options, payload.as_bytes(), properties);
        unconfirmed.push(sent.await?);
        if unconfirmed.len() == UNCONFIRMED {
            for confirm in unconfirmed.drain(..) {
                confirm.await?;
            }
        }
    }
    for confirm in unconfirmed {
        confirm.await?;
    }
    Ok(())
}

//! A client of our own, to set the scene and to see what came of it.

use std::time::Duration;

use futures_util::StreamExt;
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions,
    ExchangeDeleteOptions, QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, Consumer, ExchangeKind};
use tokio::time::timeout;

use super::PATIENCE;

pub struct Broker {
    connection: Connection,
    pub channel: Channel,
}

impl Broker {
    pub async fn connect(url: &str) -> Self {
        let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        Self { connection, channel }
    }

    /// A durable queue with these arguments.
    pub async fn queue(&self, name: &str, arguments: &[(&str, AMQPValue)]) {
        let mut table = FieldTable::default();
        for (argument, value) in arguments {
            table.insert((*argument).into(), value.clone());
        }
        let options = QueueDeclareOptions::durable();
        self.channel.queue_declare(name.into(), options, table).await.unwrap();
    }

    pub async fn quorum_queue(&self, name: &str, arguments: &[(&str, AMQPValue)]) {
        let quorum = ("x-queue-type", text("quorum"));
        self.queue(name, &[&[quorum], arguments].concat()).await;
    }

    pub async fn transient_queue(&self, name: &str) {
        let options = QueueDeclareOptions::default();
        self.channel.queue_declare(name.into(), options, FieldTable::default()).await.unwrap();
    }

    pub async fn has_queue(&self, name: &str) -> bool {
        let channel = self.connection.create_channel().await.unwrap();
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(name.into(), passive, FieldTable::default()).await.is_ok()
    }

    /// One more consumer, as long as it is kept.
    pub async fn consume(&self, queue: &str) -> Consumer {
        let options = BasicConsumeOptions::default();
        self.channel.basic_consume(queue.into(), "".into(), options, FieldTable::default()).await.unwrap()
    }

    pub async fn delete_queue(&self, name: &str) {
        self.channel.queue_delete(name.into(), QueueDeleteOptions::default()).await.unwrap();
    }

    /// A durable topic exchange.
    pub async fn exchange(&self, name: &str) {
        let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        let kind = ExchangeKind::Topic;
        self.channel.exchange_declare(name.into(), kind, options, FieldTable::default()).await.unwrap();
    }

    pub async fn delete_exchange(&self, name: &str) {
        self.channel.exchange_delete(name.into(), ExchangeDeleteOptions::default()).await.unwrap();
    }

    pub async fn bind(&self, queue: &str, exchange: &str, key: &str) {
        let (options, table) = (QueueBindOptions::default(), FieldTable::default());
        self.channel.queue_bind(queue.into(), exchange.into(), key.into(), options, table).await.unwrap();
    }

    /// An exchange, and a queue that gets all that is published there.
    pub async fn exchange_with_queue(&self, name: &str) {
        self.exchange(name).await;
        self.queue(name, &[]).await;
        self.bind(name, name, "#").await;
    }

    /// Puts a message into a queue, and waits until it is there.
    pub async fn put(&self, queue: &str, body: &[u8], properties: BasicProperties) {
        let options = BasicPublishOptions::default();
        let confirm = self.channel.basic_publish("".into(), queue.into(), options, body, properties);
        assert!(confirm.await.unwrap().await.unwrap().is_ack());
    }

    /// How many messages wait in a queue.
    pub async fn count(&self, queue: &str) -> u32 {
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let table = FieldTable::default();
        self.channel.queue_declare(queue.into(), passive, table).await.unwrap().message_count()
    }

    /// Takes this many messages out of a queue.
    pub async fn take(&self, queue: &str, count: usize) -> Vec<Delivery> {
        let channel = self.connection.create_channel().await.unwrap();
        let options = BasicConsumeOptions::default();
        let mut consumer =
            channel.basic_consume(queue.into(), "".into(), options, FieldTable::default()).await.unwrap();
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            let next = timeout(PATIENCE, consumer.next()).await;
            let next = next.unwrap_or_else(|_| panic!("{} of {count} arrived", taken.len()));
            taken.push(next.unwrap().unwrap());
        }
        if let Some(last) = taken.last() {
            channel.basic_ack(last.delivery_tag, BasicAckOptions { multiple: true }).await.unwrap();
        }
        // Otherwise what is on its way to us would be missing from the next count.
        channel.close(200, "done".into()).await.unwrap();
        taken
    }

    pub async fn close(self) {
        timeout(Duration::from_secs(5), self.connection.close(200, "done".into())).await.ok();
    }
}

pub fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}

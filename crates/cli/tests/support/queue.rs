//! A queue of RabbitMQ that nobody else has.

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::{AMQPValue, FieldTable, LongString, ShortString};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, ErrorKind};

use super::orders::Order;

/// How many messages are sent before their confirmations are waited for.
const IN_FLIGHT: usize = 500;

/// A durable queue, quorum or classic.
pub(crate) struct Queue {
    pub(crate) url: String,
    pub(crate) name: String,
    channel: Channel,
    /// Ends with the queue's owner.
    _connection: Connection,
}

impl Queue {
    /// Makes a queue of this type, which gives up a message after 20 deliveries if it is a quorum queue.
    pub(crate) async fn declare(name: &str, kind: &str) -> Self {
        let url = url();
        let connection =
            Connection::connect(&url, ConnectionProperties::default()).await.expect("RabbitMQ answers");
        let channel = connection.create_channel().await.expect("a channel");
        channel.confirm_select(ConfirmSelectOptions::default()).await.expect("confirmations");
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString(LongString::from(kind)));
        if kind == "quorum" {
            arguments.insert("x-delivery-limit".into(), AMQPValue::LongInt(20));
        }
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(short(name), options, arguments).await.expect("the queue is declared");
        Self { url, name: name.to_owned(), channel, _connection: connection }
    }

    /// Sends orders, with their id as the property `message_id`, and waits until the broker has them.
    pub(crate) async fn send(&self, orders: &[Order]) {
        for chunk in orders.chunks(IN_FLIGHT) {
            let mut confirms = Vec::with_capacity(chunk.len());
            for order in chunk {
                let mut headers = FieldTable::default();
                headers.insert("sku".into(), AMQPValue::LongString(LongString::from(order.key())));
                let properties = BasicProperties::default()
                    .with_message_id(short(&order.id))
                    .with_headers(headers)
                    .with_delivery_mode(2);
                let payload = order.payload();
                let sent = self.channel.basic_publish(
                    short(""),
                    short(&self.name),
                    BasicPublishOptions::default(),
                    payload.as_bytes(),
                    properties,
                );
                confirms.push(sent.await.expect("the message is sent"));
            }
            for confirm in confirms {
                assert!(confirm.await.expect("an answer").is_ack(), "the broker has it");
            }
        }
    }

    /// How many messages wait. What is out with consumers is not among them.
    pub(crate) async fn waiting(&self) -> u32 {
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let found = self.channel.queue_declare(short(&self.name), options, FieldTable::default()).await;
        found.expect("the queue is there").message_count()
    }

    /// Removes it.
    pub(crate) async fn delete(self) {
        let deleted = self.channel.queue_delete(short(&self.name), QueueDeleteOptions::default()).await;
        deleted.expect("the queue is deleted");
    }
}

/// The broker.
pub(crate) fn url() -> String {
    std::env::var("ONCEBOX_TEST_RABBITMQ")
        .expect("ONCEBOX_TEST_RABBITMQ is not set: run `cargo xtask test`, or `cargo xtask services` beside")
}

/// Whether there is such a queue.
pub(crate) async fn has_queue(name: &str) -> bool {
    let connection = Connection::connect(&url(), ConnectionProperties::default()).await;
    let channel = connection.expect("RabbitMQ answers").create_channel().await.expect("a channel");
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    match channel.queue_declare(short(name), options, FieldTable::default()).await {
        Ok(_) => true,
        Err(error) => match error.kind() {
            ErrorKind::ProtocolError(refused) if refused.get_id() == 404 => false,
            _ => panic!("{error}"),
        },
    }
}

fn short(text: &str) -> ShortString {
    ShortString::try_new(text).expect("a short text")
}

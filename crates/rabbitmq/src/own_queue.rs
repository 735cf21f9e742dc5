//! A queue of our own: made, filled, looked at and removed. For demonstrations, which bring their messages with them; sources and
//! sinks make no queues.

use std::collections::VecDeque;

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::{AMQPValue, FieldTable, LongString, ShortString};
use lapin::{BasicProperties, Channel, PublisherConfirm};

use crate::connection::{Connection, answer};
use crate::error::Error;
use crate::settings::Rabbitmq;
use crate::source::watch;

/// How many messages may be without a confirmation.
const MAX_UNCONFIRMED: usize = 500;
/// How often the broker may deliver a message: more often than anybody kills the process that has it.
const DELIVERY_LIMIT: i32 = 10_000;
/// The name of its connections.
const CALLED: &str = "oncebox demo";

/// A durable quorum queue with a single active consumer.
#[derive(Debug)]
pub struct OwnQueue {
    rabbitmq: Rabbitmq,
    connection: Connection,
    name: ShortString,
}

impl Rabbitmq {
    /// A connection for a queue of this name, which is not made yet.
    ///
    /// # Errors
    /// Why there is no connection.
    #[doc(hidden)]
    pub async fn own_queue(&self, name: &str) -> Result<OwnQueue, Error> {
        let name = short(name)?;
        Ok(OwnQueue { rabbitmq: self.clone(), connection: self.connect(CALLED).await?, name })
    }
}

impl OwnQueue {
    /// Makes it.
    ///
    /// # Errors
    /// Why the broker did not.
    pub async fn make(&self) -> Result<(), Error> {
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString(LongString::from("quorum")));
        arguments.insert("x-single-active-consumer".into(), AMQPValue::Boolean(true));
        arguments.insert("x-delivery-limit".into(), AMQPValue::LongInt(DELIVERY_LIMIT));
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let channel = self.connection.channel().await?;
        let making = channel.queue_declare(self.name.clone(), options, arguments);
        answer(&format!("making queue {}", self.name), making).await?;
        Ok(())
    }

    /// How many messages wait. What is out with consumers is not among them.
    ///
    /// # Errors
    /// Why the broker did not answer.
    pub async fn waiting(&self) -> Result<u32, Error> {
        Ok(watch::look(&self.connection, &self.name).await?.message_count())
    }

    /// Somebody who puts messages into it.
    ///
    /// # Errors
    /// Why the broker did not answer.
    pub async fn filler(&self) -> Result<Filler, Error> {
        let channel = self.connection.channel().await?;
        let confirms = channel.confirm_select(ConfirmSelectOptions::default());
        answer("asking for confirmations", confirms).await?;
        Ok(Filler { channel, queue: self.name.clone(), unconfirmed: VecDeque::new() })
    }

    /// Removes it if it is there, with all that is in it.
    ///
    /// # Errors
    /// Why the broker did not.
    pub async fn remove(&self) -> Result<(), Error> {
        if self.connection.is_up() {
            return remove(&self.connection, &self.name).await;
        }
        remove(&self.rabbitmq.connect(CALLED).await?, &self.name).await
    }
}

async fn remove(connection: &Connection, name: &ShortString) -> Result<(), Error> {
    let channel = connection.channel().await?;
    let removing = channel.queue_delete(name.clone(), QueueDeleteOptions::default());
    answer(&format!("removing queue {name}"), removing).await?;
    Ok(())
}

/// Puts messages into a queue, in their order.
#[derive(Debug)]
pub struct Filler {
    channel: Channel,
    queue: ShortString,
    unconfirmed: VecDeque<PublisherConfirm>,
}

impl Filler {
    /// Puts one more, and waits for earlier ones if many are not confirmed yet.
    ///
    /// # Errors
    /// Why this one, or an earlier one, is not in the queue.
    pub async fn put(&mut self, id: &str, key: &str, payload: &[u8]) -> Result<(), Error> {
        while self.unconfirmed.len() >= MAX_UNCONFIRMED {
            self.confirm_one().await?;
        }
        let mut headers = FieldTable::default();
        headers.insert("oncebox-key".into(), AMQPValue::LongString(LongString::from(key)));
        let properties = BasicProperties::default()
            .with_message_id(short(id)?)
            .with_headers(headers)
            .with_delivery_mode(2);
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let putting = self.channel.basic_publish("".into(), self.queue.clone(), options, payload, properties);
        self.unconfirmed.push_back(answer("publishing a message", putting).await?);
        Ok(())
    }

    /// Waits until the broker has all of them on disk.
    ///
    /// # Errors
    /// Why it does not.
    pub async fn confirm_all(&mut self) -> Result<(), Error> {
        while !self.unconfirmed.is_empty() {
            self.confirm_one().await?;
        }
        Ok(())
    }

    async fn confirm_one(&mut self) -> Result<(), Error> {
        let Some(confirm) = self.unconfirmed.pop_front() else { return Ok(()) };
        let confirmation = answer("waiting for a confirmation", confirm).await?;
        if confirmation.is_ack() && confirmation.take_message().is_none() {
            return Ok(());
        }
        Err(Error::Setting(format!("queue {} does not take a message", self.queue)))
    }
}

fn short(text: &str) -> Result<ShortString, Error> {
    ShortString::try_new(text).map_err(|_| Error::Setting(format!("{text:?} is longer than AMQP allows")))
}

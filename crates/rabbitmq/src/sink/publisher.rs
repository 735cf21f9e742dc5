//! One connection that publishes, with confirmations.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::future::join_all;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions};
use lapin::types::{FieldTable, ShortString};
use lapin::{BasicProperties, Channel, ExchangeKind, PublisherConfirm};
use tokio::time::timeout;

use crate::connection::{Connection, answer};
use crate::error::{Error, code, code_of, reason};
use crate::settings::Rabbitmq;

/// How many messages the client is given before the first of them is written.
const WRITTEN_AHEAD: usize = 64;

/// A message to publish.
pub(super) struct Outgoing<'a> {
    /// What a returned message is recognised by.
    pub(super) id: String,
    pub(super) routing_key: ShortString,
    pub(super) properties: BasicProperties,
    pub(super) payload: &'a [u8],
}

/// What the broker says of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Report {
    /// It is in every queue that it was routed to.
    Confirmed,
    /// No queue takes it.
    Returned,
    /// A queue refuses it.
    Refused,
}

/// Why there are no reports of a round. What the broker has of it is not known.
#[derive(Debug)]
pub(super) enum Failure {
    /// The broker has closed the channel with this code, and says why.
    Closed { code: Option<u16>, reason: String },
    /// Nothing was confirmed for so long.
    Stalled { blocked: bool },
}

/// A connection with a channel. Dropping it cuts the connection.
#[derive(Debug)]
pub(super) struct Publisher {
    connection: Connection,
    channel: Channel,
    /// Exchanges that were there.
    known: HashSet<String>,
}

impl Publisher {
    pub(super) async fn open(rabbitmq: &Rabbitmq) -> Result<Self, Error> {
        let connection = rabbitmq.connect("oncebox relay").await?;
        let channel = connection.channel().await?;
        let confirms = channel.confirm_select(ConfirmSelectOptions::default());
        answer("asking for confirmations", confirms).await?;
        Ok(Self { connection, channel, known: HashSet::new() })
    }

    /// Whether another round can be published, as far as is known.
    pub(super) fn is_usable(&self) -> bool {
        self.connection.is_up() && self.channel.status().connected()
    }

    pub(super) fn largest_frame(&self) -> usize {
        self.connection.largest_frame()
    }

    /// Looks whether the exchange is there, on a channel of its own: to publish to one that is not closes the channel.
    pub(super) async fn look_for(&mut self, exchange: &str, topic: &str) -> Result<(), Error> {
        // The one without a name always is, and may not be asked for.
        if exchange.is_empty() || self.known.contains(exchange) {
            return Ok(());
        }
        let name = ShortString::try_new(exchange).map_err(|e| Error::Setting(e.to_string()))?;
        let channel = self.connection.channel().await?;
        let passive = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
        let asking = channel.exchange_declare(name, ExchangeKind::Direct, passive, FieldTable::default());
        match answer(&format!("looking for exchange {exchange}"), asking).await {
            Ok(()) => {
                self.known.insert(exchange.to_owned());
                Ok(())
            }
            Err(error) if error.code() == Some(code::NOT_FOUND) => {
                Err(Error::NoExchange { exchange: exchange.to_owned(), topic: topic.to_owned() })
            }
            Err(error) => Err(error),
        }
    }

    /// Publishes all of these and waits until the broker has spoken of each. `stall` is how long it may say nothing.
    ///
    /// A message that no queue takes comes back, and is confirmed all the same. Which confirmation it comes with is left to
    /// chance, so what came back is recognised by its id, and only when all are confirmed: then all that came back is here.
    pub(super) async fn publish(
        &self,
        exchange: &ShortString,
        round: &[Outgoing<'_>],
        stall: Duration,
    ) -> Result<Vec<Report>, Failure> {
        let mut written: Vec<PublisherConfirm> = Vec::with_capacity(round.len());
        for messages in round.chunks(WRITTEN_AHEAD) {
            let writing = join_all(messages.iter().map(|message| self.write(exchange, message)));
            for outcome in self.within(stall, writing).await? {
                match outcome {
                    Ok(confirm) => written.push(confirm),
                    Err(error) => return Err(self.why_closed(&error, written, stall).await?),
                }
            }
        }
        let (mut refused, mut returned) = (Vec::with_capacity(round.len()), HashSet::new());
        for confirm in written {
            let confirmation = self.within(stall, confirm).await?.map_err(|e| closed(&e))?;
            refused.push(!confirmation.is_ack());
            let id = confirmation.take_message().and_then(|message| message.properties.message_id().clone());
            returned.extend(id.map(String::from));
        }
        let report = |(message, refused): (&Outgoing<'_>, bool)| match refused {
            _ if returned.contains(&message.id) => Report::Returned,
            true => Report::Refused,
            false => Report::Confirmed,
        };
        Ok(round.iter().zip(refused).map(report).collect())
    }

    /// A channel that was closed while more was being written says only that it is closed. Why, it says to whoever waits for the
    /// confirmation of what was written before.
    async fn why_closed(
        &self,
        error: &lapin::Error,
        written: Vec<PublisherConfirm>,
        stall: Duration,
    ) -> Result<Failure, Failure> {
        if code_of(error).is_none() {
            for confirm in written {
                if let Err(error) = self.within(stall, confirm).await?
                    && code_of(&error).is_some()
                {
                    return Ok(closed(&error));
                }
            }
        }
        Ok(closed(error))
    }

    async fn write(
        &self,
        exchange: &ShortString,
        message: &Outgoing<'_>,
    ) -> Result<PublisherConfirm, lapin::Error> {
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let (key, properties) = (message.routing_key.clone(), message.properties.clone());
        self.channel.basic_publish(exchange.clone(), key, options, message.payload, properties).await
    }

    async fn within<T>(&self, stall: Duration, work: impl Future<Output = T>) -> Result<T, Failure> {
        let stalled = |_| Failure::Stalled { blocked: self.connection.is_blocked() };
        timeout(stall, work).await.map_err(stalled)
    }

    pub(super) async fn close(self) {
        self.connection.close().await;
    }
}

fn closed(error: &lapin::Error) -> Failure {
    Failure::Closed { code: code_of(error), reason: reason(error) }
}

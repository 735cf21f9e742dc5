//! The source: its settings, and one session after the other.

mod acknowledge;
mod acks;
mod health;
mod record;
mod session;
mod table;
pub(crate) mod watch;

use std::time::Duration;

use lapin::types::ShortString;
use oncebox_core::backoff::CONNECTION;
use oncebox_core::error::BoxError;
use oncebox_core::inbox::Selector;
use oncebox_core::source::{Instant, Intake, Source};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::connection::Connection;
use crate::error::Error;
use crate::settings::Rabbitmq;
use crate::sink::message::KEY_HEADER;
use health::Health;
pub use record::{PROPERTIES, check_selector};
use session::{Session, queue_name};
use watch::LOOK_EVERY;

/// How many messages the broker sends ahead unless [`RabbitmqSource::prefetch`] says otherwise.
pub const DEFAULT_PREFETCH: u16 = 500;

/// Reads a queue. Made by [`Rabbitmq::source`].
#[derive(Debug, Clone)]
pub struct RabbitmqSource {
    rabbitmq: Rabbitmq,
    queue: String,
    prefetch: u16,
    key: Option<Selector>,
    drain_budget: Duration,
}

impl Rabbitmq {
    /// A source that reads this queue. It must exist.
    pub fn source(&self, queue: impl Into<String>) -> RabbitmqSource {
        RabbitmqSource {
            rabbitmq: self.clone(),
            queue: queue.into(),
            prefetch: DEFAULT_PREFETCH,
            key: Some(Selector::Header(KEY_HEADER.to_owned())),
            drain_budget: Duration::from_secs(15),
        }
    }
}

impl RabbitmqSource {
    /// The queue.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// How many messages may be on their way or in the works at once: [`DEFAULT_PREFETCH`] unless said otherwise, and at least one. As
    /// many are in memory, however large each is, and as many come again when the process ends.
    #[must_use]
    pub fn prefetch(mut self, messages: u16) -> Self {
        self.prefetch = messages.max(1);
        self
    }

    /// Where the key of a message is. Messages of one key keep their order, as far as the queue does; those without a key wait for
    /// nobody. Default: the header `oncebox-key`, where the sink puts it.
    ///
    /// # Errors
    /// If a message cannot have its key there.
    pub fn key(mut self, selector: Selector) -> Result<Self, Error> {
        if selector == Selector::Key {
            return Err(Error::Setting(
                "the key of a message is not in its key: name a header or a property".to_owned(),
            ));
        }
        check_selector(&selector)?;
        self.key = Some(selector);
        Ok(self)
    }

    /// No message has a key: none waits for another.
    #[must_use]
    pub fn without_key(mut self) -> Self {
        self.key = None;
        self
    }

    /// How long transactions in flight may take to end when the process stops or the connection is lost. Default: 15 seconds.
    #[must_use]
    pub fn drain_budget(mut self, budget: Duration) -> Self {
        self.drain_budget = budget;
        self
    }
}

impl Source for RabbitmqSource {
    async fn run(&self, intake: Intake, stop: CancellationToken) -> Result<(), BoxError> {
        let health = Health::new(&intake, &self.queue);
        intake.member(false);
        let mut failures = 0;
        // Before that nothing is taken from the queue that would only have to go back.
        tokio::select! {
            () = stop.cancelled() => {}
            () = intake.paused() => {}
            () = intake.resumed() => {}
        }
        // Not left to the supervisor: it does not know that a connection held for weeks.
        while !stop.is_cancelled() {
            let began = Instant::now();
            let ended = if intake.is_paused() {
                self.stand_by(&intake, &health, &stop).await
            } else {
                self.session(&intake, &health, &stop).await
            };
            let Err(error) = ended else { continue };
            if began.elapsed() > CONNECTION.max {
                failures = 0;
            }
            failures += 1;
            let (reason, wait) = (error.to_string(), CONNECTION.delay(failures));
            if health.failed(&reason) {
                warn!(consumer = intake.consumer(), queue = self.queue, reason, retry_in = ?wait, "RabbitMQ is not read");
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
        Ok(())
    }
}

impl RabbitmqSource {
    /// Reads over one connection, until it is told to stop, the consumer is paused, or something breaks.
    async fn session(&self, intake: &Intake, health: &Health, stop: &CancellationToken) -> Result<(), Error> {
        let session = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            session = Session::open(self, intake) => session?,
        };
        intake.member(true);
        let ended = session.run(intake, health, stop).await;
        intake.member(false);
        ended
    }

    /// While the consumer is paused, nothing is read: a message that is delivered and not answered would run into the broker's
    /// timeout. How much waits is still told.
    async fn stand_by(
        &self,
        intake: &Intake,
        health: &Health,
        stop: &CancellationToken,
    ) -> Result<(), Error> {
        info!(consumer = intake.consumer(), queue = self.queue, "paused: the queue is not read");
        let over = async {
            tokio::select! {
                () = stop.cancelled() => {}
                () = intake.resumed() => {}
            }
        };
        let mut over = std::pin::pin!(over);
        let queue = queue_name(&self.queue)?;
        let name = format!("oncebox {}", intake.consumer());
        let connection = tokio::select! {
            biased;
            () = &mut over => return Ok(()),
            connection = self.rabbitmq.connect(&name) => connection?,
        };
        // It does what it should.
        intake.member(true);
        let ended = tokio::select! {
            biased;
            () = over => Ok(()),
            failed = tell_how_much_waits(&connection, &queue, health) => failed,
        };
        intake.member(false);
        connection.close().await;
        ended
    }
}

/// Until something breaks.
async fn tell_how_much_waits(
    connection: &Connection,
    queue: &ShortString,
    health: &Health,
) -> Result<(), Error> {
    loop {
        health.saw_waiting(watch::look(connection, queue).await?.message_count());
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

//! Publishes events to RabbitMQ.

pub(crate) mod message;

mod batch;
mod pool;
mod publisher;
mod route;

use std::fmt;
use std::time::Duration;

use lapin::types::ShortString;
use oncebox_core::error::BoxError;
use oncebox_core::outbox::{Delivery, OutgoingEvent, Sink};
use oncebox_core::store::Finding;

use crate::error::{Error, code};
use crate::settings::Rabbitmq;
use batch::Batch;
use pool::{Leased, Pool};
use publisher::{Failure, Outgoing, Report};
use route::{Route, Routes};

/// How many batches may be under way at once: each has a connection of its own.
const MAX_BATCHES: usize = 5;
/// How long RabbitMQ may confirm nothing of a batch before the batch is given up, so that others have their turn.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The routing key of a sink that was given none.
const BY_TOPIC: &str = "{topic}";

/// Publishes events to exchanges. Made by [`Rabbitmq::sink`]; see [the module](crate) for what a message looks like.
///
/// Exchanges are never created: events to one that does not exist wait for it. So do events that no queue takes, and all events
/// while no node can be reached or the broker is short of memory or disk. An event that the broker refuses for its own sake, such
/// as one that is larger than it allows, is given up.
pub struct RabbitmqSink {
    pool: Pool,
    routes: Routes,
    stall: Duration,
}

impl Rabbitmq {
    /// A sink that publishes to this exchange, with the topic of the event as the routing key.
    pub fn sink(&self, exchange: impl AsRef<str>) -> Result<RabbitmqSink, Error> {
        let rest = Route::new(exchange.as_ref(), BY_TOPIC)?;
        let pool = Pool::new(self.clone(), MAX_BATCHES);
        Ok(RabbitmqSink { pool, routes: Routes::all_to(rest), stall: STALL_TIMEOUT })
    }
}

impl RabbitmqSink {
    /// Another exchange and routing key for the topics that fit a pattern, in which `*` stands for anything. Of several that fit,
    /// the first is taken.
    ///
    /// The routing key may hold `{topic}` and `{key}`, the key of the event. The exchange without a name, `""`, takes the routing
    /// key for the name of a queue.
    pub fn route(
        mut self,
        topics: impl Into<String>,
        exchange: impl AsRef<str>,
        routing_key: impl AsRef<str>,
    ) -> Result<Self, Error> {
        self.routes.add(topics.into(), Route::new(exchange.as_ref(), routing_key.as_ref())?);
        Ok(self)
    }

    /// How long nothing of a batch may be confirmed before it is tried again later: 30 seconds unless said otherwise.
    #[must_use]
    pub fn stall_timeout(mut self, timeout: Duration) -> Self {
        self.stall = timeout;
        self
    }

    /// Which of its exchanges are there, for `oncebox check`. Whether a queue is bound to one cannot be asked.
    pub async fn check(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for exchange in self.routes.exchanges() {
            let subject = if exchange.is_empty() {
                "the default exchange".to_owned()
            } else {
                format!("exchange {exchange}")
            };
            let found = match self.pool.lease().await {
                Ok(mut leased) => {
                    let found = leased.publisher().look_for(exchange, "*").await;
                    leased.keep();
                    found
                }
                Err(error) => Err(error),
            };
            findings.push(match found {
                Ok(()) => Finding::ok(subject, "it is there"),
                Err(error) => Finding::error(subject, error.to_string()),
            });
        }
        findings
    }

    async fn publish(&self, topic: &str, events: &[OutgoingEvent]) -> Result<Vec<Delivery>, Error> {
        let mut batch = Batch::new(events);
        let mut leased = self.pool.lease().await?;
        match self.rounds(topic, events, &mut batch, &mut leased).await {
            Ok(()) => {
                leased.keep();
                Ok(batch.into_deliveries(""))
            }
            // What was confirmed need not be sent again.
            Err(error) if batch.has_delivered() => Ok(batch.into_deliveries(&error.to_string())),
            Err(error) => Err(error),
        }
    }

    /// Sends round after round until every event is decided. An error means that the batch cannot go on now.
    async fn rounds(
        &self,
        topic: &str,
        events: &[OutgoingEvent],
        batch: &mut Batch<'_>,
        leased: &mut Leased<'_>,
    ) -> Result<(), Error> {
        let route = self.routes.of(topic);
        let exchange =
            ShortString::try_new(route.exchange.as_str()).map_err(|e| Error::Setting(e.to_string()))?;
        while let Some(places) = batch.next_round() {
            if !leased.publisher().is_usable() {
                leased.replace().await?;
            }
            let publisher = leased.publisher();
            publisher.look_for(&route.exchange, topic).await?;
            let largest_frame = publisher.largest_frame();
            let (mut sent, mut round) = (Vec::new(), Vec::new());
            for at in places {
                match outgoing(&events[at], route, largest_frame) {
                    Ok(message) => {
                        sent.push(at);
                        round.push(message);
                    }
                    Err(problem) => {
                        let error = format!("event {} to {topic}: {problem}", events[at].id());
                        batch.decide(at, Delivery::Reject { error });
                    }
                }
            }
            let reports = match publisher.publish(&exchange, &round, self.stall).await {
                Ok(reports) => reports,
                Err(failure) => {
                    self.take_in_failure(topic, batch, &sent, failure)?;
                    continue;
                }
            };
            take_in(route, events, batch, &sent, &reports)?;
        }
        Ok(())
    }

    /// A message that is too large closes the channel, and the broker does not say which it was: it is looked for in smaller
    /// rounds.
    fn take_in_failure(
        &self,
        topic: &str,
        batch: &mut Batch<'_>,
        sent: &[usize],
        failure: Failure,
    ) -> Result<(), Error> {
        let reason = match failure {
            Failure::Closed { code: Some(code::PRECONDITION_FAILED), reason } => {
                if !batch.shrink(sent.len()) {
                    let error = format!(
                        "RabbitMQ refuses it: {reason}; change the limit and retry the event, or drop it"
                    );
                    sent.iter().for_each(|at| batch.decide(*at, Delivery::Reject { error: error.clone() }));
                }
                return Ok(());
            }
            Failure::Closed { reason, .. } => reason,
            Failure::Stalled { blocked: false } => format!("no confirmation for {} s", self.stall.as_secs()),
            Failure::Stalled { blocked: true } => {
                "the broker has blocked publishers, it is short of memory or disk space".to_owned()
            }
        };
        let (missing, events) = (batch.missing(), batch.len());
        Err(Error::NotPublished { topic: topic.to_owned(), missing, events, reason })
    }
}

fn outgoing<'e>(
    event: &'e OutgoingEvent,
    route: &Route,
    largest_frame: usize,
) -> Result<Outgoing<'e>, String> {
    Ok(Outgoing {
        id: event.id().to_string(),
        routing_key: route.routing_key(event)?,
        properties: message::properties(event, largest_frame)?,
        payload: event.payload().map_or(&[], |payload| payload),
    })
}

fn take_in(
    route: &Route,
    events: &[OutgoingEvent],
    batch: &mut Batch<'_>,
    sent: &[usize],
    reports: &[Report],
) -> Result<(), Error> {
    let mut unroutable = None;
    for (at, report) in sent.iter().zip(reports) {
        let event = &events[*at];
        match report {
            Report::Confirmed => batch.decide(*at, Delivery::Delivered),
            Report::Returned => {
                let error = Error::Unroutable {
                    topic: event.topic().to_owned(),
                    exchange: route.exchange.clone(),
                    routing_key: route.routing_key(event).map(String::from).unwrap_or_default(),
                };
                // Where all events of the topic have the same routing key, no event is to blame.
                if !route.is_for_the_topic() {
                    batch.decide(*at, Delivery::Retry { error: error.to_string(), after: None });
                } else {
                    unroutable = Some(error);
                }
            }
            Report::Refused => {
                let error = format!(
                    "event {} to {}: a queue refuses it, it may be full; it is tried again",
                    event.id(),
                    event.topic()
                );
                batch.decide(*at, Delivery::Retry { error, after: None });
            }
        }
    }
    batch.grow();
    unroutable.map_or(Ok(()), Err)
}

impl Sink for RabbitmqSink {
    async fn deliver(&self, events: &[OutgoingEvent]) -> Result<Vec<Delivery>, BoxError> {
        match events.first() {
            Some(first) => Ok(self.publish(first.topic(), events).await?),
            None => Ok(Vec::new()),
        }
    }

    fn concurrency(&self) -> usize {
        MAX_BATCHES
    }

    fn system(&self) -> Option<&'static str> {
        Some("rabbitmq")
    }
}

impl fmt::Debug for RabbitmqSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitmqSink")
            .field("rabbitmq", self.pool.rabbitmq())
            .field("routes", &self.routes)
            .finish_non_exhaustive()
    }
}

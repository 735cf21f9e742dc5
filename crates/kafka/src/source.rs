//! The source: its settings, and the thread that reads.

mod assignment;
mod begin;
mod callbacks;
mod commit;
mod deliver;
mod health;
mod partition;
mod reader;
mod rebalance;
mod recheck;
mod statistics;
mod survey;

use std::time::Duration;

use oncebox_core::error::BoxError;
use oncebox_core::source::{Intake, Source};
use rdkafka::consumer::BaseConsumer;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::error::Error;
use crate::settings::Kafka;
use callbacks::Callbacks;
use reader::{Plan, Reader};
use survey::Survey;

/// How long leaving the group may take after the drain. librdkafka cannot be hurried when a broker does not answer.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);
/// librdkafka's default for `max.poll.interval.ms`: how long the group waits for us to give partitions back.
const DEFAULT_POLL_INTERVAL: Duration = Duration::from_secs(300);

/// Reads topics as a member of a consumer group. Made by [`Kafka::source`].
#[derive(Debug, Clone)]
pub struct KafkaSource {
    kafka: Kafka,
    topics: Vec<String>,
    group: Option<String>,
    drain_budget: Duration,
    commit_interval: Duration,
}

impl KafkaSource {
    pub(crate) fn new(kafka: Kafka, topics: Vec<String>) -> Self {
        Self {
            kafka,
            topics,
            group: None,
            drain_budget: Duration::from_secs(15),
            commit_interval: Duration::from_secs(1),
        }
    }

    /// The consumer group. Default: the consumer's name.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// How long transactions in flight may take to end when partitions are given back or the process stops. Default: 15
    /// seconds; at most a half of `max.poll.interval.ms`, since the group does not wait longer than that.
    #[must_use]
    pub fn drain_budget(mut self, budget: Duration) -> Self {
        self.drain_budget = budget;
        self
    }

    /// How often offsets are committed at the broker. Default: every second.
    #[must_use]
    pub fn commit_interval(mut self, interval: Duration) -> Self {
        self.commit_interval = interval;
        self
    }

    fn bounded_drain_budget(&self) -> Duration {
        let interval = self.kafka.get("max.poll.interval.ms").and_then(|ms| ms.parse().ok());
        self.drain_budget.min(interval.map_or(DEFAULT_POLL_INTERVAL, Duration::from_millis) / 2)
    }

    fn consumer(&self, intake: &Intake) -> Result<BaseConsumer<Callbacks>, Error> {
        if self.topics.is_empty() {
            return Err(Error::NoTopics);
        }
        let config = self.kafka.consumer_config(self.group.as_deref().unwrap_or(intake.consumer()))?;
        let secrets = self.kafka.secrets();
        let created = config.create_with_context(Callbacks::new(secrets.clone()));
        created.map_err(|e| Error::configuration(&e, &secrets))
    }

    fn plan(&self) -> Plan {
        Plan {
            topics: self.topics.clone(),
            brokers: self.kafka.broker_list().to_owned(),
            drain_budget: self.bounded_drain_budget(),
            commit_interval: self.commit_interval,
        }
    }
}

impl Source for KafkaSource {
    async fn run(&self, intake: Intake, stop: CancellationToken) -> Result<(), BoxError> {
        let name = intake.consumer().to_owned();
        let (consumer, plan) = (self.consumer(&intake)?, self.plan());
        let asking = Survey::client(&self.kafka)?;
        // Whoever drops this future without stopping it first must not leave a reader behind.
        let reader_stop = stop.child_token();
        let _stops_the_reader = reader_stop.clone().drop_guard();
        let (tell, ended) = oneshot::channel();
        // A thread of its own, not the runtime's: it blocks by nature, and dropping a consumer may block for long.
        std::thread::Builder::new().name(format!("kafka-{name}")).spawn(move || {
            let ended =
                Reader::new(consumer, asking, intake, plan).and_then(|reader| reader.run(&reader_stop));
            // Nobody listens any more if the deadline below has passed.
            tell.send(ended).ok();
        })?;
        let deadline = async {
            stop.cancelled().await;
            tokio::time::sleep(self.bounded_drain_budget() + LEAVE_TIMEOUT).await;
        };
        tokio::select! {
            ended = ended => match ended {
                Ok(result) => result.map_err(BoxError::from),
                Err(_) => Err("the thread that reads from Kafka panicked".into()),
            },
            () = deadline => {
                warn!(consumer = name, "leaving the Kafka group takes too long; not waiting for it");
                Ok(())
            }
        }
    }
}

//! The source: its settings, and the thread that reads.

mod agenda;
mod ahead;
mod ask;
mod assignment;
mod begin;
mod bell;
mod callbacks;
mod commit;
mod deliver;
#[cfg(test)]
mod fatal_tests;
mod fenced;
mod gate;
mod health;
mod partition;
mod reader;
mod rebalance;
mod recheck;
mod statistics;
mod trouble;

use std::time::Duration;

use oncebox_core::error::BoxError;
use oncebox_core::source::{Intake, Source};
use rdkafka::consumer::BaseConsumer;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::error::Error;
use crate::settings::Kafka;
pub(crate) use ahead::Ahead;
use ask::Clients;
use callbacks::Callbacks;
pub use gate::TopicGate;
use reader::{Plan, Reader};

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
    fetch_ahead: Option<usize>,
    gate: Option<TopicGate>,
}

impl KafkaSource {
    pub(crate) fn new(kafka: Kafka, topics: Vec<String>) -> Self {
        Self {
            kafka,
            topics,
            group: None,
            drain_budget: Duration::from_secs(15),
            commit_interval: Duration::from_secs(1),
            fetch_ahead: None,
            gate: None,
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

    /// How many bytes librdkafka may fetch ahead, for all partitions together; a message of each partition always fits. Default:
    /// what the [`Memory`](oncebox_core::inbox::Memory) of the inbox has for that, a quarter of it. Several sources of one
    /// process divide it between them.
    #[must_use]
    pub fn fetch_ahead(mut self, bytes: usize) -> Self {
        self.fetch_ahead = Some(bytes);
        self
    }

    /// Begins with the partitions of a topic only after this gate has opened for it. Default: with all of them.
    #[must_use]
    pub fn gate(mut self, gate: TopicGate) -> Self {
        self.gate = Some(gate);
        self
    }

    fn bounded_drain_budget(&self) -> Duration {
        let interval = self.kafka.get("max.poll.interval.ms").and_then(|ms| ms.parse().ok());
        self.drain_budget.min(interval.map_or(DEFAULT_POLL_INTERVAL, Duration::from_millis) / 2)
    }

    /// What the thread that reads needs. Takes its time: brokers are asked how many partitions there are.
    fn reader(&self, intake: Intake) -> Result<Reader, Error> {
        if self.topics.is_empty() {
            return Err(Error::NoTopics);
        }
        let clients = Clients::new(&self.kafka, self.group_of(&intake), intake.start_policy())?;
        let bytes = self.fetch_ahead.unwrap_or_else(|| intake.settings().memory.fetched_ahead());
        let consumer = self.consumer(&intake, Ahead::ask(clients.asking(), &self.topics, bytes))?;
        let plan = self.plan(&intake);
        Reader::new(consumer, clients, intake, plan)
    }

    fn consumer(&self, intake: &Intake, ahead: Ahead) -> Result<BaseConsumer<Callbacks>, Error> {
        let config = self.kafka.consumer_config(self.group_of(intake), ahead)?;
        let created = config.create_with_context(Callbacks::of(&self.kafka));
        created.map_err(|e| Error::configuration(&e, &self.kafka.secrets()))
    }

    fn group_of<'a>(&'a self, intake: &'a Intake) -> &'a str {
        self.group.as_deref().unwrap_or(intake.consumer())
    }

    fn plan(&self, intake: &Intake) -> Plan {
        Plan {
            topics: self.topics.clone(),
            brokers: self.kafka.broker_list().to_owned(),
            group: self.group_of(intake).to_owned(),
            drain_budget: self.bounded_drain_budget(),
            commit_interval: self.commit_interval,
            gate: self.gate.clone(),
        }
    }
}

impl Source for KafkaSource {
    async fn run(&self, intake: Intake, stop: CancellationToken) -> Result<(), BoxError> {
        intake.member(false);
        let name = intake.consumer().to_owned();
        let monitor = intake.monitor().clone();
        let source = self.clone();
        // Whoever drops this future without stopping it first must not leave a reader behind.
        let reader_stop = stop.child_token();
        let _stops_the_reader = reader_stop.clone().drop_guard();
        let (tell, ended) = oneshot::channel();
        // A thread of its own, not the runtime's: it blocks by nature, and dropping a consumer may block for long.
        std::thread::Builder::new().name(format!("kafka-{name}")).spawn(move || {
            let mut burial = None;
            let ended = source.reader(intake).and_then(|mut reader| {
                let ended = reader.run(&reader_stop);
                if ended.is_err() {
                    // A client that has failed may take its time to go. The next one does not wait for it.
                    reader.let_go();
                    burial = Some(reader);
                }
                ended
            });
            // Nobody listens any more if the deadline below has passed.
            tell.send(ended).ok();
            drop(burial);
        })?;
        let deadline = async {
            stop.cancelled().await;
            tokio::time::sleep(self.bounded_drain_budget() + LEAVE_TIMEOUT).await;
        };
        tokio::select! {
            ended = ended => match ended {
                Ok(Err(Error::Fenced)) => {
                    fenced::stand_still(&name, &monitor, &stop).await;
                    if stop.is_cancelled() { Ok(()) } else { Err(Error::Fenced.into()) }
                }
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

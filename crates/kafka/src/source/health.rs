//! Whether we are connected, for `/healthz` and the metrics; and how much is left to read.

use std::time::{Duration, Instant};

use oncebox_core::metrics::{self, Gauge};
use oncebox_core::monitor::LoopHandle;
use oncebox_core::source::Intake;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::topic_partition_list::Offset;
use tracing::{info, warn};

use super::callbacks::Callbacks;
use super::partition::Phase;
use super::reader::Reader;

/// How often we say that all is well.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// How often a topic that cannot be read is asked for.
const TOPIC_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// How long an answer about a topic may take. Everything else stands still meanwhile.
const TOPIC_CHECK_TIMEOUT: Duration = Duration::from_secs(1);

/// Reports as the loop `kafka:<consumer>`.
#[derive(Debug)]
pub(super) struct Health {
    consumer: String,
    handle: LoopHandle,
    connected: bool,
    /// How many statistics in a row had no coordinator for the group.
    without_coordinator: u32,
    broker_problem: Option<String>,
    topic_problem: Option<String>,
    next_report: Instant,
    lag: Gauge,
    stopped: Gauge,
}

impl Health {
    pub(super) fn new(intake: &Intake, brokers: &str) -> Self {
        let consumer = intake.consumer().to_owned();
        Self {
            handle: intake.monitor().register(format!("kafka:{consumer}"), brokers),
            connected: false,
            without_coordinator: 0,
            broker_problem: None,
            topic_problem: None,
            next_report: Instant::now(),
            lag: metrics::lag_messages(consumer.clone()),
            stopped: metrics::partitions_stopped(consumer.clone()),
            consumer,
        }
    }

    /// Whether it is time to report.
    pub(super) fn is_due(&self) -> bool {
        Instant::now() >= self.next_report
    }

    pub(super) fn report(&mut self, lag: i64, stopped: usize) {
        self.next_report = Instant::now() + REPORT_INTERVAL;
        self.lag.set(lag as f64);
        self.stopped.set(stopped as f64);
        self.tell();
    }

    fn tell(&self) {
        match self.broker_problem.as_ref().or(self.topic_problem.as_ref()) {
            Some(problem) => self.handle.failed(problem),
            None if self.connected => self.handle.succeeded(),
            None => {}
        }
    }

    /// A broker has been heard: a message, an assignment.
    pub(super) fn note_contact(&mut self) {
        self.connected = true;
        self.without_coordinator = 0;
        if self.broker_problem.take().is_some() {
            info!(consumer = self.consumer, "Kafka is back");
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connected
    }

    pub(super) fn has_topic_problem(&self) -> bool {
        self.topic_problem.is_some()
    }

    pub(super) fn note_topics_found(&mut self) {
        if self.topic_problem.take().is_some() {
            info!(consumer = self.consumer, "all topics can be read");
        }
    }

    /// librdkafka goes on by itself after all of these; they only have to be seen.
    pub(super) fn note_trouble(&mut self, code: RDKafkaErrorCode, reason: &str) {
        use RDKafkaErrorCode::{
            TopicAuthorizationFailed, UnknownPartition, UnknownTopic, UnknownTopicOrPartition,
        };
        let about_topics =
            [TopicAuthorizationFailed, UnknownPartition, UnknownTopic, UnknownTopicOrPartition];
        let problem = format!("{reason} ({code:?})");
        let place =
            if about_topics.contains(&code) { &mut self.topic_problem } else { &mut self.broker_problem };
        if place.as_ref() != Some(&problem) {
            warn!(consumer = self.consumer, problem, "trouble with Kafka; trying again");
            *place = Some(problem);
        }
        if code == RDKafkaErrorCode::AllBrokersDown {
            self.connected = false;
        }
        self.tell();
    }

    /// Whether a broker can be reached, and the coordinator of the group. The latter may change without a problem, so it is
    /// missed only the second time.
    pub(super) fn note_connections(&mut self, up: bool, coordinated: bool) {
        self.without_coordinator = if coordinated { 0 } else { self.without_coordinator + 1 };
        if up && coordinated {
            self.note_contact();
        } else if !up {
            self.connected = false;
            self.broker_problem.get_or_insert_with(|| "no broker can be reached".to_owned());
        } else if self.without_coordinator > 1 {
            self.connected = false;
            self.broker_problem.get_or_insert_with(|| "the group has no coordinator".to_owned());
        }
    }
}

impl Reader {
    /// Reports, if it is time.
    pub(super) fn report_if_due(&mut self) {
        if !self.health.is_due() {
            return;
        }
        let heard =
            self.partitions.iter_mut().filter_map(|p| std::mem::take(&mut p.heard).then_some(p)).count();
        if heard > 0 {
            self.health.note_contact();
        }
        if self.health.has_topic_problem() && self.topics_checked.elapsed() > TOPIC_CHECK_INTERVAL {
            self.topics_checked = Instant::now();
            if self.topics.iter().all(|topic| is_there(&self.consumer, topic)) {
                self.health.note_topics_found();
            }
        }
        // What librdkafka knows already; no request.
        let positions = self.consumer.position().ok();
        let position = |topic: &str, number| match positions.as_ref()?.find_partition(topic, number)?.offset()
        {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        };
        for partition in self.partitions.iter() {
            partition.skip_to(position(&partition.topic, partition.number));
        }
        let lag = self.partitions.iter().map(|p| p.lag(position(&p.topic, p.number))).sum();
        let stopped = self.partitions.iter().filter(|p| p.phase == Phase::Stopped).count();
        self.health.report(lag, stopped);
    }
}

fn is_there(consumer: &BaseConsumer<Callbacks>, topic: &str) -> bool {
    let found = consumer.fetch_metadata(Some(topic), TOPIC_CHECK_TIMEOUT);
    found.is_ok_and(|found| found.topics().iter().any(|t| t.error().is_none() && !t.partitions().is_empty()))
}

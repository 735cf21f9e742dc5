//! Whether we are connected, for `/healthz` and the metrics; and how much is left to read.

use std::time::{Duration, Instant};

use metrics::{Gauge, gauge};
use oncebox_core::monitor::LoopHandle;
use oncebox_core::source::Intake;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::statistics::Statistics;
use tracing::{info, warn};

/// How often we say that all is well.
const REPORT: Duration = Duration::from_secs(1);

/// Reports as the loop `kafka:<consumer>`.
#[derive(Debug)]
pub(crate) struct Health {
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
    pub(crate) fn new(intake: &Intake, brokers: &str) -> Self {
        let consumer = intake.consumer().to_owned();
        Self {
            handle: intake.monitor().register(format!("kafka:{consumer}"), brokers),
            connected: false,
            without_coordinator: 0,
            broker_problem: None,
            topic_problem: None,
            next_report: Instant::now(),
            lag: gauge!("oncebox_lag_messages", "consumer" => consumer.clone()),
            stopped: gauge!("oncebox_partitions_stopped", "consumer" => consumer.clone()),
            consumer,
        }
    }

    /// Whether it is time to report.
    pub(crate) fn is_due(&self) -> bool {
        Instant::now() >= self.next_report
    }

    pub(crate) fn report(&mut self, lag: i64, stopped: usize) {
        self.next_report = Instant::now() + REPORT;
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

    /// A broker has answered: a message, an assignment.
    pub(crate) fn saw_broker(&mut self) {
        self.connected = true;
        self.without_coordinator = 0;
        if self.broker_problem.take().is_some() {
            info!(consumer = self.consumer, "Kafka is back");
        }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connected
    }

    pub(crate) fn has_topic_problem(&self) -> bool {
        self.topic_problem.is_some()
    }

    pub(crate) fn topics_are_there(&mut self) {
        if self.topic_problem.take().is_some() {
            info!(consumer = self.consumer, "all topics can be read");
        }
    }

    /// librdkafka goes on by itself after all of these; they only have to be seen.
    pub(crate) fn trouble(&mut self, code: RDKafkaErrorCode, reason: &str) {
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

    /// What librdkafka says about its connections.
    pub(crate) fn take_in(&mut self, statistics: &Statistics) {
        let up = statistics.brokers.values().any(|broker| broker.state == "UP");
        let coordinated = statistics.cgrp.as_ref().is_some_and(|group| group.state == "up");
        self.without_coordinator = if coordinated { 0 } else { self.without_coordinator + 1 };
        if up && coordinated {
            self.saw_broker();
        } else if !up {
            self.connected = false;
            self.broker_problem.get_or_insert_with(|| "no broker can be reached".to_owned());
        } else if self.without_coordinator > 1 {
            self.connected = false;
            self.broker_problem.get_or_insert_with(|| "the group has no coordinator".to_owned());
        }
    }
}

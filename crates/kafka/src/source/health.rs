//! Whether all is well with Kafka, for `/healthz`, `/readyz` and the metrics; and how much is left to read.

use std::time::{Duration, Instant};

use oncebox_core::metrics::{self, Gauge};
use oncebox_core::monitor::LoopHandle;
use oncebox_core::source::Intake;
use oncebox_kafka_ffi::TopicPattern;
use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::Offset;
use tracing::debug;

use super::partition::{Partition, Phase, named};
use super::reader::Reader;
use super::trouble::{Lasting, Trouble, group_refused};

/// How often we say that all is well.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// What is added to that for each partition, so that looking at all of them costs the same, however many there are.
const REPORT_INTERVAL_EACH: Duration = Duration::from_micros(500);
/// How often a topic that cannot be read is asked for.
const TOPIC_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Rebalances take their time. This is longer than most.
const LONG_REBALANCE: Duration = Duration::from_secs(30);

/// Reports as the loop `kafka:<consumer>`. Each trouble stays until what it is about is well again; then, and not before, the
/// loop succeeds.
#[derive(Debug)]
pub(super) struct Health {
    intake: Intake,
    group: String,
    handle: LoopHandle,
    connected: bool,
    without_coordinator: Lasting,
    not_joined: Lasting,
    /// What librdkafka said last about a broker.
    last_error: Option<String>,
    brokers: Trouble,
    membership: Trouble,
    topics: Trouble,
    /// Partitions that cannot begin.
    beginning: Trouble,
    leaders: Trouble,
    fetching: Trouble,
    next_report: Instant,
    lag: Gauge,
    stopped: Gauge,
}

impl Health {
    pub(super) fn new(intake: &Intake, brokers: &str, group: String) -> Self {
        let consumer = intake.consumer().to_owned();
        Self {
            intake: intake.clone(),
            group,
            handle: intake.monitor().register_unlogged(format!("kafka:{consumer}"), brokers),
            connected: false,
            without_coordinator: Lasting::default(),
            not_joined: Lasting::default(),
            last_error: None,
            brokers: Trouble::with("the brokers"),
            membership: Trouble::with("the group"),
            topics: Trouble::with("the topics"),
            beginning: Trouble::with("partitions that begin"),
            leaders: Trouble::with("the leaders of partitions"),
            fetching: Trouble::with("fetching"),
            next_report: Instant::now(),
            lag: metrics::lag_messages(consumer.clone()),
            stopped: metrics::partitions_stopped(consumer),
        }
    }

    /// Whether it is time to report.
    pub(super) fn is_due(&self) -> bool {
        Instant::now() >= self.next_report
    }

    fn report(&mut self, lag: i64, stopped: usize, partitions: usize) {
        let each = REPORT_INTERVAL_EACH.saturating_mul(u32::try_from(partitions).unwrap_or(u32::MAX));
        self.next_report = Instant::now() + REPORT_INTERVAL + each;
        self.lag.set(lag as f64);
        self.stopped.set(stopped as f64);
        self.tell();
    }

    fn tell(&self) {
        let all =
            [&self.brokers, &self.membership, &self.topics, &self.leaders, &self.fetching, &self.beginning];
        let problems: Vec<&str> = all.into_iter().filter_map(Trouble::text).collect();
        if !problems.is_empty() {
            self.handle.failed(problems.join("; "));
        } else if self.connected {
            self.handle.succeeded();
        }
    }

    fn set(&mut self, which: fn(&mut Self) -> &mut Trouble, now: Option<String>) {
        let consumer = self.intake.consumer().to_owned();
        which(self).now_is(&consumer, now);
        self.tell();
    }

    /// A broker has been heard.
    fn note_contact(&mut self) {
        self.connected = true;
        self.without_coordinator.note(false);
        self.last_error = None;
        self.set(|health| &mut health.brokers, None);
    }

    /// The group has given us an assignment.
    pub(super) fn note_joined(&mut self) {
        self.note_contact();
        self.not_joined.note(false);
        self.intake.member(true);
        self.set(|health| &mut health.membership, None);
    }

    /// The group does without us.
    pub(super) fn note_lost(&self) {
        self.intake.member(false);
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connected
    }

    /// librdkafka goes on by itself after all of these; they only have to be seen.
    pub(super) fn note_trouble(&mut self, code: RDKafkaErrorCode, reason: &str) {
        use RDKafkaErrorCode::{
            TopicAuthorizationFailed, UnknownPartition, UnknownTopic, UnknownTopicOrPartition,
        };
        let about_topics =
            [TopicAuthorizationFailed, UnknownPartition, UnknownTopic, UnknownTopicOrPartition];
        let problem = format!("{reason} ({code:?})");
        if let Some(advice) = group_refused(code) {
            self.intake.member(false);
            let problem = format!("group {} cannot be joined: {problem}. {advice}", self.group);
            self.set(|health| &mut health.membership, Some(problem));
        } else if about_topics.contains(&code) {
            self.set(|health| &mut health.topics, Some(problem));
        } else if code == RDKafkaErrorCode::AllBrokersDown {
            self.note_no_broker();
        } else {
            // Others may do as well; if not, this is the reason.
            debug!(consumer = self.intake.consumer(), problem, "trouble with a broker");
            self.last_error = Some(problem);
        }
    }

    /// Whether the topics that could not be read can be.
    pub(super) fn note_topics(&mut self, readable: bool) {
        if readable {
            self.set(|health| &mut health.topics, None);
        }
    }

    fn note_no_broker(&mut self) {
        self.connected = false;
        let reason = self.last_error.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        self.set(|health| &mut health.brokers, Some(format!("no broker can be reached{reason}")));
    }

    /// Whether a broker can be reached, and the coordinator of the group. The latter may change without a problem, so it is
    /// missed only the second time.
    pub(super) fn note_connections(&mut self, up: bool, coordinated: bool) {
        self.without_coordinator.note(!coordinated);
        if up && coordinated {
            self.note_contact();
        } else if !up {
            self.note_no_broker();
        } else if self.without_coordinator.is_more_than_a_moment() {
            self.connected = false;
            self.set(|health| &mut health.brokers, Some("the group has no coordinator".to_owned()));
        }
    }

    /// In which state of joining the group we are. What was refused stays refused until we are in.
    pub(super) fn note_group(&mut self, state: &str) {
        self.not_joined.note(state != "steady");
        if state == "steady" {
            self.intake.member(true);
            self.set(|health| &mut health.membership, None);
        } else if self.not_joined.lasts() > LONG_REBALANCE {
            self.intake.member(false);
            if self.membership.text().is_none() {
                let problem = format!(
                    "group {} is not joined (state {state}): its topics are not there, or another member does not answer",
                    self.group
                );
                self.set(|health| &mut health.membership, Some(problem));
            }
        }
    }

    /// These flow, and nobody leads them.
    pub(super) fn note_leaderless(&mut self, places: Option<String>) {
        let problem = places.map(|places| format!("no broker that can be reached leads {places}"));
        self.set(|health| &mut health.leaders, problem);
    }

    /// These are assigned and not fetched.
    pub(super) fn note_stalled(&mut self, places: Option<String>) {
        let problem = places.map(|places| format!("assigned and not fetched: {places}"));
        self.set(|health| &mut health.fetching, problem);
    }

    /// These cannot begin.
    fn note_delayed(&mut self, delayed: Option<String>) {
        self.set(|health| &mut health.beginning, delayed);
    }
}

impl Reader {
    /// Looks at all partitions, if it is time: for what concerns all of them, or none in particular.
    pub(super) fn look_after_all_if_due(&mut self) -> KafkaResult<()> {
        if !self.health.is_due() {
            return Ok(());
        }
        self.partitions.iter_mut().for_each(Partition::notice_stop);
        self.take_back_fenced()?;
        if self.health.topics.text().is_some() && self.topics_checked.elapsed() > TOPIC_CHECK_INTERVAL {
            self.topics_checked = Instant::now();
            // A pattern need not match anything yet.
            let named = self.topics.iter().filter(|topic| !TopicPattern::is_one(topic));
            self.asker.ask_for_topics(&named.cloned().collect::<Vec<_>>());
        }
        let lag = self.follow_positions();
        let delayed: Vec<&Partition> = self.partitions.iter().filter(|p| p.delayed_by.is_some()).collect();
        let reason = delayed.first().and_then(|first| first.delayed_by.as_deref()).map(|reason| {
            let places = named(delayed.iter().map(|p| (&*p.topic, p.number)));
            format!("cannot begin: {places}: {reason}")
        });
        self.health.note_delayed(reason);
        let stopped = self.partitions.iter().filter(|p| p.phase == Phase::Stopped).count();
        self.health.report(lag, stopped, self.partitions.len());
        Ok(())
    }

    /// Lets positions follow librdkafka's past what is no message. Returns how much is left to read.
    fn follow_positions(&mut self) -> i64 {
        // What librdkafka knows already; no request.
        let positions = self.consumer.position().ok();
        self.partitions.iter_mut().for_each(|partition| partition.position = None);
        for element in positions.iter().flat_map(|list| list.elements()) {
            let partition = self.partitions.get_mut(element.topic(), element.partition());
            if let (Some(partition), Offset::Offset(at)) = (partition, element.offset()) {
                partition.position = Some(at);
                partition.skip_to(at);
            }
        }
        let lag = |partition: &Partition| {
            let lag = partition.lag();
            partition.stream.lag_is(lag.max(0).unsigned_abs());
            lag
        };
        self.partitions.iter().map(lag).sum()
    }
}

//! The thread that reads: polls for ever, and is the only one that assigns, seeks, pauses, commits and drops.

use std::time::{Duration, Instant};

use oncebox_core::source::Intake;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::topic_partition_list::Offset;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::callbacks::{Callbacks, Notice};
use crate::commit::Commits;
use crate::error::Error;
use crate::flow::{self, Pace};
use crate::health::Health;
use crate::partition::{Partitions, Phase};
use crate::record::to_record;

/// The longest the loop sleeps: how soon it sees that it should stop.
const IDLE: Duration = Duration::from_millis(100);
/// How soon it looks again when something is paused or not begun.
const SOON: Duration = Duration::from_millis(5);
/// How long it sleeps instead of polling when all partitions are full.
const MOMENT: Duration = Duration::from_micros(500);
/// The most records taken before the loop looks after everything else.
const ROUND: usize = 1_000;
/// How soon a check that could not be completed is done again.
const RECHECK: Duration = Duration::from_secs(5);
/// How often a topic that cannot be read is asked for.
const TOPICS: Duration = Duration::from_secs(5);

pub(crate) struct Reader {
    pub(crate) consumer: BaseConsumer<Callbacks>,
    pub(crate) intake: Intake,
    pub(crate) partitions: Partitions,
    pub(crate) drain_budget: Duration,
    topics: Vec<String>,
    commits: Commits,
    pub(crate) health: Health,
    recheck: Option<Recheck>,
    topics_checked: Instant,
    /// Whether a message came since the last look.
    heard: bool,
}

/// The partitions must be compared with what the broker has.
#[derive(Debug)]
struct Recheck {
    at: Instant,
    /// The broker says that it lost messages which it had handed out.
    truncated: Option<String>,
}

/// What a reader needs to be told.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) topics: Vec<String>,
    pub(crate) brokers: String,
    pub(crate) drain_budget: Duration,
    pub(crate) commit_interval: Duration,
}

impl Reader {
    pub(crate) fn new(consumer: BaseConsumer<Callbacks>, intake: Intake, plan: Plan) -> Self {
        Self {
            health: Health::new(&intake, &plan.brokers),
            consumer,
            intake,
            partitions: Partitions::default(),
            drain_budget: plan.drain_budget,
            topics: plan.topics,
            commits: Commits::every(plan.commit_interval),
            recheck: None,
            topics_checked: Instant::now(),
            heard: false,
        }
    }

    /// Reads until `stop`.
    pub(crate) fn run(mut self, stop: &CancellationToken) -> Result<(), Error> {
        let topics: Vec<&str> = self.topics.iter().map(String::as_str).collect();
        self.consumer.subscribe(&topics).map_err(|e| Error::Configuration(e.to_string()))?;
        let mut pace = Pace::Wait;
        while !stop.is_cancelled() {
            self.poll(pace)?;
            self.act_on_notices()?;
            self.begin_ready();
            self.recheck_if_due();
            pace = flow::regulate(&self.consumer, &mut self.partitions).map_err(|e| fatal(&e))?;
            self.commits.commit_if_due(&self.consumer, &mut self.partitions);
            self.report_if_due();
        }
        self.give_all_back();
        // Dropping the consumer, here and now on this thread, leaves the group after the commit is through.
        Ok(())
    }

    fn poll(&mut self, pace: Pace) -> Result<(), Error> {
        let mut timeout = match pace {
            Pace::HoldBack => {
                std::thread::sleep(MOMENT);
                return Ok(());
            }
            Pace::LookAgain => SOON,
            Pace::Wait => IDLE,
        };
        for _ in 0..ROUND {
            match self.consumer.poll(timeout) {
                None => break,
                Some(Ok(message)) => {
                    self.heard = true;
                    if deliver(&mut self.partitions, &message) == Delivered::Filled {
                        break;
                    }
                }
                Some(Err(e)) => failed(&e)?,
            }
            timeout = Duration::ZERO;
        }
        Ok(())
    }

    fn act_on_notices(&mut self) -> Result<(), Error> {
        if std::mem::take(&mut self.heard) {
            self.health.saw_broker();
        }
        while let Some(notice) = self.consumer.context().next() {
            match notice {
                Notice::Assigned(partitions) => {
                    self.health.saw_broker();
                    self.assigned(&partitions).map_err(|e| fatal(&e))?;
                }
                Notice::Revoked { partitions, lost } => {
                    self.revoked(&partitions, lost).map_err(|e| fatal(&e))?;
                }
                Notice::Statistics(statistics) => {
                    self.health.take_in(&statistics);
                    self.take_in(&statistics)?;
                }
                Notice::Trouble(RDKafkaErrorCode::LogTruncation, reason) => {
                    self.recheck = Some(Recheck { at: Instant::now(), truncated: Some(reason) });
                }
                Notice::Trouble(
                    RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange,
                    reason,
                ) => {
                    warn!(
                        consumer = self.intake.consumer(),
                        reason, "an offset is out of range; looking which"
                    );
                    self.recheck.get_or_insert(Recheck { at: Instant::now(), truncated: None });
                }
                Notice::Trouble(code, reason) => self.health.trouble(code, &reason),
            }
        }
        Ok(())
    }

    fn recheck_if_due(&mut self) {
        if let Some(due) = self.recheck.take_if(|recheck| recheck.at <= Instant::now())
            && let Err(e) = self.recheck(due.truncated.as_deref())
        {
            warn!(consumer = self.intake.consumer(), error = %e, "cannot compare with the broker; trying again");
            self.recheck = Some(Recheck { at: Instant::now() + RECHECK, ..due });
        }
    }

    fn report_if_due(&mut self) {
        if !self.health.is_due() {
            return;
        }
        if self.health.has_topic_problem() && self.topics_checked.elapsed() > TOPICS {
            self.topics_checked = Instant::now();
            if self.topics.iter().all(|topic| is_there(&self.consumer, topic)) {
                self.health.topics_are_there();
            }
        }
        // Local knowledge of librdkafka, no request.
        let positions = self.consumer.position().ok();
        let position = |topic: &str, number| match positions.as_ref()?.find_partition(topic, number)?.offset()
        {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        };
        let lag: i64 = self.partitions.iter().map(|p| p.lag(position(&p.topic, p.number))).sum();
        let stopped = self.partitions.iter().filter(|p| p.phase == Phase::Stopped).count();
        self.health.lag.set(lag as f64);
        self.health.stopped.set(stopped as f64);
        self.health.report();
    }
}

impl Drop for Reader {
    /// Also on the way of a panic: the streams must end, and dropping the consumer must not wait for an answer to a
    /// rebalance that nobody would give.
    fn drop(&mut self) {
        self.consumer.context().close();
        for partition in self.partitions.take() {
            partition.stream.close();
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Delivered {
    Pushed,
    Dropped,
    /// And now the stream has enough.
    Filled,
}

/// Hands a record to its stream. Records that come before their partition has begun, or after it was given away, are
/// dropped: they will be fetched again, by us after the seek or by the next owner.
fn deliver(partitions: &mut Partitions, message: &BorrowedMessage<'_>) -> Delivered {
    let Some(partition) = partitions.get_mut(message.topic(), message.partition()) else {
        return Delivered::Dropped;
    };
    let started = partition.start.is_some_and(|start| message.offset() >= start);
    if !started || matches!(partition.phase, Phase::Waiting { .. } | Phase::Stopped) {
        return Delivered::Dropped;
    }
    let record = to_record(message, &partition.topic);
    if !partition.stream.push(record) {
        return Delivered::Dropped;
    }
    partition.last_pushed = Some(message.offset());
    if flow::is_filled(partition) { Delivered::Filled } else { Delivered::Pushed }
}

/// Most errors come as a notice as well, with more words; only the fatal ones matter here.
fn failed(error: &KafkaError) -> Result<(), Error> {
    match error {
        KafkaError::MessageConsumptionFatal(_) => Err(fatal(error)),
        other => {
            debug!(error = %other, "poll");
            Ok(())
        }
    }
}

fn fatal(error: &KafkaError) -> Error {
    Error::Fatal(error.to_string())
}

fn is_there(consumer: &BaseConsumer<Callbacks>, topic: &str) -> bool {
    let found = consumer.fetch_metadata(Some(topic), Duration::from_secs(1));
    found.is_ok_and(|found| found.topics().iter().any(|t| t.error().is_none() && !t.partitions().is_empty()))
}

//! The thread that reads: polls for ever, and is the only one that assigns, takes, commits and drops.

use std::sync::Arc;
use std::time::{Duration, Instant};

use oncebox_core::source::Intake;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::topic_partition_list::Offset;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::assignment::fetch_again;
use crate::callbacks::{Callbacks, Notice};
use crate::commit::Commits;
use crate::deliver::Turn;
use crate::error::Error;
use crate::health::Health;
use crate::partition::{Partition, Partitions, Phase};
use crate::quiet::Quiet;
use crate::survey::Survey;

/// The longest the loop sleeps: how soon it sees that it should stop.
const IDLE: Duration = Duration::from_millis(100);
/// How soon it looks whether a partition can begin.
const SOON: Duration = Duration::from_millis(5);
/// How soon it looks whether a full stream has room.
const MOMENT: Duration = Duration::from_millis(1);
/// The most events served before the partitions have their turn.
const EVENTS: usize = 1_000;
/// How often a topic that cannot be read is asked for.
const TOPICS: Duration = Duration::from_secs(5);

pub(crate) struct Reader {
    /// Shared with the queues of the partitions, which must go first.
    pub(crate) consumer: Arc<BaseConsumer<Callbacks>>,
    pub(crate) intake: Intake,
    pub(crate) partitions: Partitions,
    pub(crate) health: Health,
    pub(crate) survey: Survey,
    pub(crate) drain_budget: Duration,
    topics: Vec<String>,
    commits: Commits,
    topics_checked: Instant,
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
    /// To be made on the thread that runs it.
    pub(crate) fn new(
        mut consumer: BaseConsumer<Callbacks>,
        asking: BaseConsumer<Quiet>,
        intake: Intake,
        plan: Plan,
    ) -> Result<Self, Error> {
        let reader = std::thread::current();
        consumer.set_nonempty_callback(move || reader.unpark());
        Ok(Self {
            consumer: Arc::new(consumer),
            survey: Survey::start(asking).map_err(|e| Error::Fatal(e.to_string()))?,
            partitions: Partitions::default(),
            health: Health::new(&intake, &plan.brokers),
            intake,
            drain_budget: plan.drain_budget,
            topics: plan.topics,
            commits: Commits::every(plan.commit_interval),
            topics_checked: Instant::now(),
        })
    }

    /// Reads until `stop`.
    pub(crate) fn run(mut self, stop: &CancellationToken) -> Result<(), Error> {
        let topics: Vec<&str> = self.topics.iter().map(String::as_str).collect();
        self.consumer.subscribe(&topics).map_err(|e| Error::Configuration(e.to_string()))?;
        while !stop.is_cancelled() {
            self.serve_events()?;
            self.begin_ready();
            let turn = self.partitions.iter_mut().map(Partition::deliver).max();
            self.resolve_doubts();
            self.keep_watch()?;
            self.take_back_fenced().map_err(|e| fatal(&e))?;
            self.commits.commit_if_due(&self.consumer, &mut self.partitions);
            self.report_if_due();
            match turn {
                Some(Turn::More) => {}
                Some(Turn::Full) => std::thread::park_timeout(MOMENT),
                Some(Turn::Waiting) => std::thread::park_timeout(SOON),
                // Whatever arrives in a queue wakes us.
                Some(Turn::Empty) | None => std::thread::park_timeout(IDLE),
            }
        }
        self.give_all_back();
        // Dropping the consumer, here and now on this thread, leaves the group after the commit is through.
        Ok(())
    }

    /// Serves the common queue until it is empty: callbacks, and no records, since each partition has its own queue.
    fn serve_events(&mut self) -> Result<(), Error> {
        for _ in 0..EVENTS {
            let served = self.consumer.context().served();
            match self.consumer.poll(Duration::ZERO) {
                Some(Ok(message)) => self.stray(&message).map_err(|e| fatal(&e))?,
                Some(Err(e @ KafkaError::MessageConsumptionFatal(_))) => return Err(fatal(&e)),
                // Other errors were served to the callback, with more words.
                Some(Err(_)) => {}
                // A poll also returns nothing after a callback; only without one the queue is empty.
                None if served == self.consumer.context().served() => return Ok(()),
                None => {}
            }
            while let Some(notice) = self.consumer.context().next() {
                self.act_on(notice)?;
            }
        }
        Ok(())
    }

    fn act_on(&mut self, notice: Notice) -> Result<(), Error> {
        use RDKafkaErrorCode::{AutoOffsetReset, LogTruncation, OffsetOutOfRange};
        match notice {
            Notice::Assigned(partitions) => {
                self.health.saw_broker();
                self.assigned(&partitions).map_err(|e| fatal(&e))?;
            }
            Notice::Revoked { partitions, lost } => self.revoked(&partitions, lost).map_err(|e| fatal(&e))?,
            Notice::Statistics(statistics) => {
                self.health.take_in(&statistics);
                self.take_in(&statistics)?;
            }
            Notice::Trouble(AutoOffsetReset | LogTruncation | OffsetOutOfRange, reason) => {
                warn!(
                    consumer = self.intake.consumer(),
                    reason, "an offset is not there; comparing with the broker"
                );
            }
            Notice::Trouble(code, reason) => self.health.trouble(code, &reason),
        }
        Ok(())
    }

    /// A record in the common queue has left the order of its partition. That should not happen; if it does, the partition
    /// is fetched again from behind its last record.
    fn stray(&self, message: &BorrowedMessage<'_>) -> KafkaResult<()> {
        let (topic, number) = (message.topic(), message.partition());
        if self.partitions.get(topic, number).is_some_and(|p| p.phase == Phase::Flowing) {
            warn!(
                consumer = self.intake.consumer(),
                topic, number, "a record came out of order; fetching anew"
            );
            fetch_again(&self.consumer, &self.partitions, topic, number)?;
        }
        Ok(())
    }

    fn report_if_due(&mut self) {
        if !self.health.is_due() {
            return;
        }
        let heard =
            self.partitions.iter_mut().filter_map(|p| std::mem::take(&mut p.heard).then_some(p)).count();
        if heard > 0 {
            self.health.saw_broker();
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
        for partition in self.partitions.iter() {
            partition.skip_to(position(&partition.topic, partition.number));
        }
        let lag = self.partitions.iter().map(|p| p.lag(position(&p.topic, p.number))).sum();
        let stopped = self.partitions.iter().filter(|p| p.phase == Phase::Stopped).count();
        self.health.report(lag, stopped);
    }
}

impl Drop for Reader {
    /// Also on the way of a panic: the streams must end, the queues must go before the consumer, and dropping the consumer
    /// must not wait for an answer to a rebalance that nobody would give.
    fn drop(&mut self) {
        self.consumer.context().close();
        for partition in self.partitions.take() {
            partition.stream.close();
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

//! The thread that reads. It polls as long as the source runs, and only it assigns, takes records, commits and drops the
//! consumer. [`Reader::run`] is the loop; each of its steps has a file of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use oncebox_core::source::Intake;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::assignment::fetch_again;
use super::callbacks::{Callbacks, Notice};
use super::commit::Commits;
use super::deliver::Turn;
use super::health::Health;
use super::partition::{Partition, Partitions, Phase};
use super::survey::Survey;
use crate::error::Error;
use crate::quiet::Quiet;

/// The longest wait of the loop: how soon it sees that it should stop.
const IDLE_WAIT: Duration = Duration::from_millis(100);
/// The wait before it looks again whether a partition can begin.
const BEGIN_WAIT: Duration = Duration::from_millis(5);
/// The wait before it looks again whether a full stream has room.
const ROOM_WAIT: Duration = Duration::from_millis(1);
/// The most callbacks served before the partitions have their turn.
const MAX_CALLBACKS: usize = 1_000;

pub(super) struct Reader {
    /// Shared with the queues of the partitions, which must go first.
    pub(super) consumer: Arc<BaseConsumer<Callbacks>>,
    pub(super) intake: Intake,
    pub(super) partitions: Partitions,
    pub(super) health: Health,
    pub(super) survey: Survey,
    pub(super) drain_budget: Duration,
    pub(super) topics: Vec<String>,
    pub(super) topics_checked: Instant,
    commits: Commits,
}

/// What a reader needs to be told.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) topics: Vec<String>,
    pub(super) brokers: String,
    pub(super) drain_budget: Duration,
    pub(super) commit_interval: Duration,
}

impl Reader {
    /// To be made on the thread that runs it.
    pub(super) fn new(
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
    pub(super) fn run(mut self, stop: &CancellationToken) -> Result<(), Error> {
        let topics: Vec<&str> = self.topics.iter().map(String::as_str).collect();
        self.consumer.subscribe(&topics).map_err(|e| Error::Configuration(e.to_string()))?;
        while !stop.is_cancelled() {
            self.serve_callbacks()?;
            self.begin_ready();
            let turn = self.partitions.iter_mut().map(Partition::deliver).max();
            self.resolve_doubts();
            self.check_logs()?;
            self.take_back_fenced().map_err(|e| fatal(&e))?;
            self.commits.commit_if_due(&self.consumer, &mut self.partitions);
            self.report_if_due();
            match turn {
                Some(Turn::More) => {}
                Some(Turn::Full) => std::thread::park_timeout(ROOM_WAIT),
                Some(Turn::Waiting) => std::thread::park_timeout(BEGIN_WAIT),
                // Whatever arrives in a queue wakes this thread.
                Some(Turn::Empty) | None => std::thread::park_timeout(IDLE_WAIT),
            }
        }
        self.give_all_back();
        // Dropping the consumer, here and now on this thread, leaves the group after the commit is through.
        Ok(())
    }

    /// Serves the common queue until it is empty: callbacks, and no records, since each partition has its own queue.
    fn serve_callbacks(&mut self) -> Result<(), Error> {
        for _ in 0..MAX_CALLBACKS {
            let served = self.consumer.context().served();
            match self.consumer.poll(Duration::ZERO) {
                Some(Ok(message)) => self.fetch_stray_again(&message).map_err(|e| fatal(&e))?,
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
                self.health.note_contact();
                self.take_over(&partitions).map_err(|e| fatal(&e))?;
            }
            Notice::Revoked { partitions, lost } => {
                self.give_back(&partitions, lost).map_err(|e| fatal(&e))?;
            }
            Notice::Statistics(statistics) => self.take_in_statistics(&statistics)?,
            Notice::Trouble(AutoOffsetReset | LogTruncation | OffsetOutOfRange, reason) => {
                warn!(
                    consumer = self.intake.consumer(),
                    reason, "an offset is not there; comparing with the broker"
                );
            }
            Notice::Trouble(code, reason) => self.health.note_trouble(code, &reason),
        }
        Ok(())
    }

    /// A record in the common queue is out of the order of its partition. That should not happen; if it does, the partition is
    /// fetched again from after its last record.
    fn fetch_stray_again(&self, message: &BorrowedMessage<'_>) -> KafkaResult<()> {
        let (topic, number) = (message.topic(), message.partition());
        if self.partitions.get(topic, number).is_some_and(|p| p.phase == Phase::Flowing) {
            warn!(
                consumer = self.intake.consumer(),
                topic, number, "a record came out of order; fetching the partition again"
            );
            fetch_again(&self.consumer, &self.partitions, topic, number)?;
        }
        Ok(())
    }
}

impl Drop for Reader {
    /// Also after a panic: the streams must end, the queues must go before the consumer, and dropping the consumer
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

//! The thread that reads. It polls as long as the source runs, and only it assigns, takes records, commits and drops the
//! consumer. [`Reader::run`] is the loop; each of its steps has a file of its own.
//!
//! It waits for nothing but its own thread to be woken: what a broker must be asked, others ask ([`super::ask`]). And it looks only
//! at partitions that have something to look at ([`super::bell`], [`super::agenda`]), so that thousands of idle ones do not slow
//! down the one that is busy. What concerns all of them is looked at now and then, the more seldom the more there are.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oncebox_core::source::Intake;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::agenda::Agenda;
use super::ask::{About, Answer, Asker, Clients};
use super::assignment::fetch_again;
use super::bell::Bells;
use super::callbacks::{Callbacks, Notice};
use super::commit::Commits;
use super::deliver::Turn;
use super::gate::TopicGate;
use super::health::Health;
use super::partition::{Partitions, Phase};
use super::recheck::Surveys;
use crate::ends::Place;
use crate::error::Error;

/// The longest wait of the loop: how soon it sees that it should stop.
const IDLE_WAIT: Duration = Duration::from_millis(100);
/// The wait before it looks again whether a full stream has room.
const ROOM_WAIT: Duration = Duration::from_millis(1);
/// How long the end of a client that has failed waits for the group's revoke: there is none without an assignment.
const PARTING: Duration = Duration::from_secs(1);
/// The most callbacks served before the partitions have their turn.
const MAX_CALLBACKS: usize = 1_000;

pub(super) struct Reader {
    /// Shared with the queues of the partitions, which must go first.
    pub(super) consumer: Arc<BaseConsumer<Callbacks>>,
    pub(super) intake: Intake,
    pub(super) partitions: Partitions,
    /// How many partitions were opened so far.
    pub(super) opened: u64,
    pub(super) bells: Arc<Bells>,
    pub(super) agenda: Agenda,
    pub(super) asker: Asker,
    pub(super) surveys: Surveys,
    pub(super) health: Health,
    pub(super) drain_budget: Duration,
    pub(super) topics: Vec<String>,
    pub(super) topics_checked: Instant,
    pub(super) gate: Option<TopicGate>,
    commits: Commits,
}

/// What a reader needs to be told.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) topics: Vec<String>,
    pub(super) brokers: String,
    pub(super) group: String,
    pub(super) drain_budget: Duration,
    pub(super) commit_interval: Duration,
    pub(super) gate: Option<TopicGate>,
}

impl Reader {
    /// To be made on the thread that runs it.
    pub(super) fn new(
        mut consumer: BaseConsumer<Callbacks>,
        clients: Clients,
        intake: Intake,
        plan: Plan,
    ) -> Result<Self, Error> {
        let bells = Bells::of_this_thread();
        let woken = Arc::clone(&bells);
        consumer.set_nonempty_callback(move || woken.wake());
        let asker = Asker::start(clients, Arc::clone(&bells));
        Ok(Self {
            consumer: Arc::new(consumer),
            partitions: Partitions::default(),
            opened: 0,
            bells,
            agenda: Agenda::default(),
            asker: asker.map_err(|e| Error::Fatal(format!("no thread can be started: {e}")))?,
            surveys: Surveys::new(),
            health: Health::new(&intake, &plan.brokers, plan.group),
            intake,
            drain_budget: plan.drain_budget,
            topics: plan.topics,
            commits: Commits::every(plan.commit_interval),
            topics_checked: Instant::now(),
            gate: plan.gate,
        })
    }

    /// Reads until `stop`, and gives back what it has. To be dropped then, on the same thread: that leaves the group, after the commit is
    /// through.
    pub(super) fn run(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        let topics: Vec<&str> = self.topics.iter().map(String::as_str).collect();
        self.consumer.subscribe(&topics).map_err(|e| Error::Configuration(e.to_string()))?;
        while !stop.is_cancelled() {
            self.consumer.context().tokens.hand_to(self.consumer.client());
            #[cfg(test)]
            super::fatal_tests::raise_if_wanted(self.intake.consumer(), self.consumer.client());
            self.serve_callbacks()?;
            self.take_answers()?;
            let turn = self.take_turns();
            self.ask_about_doubts();
            self.survey_if_due();
            self.commits.commit_if_due(&self.consumer, &mut self.partitions);
            self.look_after_all_if_due().map_err(|e| fatal(&e))?;
            match turn {
                Turn::More => {}
                Turn::Full => std::thread::park_timeout(ROOM_WAIT),
                // Whatever rings a bell wakes this thread, and so does an answer.
                Turn::Empty => std::thread::park_timeout(IDLE_WAIT),
            }
        }
        self.give_all_back();
        Ok(())
    }

    /// Gives a turn to everybody who has something, and to a few others. Returns how soon the next round is due.
    fn take_turns(&mut self) -> Turn {
        let mut places: BTreeSet<Place> = std::mem::take(&mut self.agenda.more);
        places.extend(self.bells.take());
        let is_full = |(topic, number): &Place| {
            let partition = self.partitions.get(topic, *number);
            partition.is_some_and(|p| p.phase == Phase::Flowing && !p.stream.has_room())
        };
        let waited = std::mem::take(&mut self.agenda.full);
        let (full, room): (BTreeSet<Place>, BTreeSet<Place>) = waited.into_iter().partition(is_full);
        self.agenda.full = full;
        places.extend(room);
        let unasked = self.agenda.sweep(&self.partitions);
        let unasked: Vec<Place> = unasked.into_iter().filter(|place| !places.contains(place)).collect();
        let asked = places.into_iter().map(|place| (place, true));
        let mut to_begin = Vec::new();
        for (place, has_something) in asked.chain(unasked.into_iter().map(|place| (place, false))) {
            let Some(partition) = self.partitions.get_mut(&place.0, place.1) else { continue };
            partition.bell.quieten();
            partition.notice_stop();
            if partition.is_waiting() {
                if partition.is_new() {
                    to_begin.push(place);
                }
                continue;
            }
            let doubted = partition.doubt.is_some();
            let turn = partition.deliver();
            if partition.doubt.is_some() && !doubted {
                self.note_doubt(place.clone());
            }
            match turn {
                Turn::More => {
                    self.agenda.more.insert(place);
                }
                // Without memory for anything, those that have nothing anyway need not be watched for it.
                Turn::Full if has_something => {
                    self.agenda.full.insert(place);
                }
                Turn::Full | Turn::Empty => {}
            }
        }
        self.ask_to_begin(to_begin);
        match (self.agenda.more.is_empty(), self.agenda.full.is_empty()) {
            (false, _) => Turn::More,
            (true, false) => Turn::Full,
            (true, true) => Turn::Empty,
        }
    }

    /// Acts on what brokers have answered.
    fn take_answers(&mut self) -> Result<(), Error> {
        while let Some(answer) = self.asker.answer()? {
            match answer {
                Answer::Logs { about: About::Begin, seen, .. } => self.begin_with(seen),
                Answer::Logs { about: About::Doubt, seen, .. } => self.resolve_doubts(seen),
                Answer::Logs { about: About::Survey, asked, seen } => self.compare(seen, asked),
                Answer::Topics { readable } => self.health.note_topics(readable),
            }
        }
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
                self.health.note_joined();
                self.take_over(&partitions).map_err(|e| fatal(&e))?;
            }
            Notice::Revoked { partitions, lost } => {
                if lost {
                    self.health.note_lost();
                }
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

    /// With librdkafka 2.12 the end of a client that has a fatal error and an assignment is waited for without an end, and busily. So it
    /// leaves the group, and stays behind, idle. Such errors are rare: the classic protocol has none besides being replaced.
    fn leave_behind(&self) {
        self.consumer.unsubscribe();
        let deadline = Instant::now() + PARTING;
        while !self.consumer.context().has_parted() && Instant::now() < deadline {
            self.consumer.poll(IDLE_WAIT);
        }
        Box::leak(Box::new(Arc::clone(&self.consumer)));
    }

    /// Ends the work on all partitions, without an answer to anybody.
    pub(super) fn let_go(&mut self) {
        for partition in self.partitions.take() {
            partition.stream.close();
        }
    }
}

impl Drop for Reader {
    /// Also after a panic: the streams must end, the queues must go before the consumer, and dropping the consumer
    /// must not wait for an answer to a rebalance that nobody would give.
    fn drop(&mut self) {
        self.consumer.context().close();
        self.let_go();
        // One that was replaced has no assignment any more, and ends as it should.
        let fatal = self.consumer.client().fatal_error();
        if fatal.is_some_and(|(code, _)| code != RDKafkaErrorCode::FencedInstanceId) {
            self.leave_behind();
        }
    }
}

fn fatal(error: &KafkaError) -> Error {
    match error.rdkafka_error_code() {
        Some(RDKafkaErrorCode::FencedInstanceId) => Error::Fenced,
        _ => Error::Fatal(error.to_string()),
    }
}

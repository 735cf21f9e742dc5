//! Asks the brokers about logs: where they begin and end, which ones they are, what the group has committed.
//!
//! Answers may take their time and the reader must poll, so threads and a client of their own ask. One thread sorts the
//! questions by the broker that leads each partition; a partition without a leader is answered at once. Each broker is then asked
//! by a thread that lives as long as the question, and whose answer goes to the reader when it is there. So nobody waits for a
//! broker that does not answer except its own partitions; what is asked about those meanwhile is asked together when it is
//! done. Every question is answered, within a bounded time, with an error if need be.
//!
//! The client reads uncommitted: to one that reads committed a broker names the end of what is committed as the end of the
//! log, and says nothing about messages of transactions that are still open. Those are in the log already, so the partition is
//! not caught up before they are settled. Only who begins at the end needs the other one: it must not begin behind messages that
//! are committed later.

mod desk;
mod look;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;

use oncebox_core::inbox::StartPolicy;
use oncebox_core::source::LogId;
use rdkafka::consumer::BaseConsumer;
use rdkafka::error::KafkaResult;
use tokio::time::Instant;

use super::bell::Bells;
use crate::ends::{Commit, Place};
use crate::error::Error;
use crate::quiet::Quiet;
use crate::settings::Kafka;
use desk::{Desk, Event};

/// How long an answer of one broker may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// What a question is for. What stands still is asked about first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum About {
    /// Where to begin.
    Begin,
    /// Whether the next messages are still there.
    Doubt,
    /// Where the log ends, and whether it is still the same one.
    Survey,
}

/// A partition under one assignment: what was found out about an earlier one is of no use to the next.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Asked {
    pub(super) place: Place,
    pub(super) serial: u64,
}

/// What the broker said about one partition.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// The oldest offset that is still there. Not asked for in a survey.
    pub(super) low: Option<i64>,
    /// One past the newest offset.
    pub(super) high: i64,
    /// What the group has committed. Asked for only where something begins.
    pub(super) committed: Option<Commit>,
    /// Asked for last: whatever was found out before belongs to this log or to an earlier one, never to a later one.
    pub(super) log: Option<LogId>,
}

/// An answer.
pub(super) enum Answer {
    /// About some of the partitions that were asked about.
    Logs {
        about: About,
        /// When it was asked, at the earliest.
        asked: Instant,
        seen: Vec<(Asked, KafkaResult<Seen>)>,
    },
    /// Whether all topics are there and may be read.
    Topics { readable: bool },
}

/// The clients that ask. Made before the thread, so that a configuration that is refused is told.
pub(super) struct Clients {
    asking: Arc<BaseConsumer<Quiet>>,
    /// Reads committed. Only for who begins at the end.
    stable: Option<Arc<BaseConsumer<Quiet>>>,
}

impl Clients {
    pub(super) fn new(kafka: &Kafka, group: &str, start: StartPolicy) -> Result<Self, Error> {
        let client = |isolation: &str| -> Result<Arc<BaseConsumer<Quiet>>, Error> {
            let mut config = kafka.client_config()?;
            config.set("group.id", group).set("isolation.level", isolation);
            config.set("statistics.interval.ms", "0").set("enable.auto.commit", "false");
            // It never joins, so it is not the member of this name.
            config.remove("group.instance.id");
            let created = config.create_with_context(Quiet::of(kafka));
            created.map(Arc::new).map_err(|e| Error::configuration(&e, &kafka.secrets()))
        };
        let stable = (start == StartPolicy::Latest).then(|| client("read_committed")).transpose()?;
        Ok(Self { asking: client("read_uncommitted")?, stable })
    }

    /// The one that asks.
    pub(super) fn asking(&self) -> &BaseConsumer<Quiet> {
        &self.asking
    }
}

/// The reader's side.
pub(super) struct Asker {
    questions: Sender<Event>,
    answers: Receiver<Answer>,
}

impl Asker {
    /// Starts the thread, which ends when this is dropped. Each answer wakes the reader.
    pub(super) fn start(clients: Clients, bells: Arc<Bells>) -> std::io::Result<Self> {
        let (questions, events) = channel();
        let (tell, answers) = channel();
        let desk = Desk::new(clients, questions.clone(), tell, bells);
        std::thread::Builder::new().name("kafka-ask".into()).spawn(move || desk.run(&events))?;
        Ok(Self { questions, answers })
    }

    /// Asks about these partitions. If the thread is gone, [`Asker::answer`] says so.
    pub(super) fn ask(&self, about: About, partitions: Vec<Asked>) {
        if !partitions.is_empty() {
            self.questions.send(Event::Ask(about, partitions)).ok();
        }
    }

    /// Asks whether these topics are there.
    pub(super) fn ask_for_topics(&self, topics: &[String]) {
        self.questions.send(Event::AskForTopics(topics.to_vec())).ok();
    }

    /// The next answer that is there.
    pub(super) fn answer(&self) -> Result<Option<Answer>, Error> {
        match self.answers.try_recv() {
            Ok(answer) => Ok(Some(answer)),
            Err(TryRecvError::Empty) => Ok(None),
            // It panicked. Without answers nothing would begin any more, so the source starts over.
            Err(TryRecvError::Disconnected) => {
                Err(Error::Fatal("the thread that asks about the logs has ended".to_owned()))
            }
        }
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.questions.send(Event::Stop).ok();
    }
}

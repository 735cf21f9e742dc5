//! Asks about the logs while they are read: is each still the same one, and where does it end? `recheck` acts on the answers.
//!
//! The questions are asked by a thread and a client of their own, since an answer may take its time and the reader must
//! poll. The client reads uncommitted: to one that reads committed a broker names the end of what is committed as the end of
//! the log, and says nothing about messages of transactions that are still open. Those are in the log already, so the
//! partition is not caught up before they are settled.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::Thread;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaResult;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::time::Instant;

use crate::error::Error;
use crate::log_ids::{LogIds, log_ids};
use crate::quiet::Quiet;
use crate::settings::Kafka;

/// How often the logs are looked at.
const SURVEY_INTERVAL: Duration = Duration::from_secs(5);
/// The wait after a partition has begun. By then the record that shows whether its log was rewritten has been read, as a
/// rule, and several partitions that begin one after the other are asked for at once.
const FIRST_SURVEY_DELAY: Duration = Duration::from_millis(500);
/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the client's own events are served.
const SERVE_INTERVAL: Duration = Duration::from_secs(1);

/// Topic and partition.
pub(super) type Place = (Arc<str>, i32);

/// What the broker said.
pub(super) struct Answer {
    /// When it was asked, at the earliest.
    pub(super) asked: Instant,
    /// One past the newest offset of each log.
    pub(super) ends: KafkaResult<Vec<(Place, i64)>>,
    /// Asked for after the ends: if a log is still the same, they are its ends.
    pub(super) logs: KafkaResult<LogIds>,
}

/// The reader's side.
pub(super) struct Survey {
    questions: Sender<Vec<Place>>,
    answers: Receiver<Answer>,
    waiting: bool,
    due: Instant,
}

impl Survey {
    /// The client that asks. Made before the thread, so that a configuration that is refused is told.
    pub(super) fn client(kafka: &Kafka) -> Result<BaseConsumer<Quiet>, Error> {
        let secrets = kafka.secrets();
        let mut config = kafka.client_config()?;
        config.set("isolation.level", "read_uncommitted").set("statistics.interval.ms", "0");
        let created = config.create_with_context(Quiet(secrets.clone()));
        created.map_err(|e| Error::configuration(&e, &secrets))
    }

    /// Starts the thread, which ends when this is dropped. Each answer wakes the calling thread.
    pub(super) fn start(client: BaseConsumer<Quiet>) -> std::io::Result<Self> {
        let (questions, to_ask) = channel();
        let (tell, answers) = channel();
        let reader = std::thread::current();
        std::thread::Builder::new()
            .name("kafka-survey".into())
            .spawn(move || ask_all(&client, &to_ask, &tell, &reader))?;
        Ok(Self { questions, answers, waiting: false, due: Instant::now() + SURVEY_INTERVAL })
    }

    /// To be called when a partition has begun.
    pub(super) fn ask_soon(&mut self) {
        self.due = self.due.min(Instant::now() + FIRST_SURVEY_DELAY);
    }

    /// Asks about these places, if it is time and the last answer is there.
    pub(super) fn ask_if_due(&mut self, places: impl FnOnce() -> Vec<Place>) {
        if self.waiting || Instant::now() < self.due {
            return;
        }
        self.due = Instant::now() + SURVEY_INTERVAL;
        let places = places();
        self.waiting = !places.is_empty() && self.questions.send(places).is_ok();
    }

    /// The answer to the last question, once.
    pub(super) fn answer(&mut self) -> Result<Option<Answer>, Error> {
        match self.answers.try_recv() {
            Ok(answer) => {
                self.waiting = false;
                Ok(Some(answer))
            }
            Err(TryRecvError::Empty) => Ok(None),
            // It panicked. Without answers nothing would ever be caught up again, so the source starts over.
            Err(TryRecvError::Disconnected) => {
                Err(Error::Fatal("the thread that asks about the logs has ended".to_owned()))
            }
        }
    }
}

fn ask_all(
    client: &BaseConsumer<Quiet>,
    to_ask: &Receiver<Vec<Place>>,
    tell: &Sender<Answer>,
    reader: &Thread,
) {
    loop {
        match to_ask.recv_timeout(SERVE_INTERVAL) {
            Ok(places) => {
                let asked = Instant::now();
                let (ends, logs) = (ends(client, places.iter()), logs(client, &places));
                if tell.send(Answer { asked, ends, logs }).is_err() {
                    return;
                }
                reader.unpark();
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        // Errors and log lines, which nobody else takes. There are no messages.
        client.poll(Duration::from_millis(1));
    }
}

/// Where these logs end, with one request to each broker.
fn ends<'a>(
    client: &BaseConsumer<Quiet>,
    places: impl Iterator<Item = &'a Place>,
) -> KafkaResult<Vec<(Place, i64)>> {
    let mut list = TopicPartitionList::new();
    for (topic, partition) in places {
        // A time is expected here, and this is the one that stands for the end.
        list.add_partition_offset(topic, *partition, Offset::End)?;
    }
    let answer = client.offsets_for_times(list, ANSWER_TIMEOUT)?;
    let elements = answer.elements();
    let end = |offset| if let Offset::Offset(end) = offset { Some(end) } else { None };
    let told = elements.iter().filter(|e| e.error().is_ok());
    Ok(told.filter_map(|e| Some(((e.topic().into(), e.partition()), end(e.offset())?))).collect())
}

fn logs(client: &BaseConsumer<Quiet>, places: &[Place]) -> KafkaResult<LogIds> {
    let topics: BTreeSet<&str> = places.iter().map(|(topic, _)| &**topic).collect();
    log_ids(client.client(), &topics.into_iter().collect::<Vec<_>>(), ANSWER_TIMEOUT)
}

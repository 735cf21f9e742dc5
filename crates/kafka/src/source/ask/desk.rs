//! The thread that sorts questions by the broker that has the answer, and sets a thread to each.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use oncebox_kafka_ffi::{Topics, describe_topics};
use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tokio::time::Instant;

use super::look::look;
use super::{ANSWER_TIMEOUT, About, Answer, Asked, Clients};
use crate::ends::{ByLeader, by_leader};
use crate::source::bell::Bells;

/// How often the clients' own events are served.
const SERVE_INTERVAL: Duration = Duration::from_secs(1);

/// What the thread hears.
pub(super) enum Event {
    Ask(About, Vec<Asked>),
    AskForTopics(Vec<String>),
    /// This broker has been asked and has answered, or not.
    Free(i32),
    Stop,
}

/// The brokers, and what each is to be asked.
pub(super) struct Desk {
    clients: Arc<Clients>,
    events: Sender<Event>,
    answers: Sender<Answer>,
    bells: Arc<Bells>,
    /// Bounded by the partitions there are: who is asked about already is not asked about once more.
    waiting: BTreeMap<i32, BTreeMap<About, BTreeSet<Asked>>>,
    busy: BTreeSet<i32>,
}

impl Desk {
    pub(super) fn new(
        clients: Clients,
        events: Sender<Event>,
        answers: Sender<Answer>,
        bells: Arc<Bells>,
    ) -> Self {
        let clients = Arc::new(clients);
        Self { clients, events, answers, bells, waiting: BTreeMap::new(), busy: BTreeSet::new() }
    }

    pub(super) fn run(mut self, events: &Receiver<Event>) {
        loop {
            let event = events.recv_timeout(SERVE_INTERVAL);
            // Before the questions: without a token nobody answers.
            self.serve();
            match event {
                Ok(Event::Ask(about, partitions)) => self.sort(about, partitions),
                Ok(Event::AskForTopics(topics)) => self.look_for(&topics),
                Ok(Event::Free(broker)) => {
                    self.busy.remove(&broker);
                }
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.set_to_work();
        }
    }

    /// Errors and log lines, which nobody else takes, and tokens to sign in with. There are no messages.
    fn serve(&self) {
        let clients = [Some(&self.clients.asking), self.clients.stable.as_ref()];
        for client in clients.into_iter().flatten() {
            client.context().tokens.hand_to(client.client());
            client.poll(Duration::ZERO);
        }
    }

    fn sort(&mut self, about: About, partitions: Vec<Asked>) {
        let asked = Instant::now();
        let all = partitions.clone();
        match by_leader(&self.clients.asking, partitions, |one| &one.place, ANSWER_TIMEOUT) {
            Ok(ByLeader { led, not_led }) => {
                for (broker, partitions) in led {
                    self.waiting.entry(broker).or_default().entry(about).or_default().extend(partitions);
                }
                let seen = not_led.into_iter().map(|(one, reason)| (one, Err(reason))).collect();
                self.tell(Answer::Logs { about, asked, seen });
            }
            Err(e) => {
                let seen = all.into_iter().map(|one| (one, Err(e.clone()))).collect();
                self.tell(Answer::Logs { about, asked, seen });
            }
        }
    }

    fn look_for(&self, topics: &[String]) {
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        let found = describe_topics(self.clients.asking.client(), &names, ANSWER_TIMEOUT);
        let is_there = |name: &&str, found: &Topics| {
            found.get(*name).is_some_and(|topic| topic.as_ref().is_ok_and(|topic| !topic.leaders.is_empty()))
        };
        let readable = found.is_ok_and(|found| names.iter().all(|name| is_there(name, &found)));
        self.tell(Answer::Topics { readable });
    }

    /// Each broker that is free is asked the most urgent that waits for it.
    fn set_to_work(&mut self) {
        let free: Vec<i32> =
            self.waiting.keys().copied().filter(|broker| !self.busy.contains(broker)).collect();
        for broker in free {
            let Some(waiting) = self.waiting.get_mut(&broker) else { continue };
            let next = waiting.pop_first();
            if waiting.is_empty() {
                self.waiting.remove(&broker);
            }
            if let Some((about, partitions)) = next {
                self.ask(broker, about, partitions.into_iter().collect());
            }
        }
    }

    fn ask(&mut self, broker: i32, about: About, partitions: Vec<Asked>) {
        let (clients, events) = (Arc::clone(&self.clients), self.events.clone());
        let (answers, bells) = (self.answers.clone(), Arc::clone(&self.bells));
        let all = partitions.clone();
        let asking = move || {
            let asked = Instant::now();
            let all = partitions.clone();
            let seen = catch_unwind(AssertUnwindSafe(|| look(&clients, about, partitions)));
            let seen = seen.unwrap_or_else(|_| failed(all, RDKafkaErrorCode::Fail));
            answers.send(Answer::Logs { about, asked, seen }).ok();
            bells.wake();
            events.send(Event::Free(broker)).ok();
        };
        match std::thread::Builder::new().name("kafka-look".into()).spawn(asking) {
            Ok(_) => {
                self.busy.insert(broker);
            }
            // No thread is to be had now: it is tried again as if the broker had not answered.
            Err(_) => {
                let seen = failed(all, RDKafkaErrorCode::CriticalSystemResource);
                self.tell(Answer::Logs { about, asked: Instant::now(), seen });
            }
        }
    }

    fn tell(&self, answer: Answer) {
        // Nobody listens any more when the reader has ended; the stop is on its way then.
        self.answers.send(answer).ok();
        self.bells.wake();
    }
}

type SeenOf = Vec<(Asked, rdkafka::error::KafkaResult<super::Seen>)>;

fn failed(partitions: Vec<Asked>, code: RDKafkaErrorCode) -> SeenOf {
    partitions.into_iter().map(|one| (one, Err(KafkaError::OffsetFetch(code)))).collect()
}

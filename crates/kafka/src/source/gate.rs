//! Topics that somebody wants to look at before their first message is applied.
//!
//! A pattern brings topics that nobody has seen before. The reader asks here before it begins with a partition, and goes on with the
//! others meanwhile; whoever holds the other end answers when it knows.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Says of each topic whether it may be read. Clones share what was said. Given to [`KafkaSource::gate`](super::KafkaSource::gate).
///
/// ```
/// use oncebox::kafka::{Kafka, TopicGate};
///
/// let gate = TopicGate::default();
/// gate.open("orders.east");
/// let source = Kafka::brokers("localhost:9092").source(["^orders[.].*"]).gate(gate.clone());
/// // Elsewhere: `gate.asked().await`, look at the topics, and say `gate.open(…)` or
/// gate.refuse("orders.test", "test data does not belong into the books");
/// assert!(gate.is_open("orders.east") && !gate.is_open("orders.test"));
/// ```
#[derive(Clone, Default)]
pub struct TopicGate(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// By topic. One that is missing was not decided yet.
    answers: Mutex<HashMap<String, Answer>>,
    asked: Notify,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    Open,
    Refused(String),
}

/// What the reader hears.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Passage {
    Open,
    /// Nobody has said anything yet.
    Undecided,
    Refused(String),
}

impl TopicGate {
    /// The topic may be read. False if it was open before.
    pub fn open(&self, topic: &str) -> bool {
        self.say(topic, Answer::Open)
    }

    /// The topic is not read, for this reason, which `/healthz` tells, until it is opened. What has begun already goes on. False
    /// if it was refused before, for the same reason.
    pub fn refuse(&self, topic: &str, reason: impl Into<String>) -> bool {
        self.say(topic, Answer::Refused(reason.into()))
    }

    /// Whether the topic may be read.
    #[must_use]
    pub fn is_open(&self, topic: &str) -> bool {
        self.answers().get(topic) == Some(&Answer::Open)
    }

    /// Waits until somebody wants to read a topic that is not decided.
    pub async fn asked(&self) {
        self.0.asked.notified().await;
    }

    pub(super) fn passage(&self, topic: &str) -> Passage {
        match self.answers().get(topic) {
            Some(Answer::Open) => Passage::Open,
            Some(Answer::Refused(reason)) => Passage::Refused(reason.clone()),
            None => {
                self.0.asked.notify_one();
                Passage::Undecided
            }
        }
    }

    fn say(&self, topic: &str, answer: Answer) -> bool {
        let before = self.answers().insert(topic.to_owned(), answer.clone());
        before != Some(answer)
    }

    fn answers(&self) -> MutexGuard<'_, HashMap<String, Answer>> {
        self.0.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for TopicGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TopicGate").field(&*self.answers()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_is_asked_says_when_it_knows() {
        let gate = TopicGate::default();
        let other_end = gate.clone();
        assert_eq!(gate.passage("new"), Passage::Undecided);
        other_end.asked().await;
        assert!(other_end.refuse("new", "kept too long"), "news");
        assert!(!other_end.refuse("new", "kept too long"), "said before");
        assert_eq!(gate.passage("new"), Passage::Refused("kept too long".to_owned()));
        assert!(other_end.open("new"));
        assert_eq!(gate.passage("new"), Passage::Open);
        assert_eq!(gate.passage("another"), Passage::Undecided);
    }
}

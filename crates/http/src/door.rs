//! Between the requests, which come at any time, and the source, which runs from time to time: the stream that is open now, and
//! who waits for an answer.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use oncebox_core::error::Error;
use oncebox_core::message::{Message, Record};
use oncebox_core::names::{MessageId, Tenant};
use oncebox_core::outbox::LocalQueue;
use oncebox_core::source::{Answer, Answered, Intake, LogId, Stream};
use oncebox_core::store::OutboxAdmin;
use tokio::sync::oneshot;

/// Open while the source runs.
#[derive(Debug, Default)]
pub(crate) struct Door(RwLock<Entry>);

/// What a request finds.
#[derive(Debug, Clone, Default)]
pub(crate) enum Entry {
    Open(Arc<Run>),
    /// Somebody has paused the inbox.
    Paused,
    #[default]
    Closed,
}

/// One run of the source.
#[derive(Debug)]
pub(crate) struct Run {
    /// What the inbox wants, and how it names it.
    pub(crate) intake: Intake,
    pub(crate) way: Way,
}

/// Where messages go from here.
#[derive(Debug)]
pub(crate) enum Way {
    /// To the inbox; who sent them waits until they are applied.
    Apply(Counter),
    /// Into the database; who sent them waits until they are stored.
    Accept(Arc<dyn Accept>),
}

/// Stores messages.
pub(crate) trait Accept: fmt::Debug + Send + Sync {
    /// All of them or none.
    fn accept(&self, records: Vec<Record>) -> Accepting<'_>;
}

pub(crate) type Accepting<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>;

impl<S: OutboxAdmin> Accept for LocalQueue<S> {
    fn accept(&self, records: Vec<Record>) -> Accepting<'_> {
        Box::pin(self.put(records))
    }
}

/// Where messages are handed over.
#[derive(Debug)]
pub(crate) struct Counter {
    pub(crate) stream: Stream,
    /// Who counts the deliveries: this run and no other.
    pub(crate) log: LogId,
    pub(crate) waiting: Arc<Waiting>,
}

/// Who waits for an answer.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: i64,
    by_delivery: HashMap<i64, Waiter>,
    /// How often each message is under way.
    under_way: HashMap<Name, usize>,
}

#[derive(Debug)]
struct Waiter {
    name: Name,
    answered: oneshot::Sender<Answer>,
}

/// What makes two messages of a consumer the same.
type Name = (Tenant, MessageId);

/// A message that was handed over.
#[derive(Debug)]
pub(crate) struct Handed {
    /// The same message was under way already.
    pub(crate) is_copy: bool,
    /// What becomes of it; an error if the stream takes nothing more, or ends without an answer.
    pub(crate) answer: oneshot::Receiver<Answer>,
}

/// The stream has as much as it can take.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// Closes the door, whatever ends the run or the pause.
#[derive(Debug)]
pub(crate) struct Opened<'d>(&'d Door);

impl Door {
    pub(crate) fn open(&self, run: Run) -> Opened<'_> {
        self.set(Entry::Open(Arc::new(run)));
        Opened(self)
    }

    /// Closed, and who comes is told why.
    pub(crate) fn pause(&self) -> Opened<'_> {
        self.set(Entry::Paused);
        Opened(self)
    }

    /// What there is now.
    pub(crate) fn entry(&self) -> Entry {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, entry: Entry) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = entry;
    }
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        self.0.set(Entry::Closed);
    }
}

impl Counter {
    /// Hands over the messages of a request, all at once or none.
    pub(crate) fn hand_over(&self, messages: &[Message]) -> Result<Vec<Handed>, Full> {
        // Held until all are handed over: numbers ascend, and no answer comes before its waiter is there.
        let mut state = self.waiting.lock();
        if self.stream.is_full() {
            return Err(Full);
        }
        Ok(messages.iter().map(|message| self.hand_over_one(&mut state, message)).collect())
    }

    fn hand_over_one(&self, state: &mut State, message: &Message) -> Handed {
        state.last += 1;
        let delivery = state.last;
        let mut record: Record = message.record().clone();
        record.offset = delivery;
        record.log = Some(self.log.clone());
        let (answered, answer) = oneshot::channel();
        let is_copy = state.wait(delivery, message, answered);
        if !self.stream.push(record) {
            // It closes; who waits learns that nobody will answer.
            state.forget(delivery);
        }
        Handed { is_copy, answer }
    }
}

impl Waiting {
    /// Tells those who wait. Never blocks for long: the inbox calls it.
    pub(crate) fn answered(&self, answers: &[Answered]) {
        let mut state = self.lock();
        for Answered { delivery, answer, .. } in answers {
            if let Some(waiter) = state.forget(*delivery) {
                // Who has gone away needs no answer.
                waiter.answered.send(answer.clone()).ok();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Says whether the same message was under way already.
    fn wait(&mut self, delivery: i64, message: &Message, answered: oneshot::Sender<Answer>) -> bool {
        let name = (message.tenant().clone(), message.id().clone());
        let before = self.under_way.entry(name.clone()).or_default();
        *before += 1;
        let is_copy = *before > 1;
        self.by_delivery.insert(delivery, Waiter { name, answered });
        is_copy
    }

    fn forget(&mut self, delivery: i64) -> Option<Waiter> {
        let waiter = self.by_delivery.remove(&delivery)?;
        if let Some(left) = self.under_way.get_mut(&waiter.name) {
            *left -= 1;
            if *left == 0 {
                self.under_way.remove(&waiter.name);
            }
        }
        Some(waiter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: &str, tenant: &str) -> Message {
        Message::new(MessageId::new(id).unwrap(), Tenant::new(tenant).unwrap(), Record::at("/in", 0, 0))
    }

    #[test]
    fn a_copy_is_one_while_another_is_under_way() {
        let mut state = State::default();
        let wait = |state: &mut State, delivery, id, tenant| {
            state.wait(delivery, &message(id, tenant), oneshot::channel().0)
        };
        assert!(!wait(&mut state, 1, "a", ""));
        assert!(wait(&mut state, 2, "a", ""));
        assert!(!wait(&mut state, 3, "a", "acme"), "another tenant has other messages");
        assert!(!wait(&mut state, 4, "b", ""));
        assert!(state.forget(1).is_some() && state.forget(1).is_none());
        assert!(wait(&mut state, 5, "a", ""), "the second is still under way");
        for delivery in 2..=5 {
            assert!(state.forget(delivery).is_some());
        }
        assert!(!wait(&mut state, 6, "a", ""));
        state.forget(6);
        assert!(state.under_way.is_empty() && state.by_delivery.is_empty(), "nothing stays behind");
    }
}

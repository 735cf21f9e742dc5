//! A sink that takes notes, and fails when it is told to.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use oncebox_core::backoff::Backoff;
use oncebox_core::error::{BoxError, Result, reject, retry};
use oncebox_core::inbox::RetryPolicy;
use oncebox_core::outbox::{ByEvent, Deliver, Delivery, OutgoingEvent, Sink};

use crate::event::{Events, TestEvent};
use crate::observe::SHORT_WAIT;

/// A sink for tests: it takes a note of every event, and fails or rejects events when it is told to. Clones share their notes.
///
/// ```
/// use oncebox_testkit::FakeSink;
///
/// let sink = FakeSink::new();
/// sink.fail_next(2);
/// // Relay::new(store).sink(sink.clone()) …
/// sink.delivered().assert_none();
/// ```
#[derive(Debug, Clone)]
pub struct FakeSink {
    notes: Notes,
    sink: ByEvent<Notes>,
}

#[derive(Debug, Clone, Default)]
struct Notes(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    delivered: Vec<TestEvent>,
    /// What the next deliveries are answered with, before all others succeed.
    answers: VecDeque<Answer>,
}

#[derive(Debug)]
enum Answer {
    Fail,
    Reject(String),
}

impl Default for FakeSink {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeSink {
    /// Takes everything, in order, and has failed deliveries tried again at once for as long as it takes.
    #[must_use]
    pub fn new() -> Self {
        let notes = Notes::default();
        Self { sink: ByEvent::new(notes.clone()).at_once(1).retry(tries(u32::MAX)), notes }
    }

    /// Has an event parked after so many deliveries that failed.
    #[must_use]
    pub fn attempts(self, attempts: u32) -> Self {
        Self { sink: self.sink.retry(tries(attempts)), notes: self.notes }
    }

    /// The next deliveries fail, so many of them, and are tried again.
    pub fn fail_next(&self, deliveries: usize) {
        self.notes.lock().answers.extend((0..deliveries).map(|_| Answer::Fail));
    }

    /// The next delivery is rejected: the event is parked.
    pub fn reject_next(&self, reason: impl Into<String>) {
        self.notes.lock().answers.push_back(Answer::Reject(reason.into()));
    }

    /// What it has taken so far, in order, with the headers that the events travel with. A copy is there twice.
    #[must_use]
    pub fn delivered(&self) -> Events {
        Events(self.notes.lock().delivered.clone())
    }
}

fn tries(attempts: u32) -> RetryPolicy {
    RetryPolicy { attempts, backoff: Backoff::new(SHORT_WAIT, SHORT_WAIT) }
}

impl Notes {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deliver for Notes {
    async fn deliver(&self, event: &OutgoingEvent) -> Result {
        let mut inner = self.lock();
        match inner.answers.pop_front() {
            None => {
                inner.delivered.push(TestEvent::outgoing(event));
                Ok(())
            }
            Some(Answer::Fail) => Err(retry("the sink was told to fail")),
            Some(Answer::Reject(reason)) => Err(reject(reason)),
        }
    }
}

impl Sink for FakeSink {
    async fn deliver(&self, events: &[OutgoingEvent]) -> Result<Vec<Delivery>, BoxError> {
        Sink::deliver(&self.sink, events).await
    }

    fn concurrency(&self) -> usize {
        self.sink.concurrency()
    }

    fn batch_events(&self) -> usize {
        self.sink.batch_events()
    }

    fn retry(&self) -> RetryPolicy {
        Sink::retry(&self.sink)
    }
}

//! Between the relay, which delivers at any time, and the source, which runs from time to time: the stream that is open now, and
//! who waits for an answer.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use uuid::Uuid;

use crate::message::Record;
use crate::source::{Answer, Answered, LogId, Stream};

/// Where events become deliveries.
#[derive(Debug, Default)]
pub(super) struct Desk(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    open: Option<Open>,
    /// The inbox is paused, and so it is closed.
    paused: bool,
    /// How many deliveries there were, in all runs.
    last: i64,
    by_delivery: HashMap<i64, Uuid>,
    /// Who waits for the answer to an event that is in the stream. A relay that comes with it again takes the place of the one
    /// before.
    under_way: HashMap<Uuid, oneshot::Sender<Answer>>,
}

/// One run of the source.
#[derive(Debug)]
struct Open {
    stream: Stream,
    /// Who counts the deliveries: this run and no other.
    log: LogId,
}

/// What becomes of an event that is brought to the desk.
#[derive(Debug)]
pub(super) enum Brought {
    /// It is in the stream. An error instead of an answer: the stream has ended without one.
    UnderWay(oneshot::Receiver<Answer>),
    /// The stream has as much as it can take.
    Full,
    /// The inbox does not run.
    Closed,
}

impl Desk {
    pub(super) fn open(&self, stream: Stream) {
        self.lock().open = Some(Open { stream, log: LogId::new(Uuid::now_v7().to_string()) });
    }

    /// Nothing is taken from now on. What is in the stream is still answered.
    pub(super) fn close(&self) {
        self.lock().open = None;
    }

    /// The inbox is paused, or not any more.
    pub(super) fn pause(&self, paused: bool) {
        self.lock().paused = paused;
    }

    pub(super) fn is_paused(&self) -> bool {
        self.lock().paused
    }

    /// Who waits still is told that there will be no answer.
    pub(super) fn clear(&self) {
        let mut state = self.lock();
        state.by_delivery.clear();
        state.under_way.clear();
    }

    /// Hands the event over, unless it is in the stream already.
    pub(super) fn bring(&self, id: Uuid, record: impl FnOnce(&str) -> Record) -> Brought {
        // Held until it is handed over: numbers ascend, and no answer comes before who waits for it.
        let mut state = self.lock();
        let (answered, answer) = oneshot::channel();
        if let Some(waiter) = state.under_way.get_mut(&id) {
            *waiter = answered;
            return Brought::UnderWay(answer);
        }
        let state = &mut *state;
        let Some(Open { stream, log }) = &state.open else { return Brought::Closed };
        if stream.is_full() {
            return Brought::Full;
        }
        state.last += 1;
        let mut record = record(stream.topic());
        (record.offset, record.log) = (state.last, Some(log.clone()));
        if !stream.push(record) {
            return Brought::Closed;
        }
        state.by_delivery.insert(state.last, id);
        state.under_way.insert(id, answered);
        Brought::UnderWay(answer)
    }

    /// Tells those who wait. Never blocks for long: the inbox calls it.
    pub(super) fn answered(&self, answers: &[Answered]) {
        let mut state = self.lock();
        for Answered { delivery, answer, .. } in answers {
            let waiter = state.by_delivery.remove(delivery).and_then(|id| state.under_way.remove(&id));
            if let Some(waiter) = waiter {
                // A relay that has gone away comes with the event again, or another does: then it is a copy.
                waiter.send(answer.clone()).ok();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Messages are stored: those that come while others are being written share the next transaction.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::LocalQueue;
use crate::error::{Error, describe};
use crate::message::Record;
use crate::outbox::event::Event;
use crate::outbox::wake;
use crate::store::{ErrorClass, OutboxAdmin, StoreError, StoreResult};

/// How much goes into one transaction; one caller's messages always fit.
const MOST_BYTES: usize = 1024 * 1024;
const MOST_PUTS: usize = 500;

/// What one caller wants written.
pub(super) struct Put {
    events: Vec<Event>,
    bytes: usize,
    written: oneshot::Sender<Result<(), NotWritten>>,
}

/// An error that several callers hear of.
#[derive(Clone)]
struct NotWritten {
    class: ErrorClass,
    why: Arc<str>,
}

impl<S: OutboxAdmin> LocalQueue<S> {
    /// Stores messages, all of them or none. They are in the database when this returns.
    ///
    /// # Errors
    /// Nothing is stored, or, if the connection broke while it was committed, nobody knows: put them again. Copies are
    /// skipped when they are applied.
    pub async fn put(&self, records: Vec<Record>) -> Result<(), Error> {
        let bytes = records.iter().map(Record::byte_len).sum();
        let events: Vec<Event> =
            records.into_iter().map(|record| Event::carrying(&self.inner.topic, record)).collect();
        // What cannot be written is nobody else's trouble.
        for event in &events {
            event.row()?;
        }
        let (written, is_written) = oneshot::channel();
        self.waiting().push_back(Put { events, bytes, written });
        let turn = Arc::clone(&self.inner.writing).lock_owned().await;
        let puts = take(&mut self.waiting());
        // Empty if whoever wrote before has taken ours along.
        if !puts.is_empty() {
            // On a task of its own: a caller who goes away takes nobody else's messages with him.
            let queue = self.clone();
            tokio::spawn(async move {
                queue.write(puts).await;
                drop(turn);
            });
        }
        let ended = NotWritten { class: ErrorClass::Away, why: "the process ends".into() };
        let written = is_written.await.unwrap_or(Err(ended));
        written.map_err(|e| StoreError::new(e.class, "storing messages", &*e.why).into())
    }

    async fn write(&self, puts: Vec<Put>) {
        let mut events = Vec::new();
        let callers: Vec<_> = puts
            .into_iter()
            .map(|put| {
                events.extend(put.events);
                put.written
            })
            .collect();
        let written = self.store_all(&events).await;
        if written.is_ok() {
            wake::events_committed();
        }
        let written = written.map_err(|e| NotWritten { class: e.class, why: describe(&e).into() });
        for caller in callers {
            // Who has gone away sends them again; they are copies then.
            caller.send(written.clone()).ok();
        }
    }

    async fn store_all(&self, events: &[Event]) -> StoreResult<()> {
        let store = &self.inner.store;
        let mut txn = store.claim(&self.inner.consumer, &[]).await?.txn;
        let rows: Vec<_> = events.iter().filter_map(|event| event.row().ok()).collect();
        match S::write_events(&mut txn, &rows).await {
            Ok(()) => store.commit(txn, None).await,
            Err(error) => {
                store.rollback(txn).await;
                Err(error)
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Put>> {
        self.inner.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The next transaction's share. What is left is taken by its callers, who wait for their turn.
fn take(waiting: &mut VecDeque<Put>) -> Vec<Put> {
    let (mut bytes, mut puts) = (0, Vec::new());
    while let Some(next) = waiting.front()
        && (puts.is_empty() || (puts.len() < MOST_PUTS && bytes + next.bytes <= MOST_BYTES))
    {
        bytes += next.bytes;
        puts.extend(waiting.pop_front());
    }
    puts
}

//! An inbox whose broker is the test.

use std::collections::HashMap;
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::Duration;

use oncebox_core::backoff::Backoff;
use oncebox_core::inbox::{Identity, Inbox, Worker};
use oncebox_core::monitor::Monitor;
use oncebox_core::names::ConsumerName;
use oncebox_core::source::Intake;
use oncebox_core::store::{InboxStore, OutboxAdmin};
use tokio::sync::Mutex;

use crate::crash::{CrashPoint, Crashable, Process};
use crate::delivered::{Delivered, Redelivered};
use crate::event::{Events, events};
use crate::log::Log;
use crate::message::TestMessage;
use crate::observe::{Notes, Observed, SHORT_WAIT};

/// An inbox with its handler, run by the real engine on a real store. The test delivers the messages.
///
/// Each delivery is the life of a process: it takes over the partition, applies what is delivered, acknowledges it and stops
/// in good order, unless the test lets it crash. A message that stays unsettled comes again with the next delivery, as it
/// would from a broker.
///
/// Times to wait are written down and not waited for: backoff, and what a handler asks for with `retry_after`. All other
/// settings are those of the worker. The database needs the tables of oncebox and of the handler, and should belong to the
/// test alone: a message that another test has applied under the same consumer is a duplicate.
pub struct TestInbox<S> {
    pub(crate) store: S,
    pub(crate) consumer: ConsumerName,
    pub(crate) identity: Identity,
    pub(crate) intake: Intake,
    pub(crate) monitor: Monitor,
    pub(crate) process: Process,
    pub(crate) notes: Notes,
    pub(crate) patience: Duration,
    /// By topic. Locked while a delivery is under way: one process has the partition at a time.
    pub(crate) logs: Mutex<HashMap<Arc<str>, Log>>,
}

impl<S> Debug for TestInbox<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestInbox").field("consumer", &self.consumer).finish_non_exhaustive()
    }
}

impl<S: InboxStore> TestInbox<S> {
    /// Takes the worker that the service runs. To be called inside of a Tokio runtime, whose clock is not paused: a database
    /// does not wait for it.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub fn new(worker: Worker<S>) -> Self {
        let (store, consumer) = (worker.store().clone(), worker.consumer().clone());
        let mut settings = worker.settings().clone();
        settings.retry.backoff = Backoff::new(SHORT_WAIT, SHORT_WAIT);
        let identity = settings.identity.clone();
        let (process, notes, monitor) = (Process::default(), Notes::default(), Monitor::default());
        let crashable = Crashable { store: store.clone(), process: process.clone() };
        let inbox = match Inbox::new(consumer.as_str(), crashable) {
            Ok(inbox) => inbox.settings(settings).monitor(monitor.clone()),
            Err(e) => panic!("{e}"),
        };
        let intake = inbox.apply(Observed { worker, notes: notes.clone() }).intake();
        Self {
            store,
            consumer,
            identity,
            intake,
            monitor,
            process,
            notes,
            patience: Duration::from_secs(10),
            logs: Mutex::default(),
        }
    }

    /// How long a delivery may take before the test fails. Default: ten seconds.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Delivers a message and waits until it is settled. Again with the same message, it is a copy: a producer has published
    /// it twice.
    ///
    /// # Panics
    /// If the message is neither settled in time nor stands still.
    pub async fn deliver(&self, message: &TestMessage) -> Delivered {
        last_of(self.run(message.topic_name(), &[message], None).await)
    }

    /// Delivers messages of one topic at once: one batch, and one transaction, as far as the settings allow.
    ///
    /// # Panics
    /// If they are of several topics; otherwise as [`TestInbox::deliver`].
    pub async fn deliver_all<'m>(
        &self,
        messages: impl IntoIterator<Item = &'m TestMessage>,
    ) -> Vec<Delivered> {
        let messages: Vec<&TestMessage> = messages.into_iter().collect();
        let Some(first) = messages.first() else { return Vec::new() };
        let topic = first.topic_name();
        assert!(messages.iter().all(|message| message.topic_name() == topic), "messages of several topics");
        let mut delivered = self.run(topic, &messages, None).await;
        delivered.split_off(delivered.len() - messages.len())
    }

    /// Delivers a message, and then a copy of it.
    ///
    /// # Panics
    /// As [`TestInbox::deliver`].
    pub async fn deliver_twice(&self, message: &TestMessage) -> Redelivered {
        Redelivered { first: self.deliver(message).await, second: self.deliver(message).await }
    }

    /// The process dies after the handler has run and before the commit; the next process gets the message again.
    ///
    /// # Panics
    /// As [`TestInbox::deliver`].
    pub async fn crash_before_commit(&self, message: &TestMessage) -> Redelivered {
        self.crash(message, CrashPoint::BeforeCommit).await
    }

    /// The process dies after the commit and before it can acknowledge the message; the next process gets the message again.
    ///
    /// # Panics
    /// As [`TestInbox::deliver`].
    pub async fn crash_after_commit(&self, message: &TestMessage) -> Redelivered {
        self.crash(message, CrashPoint::AfterCommit).await
    }

    async fn crash(&self, message: &TestMessage, point: CrashPoint) -> Redelivered {
        let first = last_of(self.run(message.topic_name(), &[message], Some(point)).await);
        Redelivered { first, second: self.deliver_again(message).await }
    }

    /// The next process gets what is not acknowledged.
    async fn deliver_again(&self, message: &TestMessage) -> Delivered {
        last_of(self.run(message.topic_name(), &[], None).await)
    }

    /// The promise, for one message and whatever it changes: `measure` reads the effect, such as a row or a count.
    ///
    /// The message is delivered through a crash before the commit, which must change nothing; a crash after the commit, which
    /// must change it; once more to the process after that, and as a copy, which must change nothing again. A handler that
    /// works outside of its transaction does not pass.
    ///
    /// # Panics
    /// If the effect is not there once, with what was measured when.
    pub async fn assert_changes_once<T: PartialEq + Debug>(
        &self,
        message: &TestMessage,
        measure: impl AsyncFn() -> T,
    ) {
        let before = measure().await;
        let topic = message.topic_name();
        let lost = last_of(self.run(topic, &[message], Some(CrashPoint::BeforeCommit)).await);
        assert!(lost.was_to_apply(), "the handler was to succeed, so that its commit gets lost\n{lost}");
        let left_behind = measure().await;
        assert!(
            left_behind == before,
            "a transaction that did not commit has left something behind: {before:?} before, {left_behind:?} after\n{lost}"
        );
        let unheard = last_of(self.run(topic, &[], Some(CrashPoint::AfterCommit)).await);
        assert!(unheard.has_applied(), "expected: applied\n{unheard}");
        let after = measure().await;
        assert!(after != before, "the message has changed nothing: still {before:?}\n{unheard}");
        for copy in [self.deliver_again(message).await, self.deliver(message).await] {
            copy.assert_duplicate();
            let again = measure().await;
            assert!(
                again == after,
                "a copy has changed something: {after:?} before, {again:?} after\n{copy}"
            );
        }
    }
}

impl<S: OutboxAdmin> TestInbox<S> {
    /// The events that the handler has written into the outbox and committed, in their order. What a relay has published is
    /// gone from there.
    ///
    /// # Panics
    /// If the store cannot be read.
    pub async fn emitted(&self) -> Events {
        events(&self.store).await.of_consumer(self.consumer.as_str())
    }
}

/// What became of the newest message.
fn last_of(delivered: Vec<Delivered>) -> Delivered {
    match delivered.into_iter().next_back() {
        Some(delivered) => delivered,
        None => panic!("nothing was delivered"),
    }
}

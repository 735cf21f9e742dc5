//! One partition between its source and its lanes: who owns it, where it begins, and whether it still goes on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::deliveries::Deliveries;
use super::progress::PartitionProgress;
use super::queue::Queues;
use super::settings::Settings;
use crate::monitor::lock;
use crate::names::ConsumerName;
use crate::source::{Answer, Answered, GivenBack, OnAnswer, OpenStream, Start, Why};
use crate::store::{Ownership, PositionKey, Progress};

/// What the source, the lanes and the owner's tasks of a partition share.
pub(crate) struct Partition {
    pub(crate) key: PositionKey,
    pub(crate) queues: Queues,
    pub(crate) progress: PartitionProgress,
    /// Of a queue, which has no position: what is not answered yet.
    pub(crate) deliveries: Option<Deliveries>,
    /// Set once the position is acquired.
    pub(crate) owner: OnceLock<Ownership>,
    /// Set by the source once it knows where to begin.
    pub(crate) start: OnceLock<Start>,
    pub(crate) start_known: Notify,
    /// The source wants no more.
    pub(crate) closing: CancellationToken,
    stopped: OnceLock<String>,
    fenced: AtomicBool,
    attempts_kept: AtomicBool,
    begins_anew: AtomicBool,
    /// There may be something to write down although no message is settled.
    note_wanted: Notify,
    /// Whether a copy must have the payload of the first.
    pub(crate) compares_payloads: bool,
    /// Hears what became of each message.
    on_answer: Option<OnAnswer>,
    closed: Mutex<bool>,
    closed_signal: Condvar,
}

impl Partition {
    pub(crate) fn new(consumer: ConsumerName, open: OpenStream, settings: &Settings) -> Self {
        Self {
            key: PositionKey { consumer, topic: open.topic, partition: open.partition },
            queues: Queues::new(settings.lanes, settings.batch),
            progress: PartitionProgress::new(settings.clock),
            deliveries: (!open.positioned).then(|| Deliveries::new(settings.clock)),
            owner: OnceLock::new(),
            start: OnceLock::new(),
            start_known: Notify::new(),
            closing: CancellationToken::new(),
            stopped: OnceLock::new(),
            fenced: AtomicBool::new(false),
            attempts_kept: AtomicBool::new(false),
            begins_anew: AtomicBool::new(false),
            note_wanted: Notify::new(),
            compares_payloads: open.compares_payloads,
            on_answer: open.on_answer,
            closed: Mutex::new(false),
            closed_signal: Condvar::new(),
        }
    }

    /// Tells the source what became of these messages.
    pub(crate) fn answer(&self, answers: &[Answered]) {
        if let Some(deliveries) = &self.deliveries {
            deliveries.answered(answers);
        }
        if let Some(on_answer) = &self.on_answer {
            on_answer(answers);
        }
    }

    /// What a queue has delivered and nobody will settle any more is given back.
    pub(crate) fn give_back_the_rest(&self) {
        let open = self.deliveries.as_ref().map(Deliveries::take_open).unwrap_or_default();
        let given_back = GivenBack::new(Why::Closing, self.stopped().unwrap_or("the stream closes"));
        let rest: Vec<Answered> = open
            .into_iter()
            .map(|delivery| Answered { delivery, answer: Answer::GivenBack(given_back.clone()) })
            .collect();
        if let Some(on_answer) = self.on_answer.as_ref().filter(|_| !rest.is_empty()) {
            on_answer(&rest);
        }
    }

    /// The partition stands still, for this reason. The first one counts.
    pub(crate) fn stop(&self, reason: String) {
        if self.stopped.set(reason).is_ok() {
            self.queues.end();
            self.start_known.notify_one();
            self.note_wanted.notify_one();
        }
    }

    pub(crate) fn stopped(&self) -> Option<&str> {
        self.stopped.get().map(String::as_str)
    }

    /// The source wants no more.
    pub(crate) fn close(&self) {
        // First: whoever sees that it closes must find no new work.
        self.queues.end();
        self.closing.cancel();
    }

    /// What is known and not written down yet, if it is worth a write.
    pub(crate) fn unwritten_progress(&self) -> Option<Progress<'static>> {
        self.progress.unwritten(self.owner.get(), self.start_offset())
    }

    pub(crate) fn start_offset(&self) -> Option<i64> {
        self.start.get().map(|start| start.offset)
    }

    /// Asks for a look at what there is to write down.
    pub(crate) fn want_note(&self) {
        self.note_wanted.notify_one();
    }

    /// Waits until there may be something to write down although no message is settled. `None` once no new work may begin.
    pub(crate) async fn next_note(&self) -> Option<()> {
        tokio::select! {
            biased;
            () = self.closing.cancelled() => {}
            () = self.note_wanted.notified() => {}
        }
        (!self.queues.has_ended()).then_some(())
    }

    /// Another process owns the position.
    pub(crate) fn mark_fenced(&self) {
        self.fenced.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_fenced(&self) -> bool {
        self.fenced.load(Ordering::Relaxed)
    }

    /// The partition stands still because of a message that ends the process: what was written down about it must outlive
    /// this owner, or the next one would run it again.
    pub(crate) fn keep_attempts(&self) {
        self.attempts_kept.store(true, Ordering::Relaxed);
    }

    /// The source has to open the partition anew, although nobody else has taken it.
    pub(crate) fn begin_anew(&self) {
        self.begins_anew.store(true, Ordering::Relaxed);
        self.mark_fenced();
    }

    /// Whether its owner may give the position back as if nothing had happened.
    pub(crate) fn ends_in_good_order(&self) -> bool {
        let ours = !self.is_fenced() || self.begins_anew.load(Ordering::Relaxed);
        ours && !self.attempts_kept.load(Ordering::Relaxed)
    }

    /// The lanes have ended.
    pub(crate) fn mark_closed(&self) {
        *lock(&self.closed) = true;
        self.closed_signal.notify_all();
    }

    /// Waits until the lanes have ended. False if they have not within `budget`.
    pub(crate) fn wait_closed(&self, budget: Duration) -> bool {
        let closed = lock(&self.closed);
        let (closed, _) = self
            .closed_signal
            .wait_timeout_while(closed, budget, |closed| !*closed)
            .unwrap_or_else(PoisonError::into_inner);
        *closed
    }
}

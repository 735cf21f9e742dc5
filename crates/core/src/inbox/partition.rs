//! One partition between its source and its lanes: who owns it, where it begins, and whether it still goes on.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::cause::Unsure;
use super::deliveries::Deliveries;
use super::progress::PartitionProgress;
use super::queue::Queues;
use super::settings::Settings;
use crate::backoff::Backoff;
use crate::monitor::{Monitor, PartitionLag, lock};
use crate::names::ConsumerName;
use crate::source::{Answer, Answered, GivenBack, OnAnswer, OnNews, OpenStream, Start, Why};
use crate::store::{Ownership, PositionKey, Progress};

/// What the source, the lanes and the owner's tasks of a partition share.
pub(crate) struct Partition {
    pub(crate) key: PositionKey,
    pub(crate) queues: Queues,
    pub(crate) progress: PartitionProgress,
    /// How far it is behind.
    pub(crate) lag: Arc<PartitionLag>,
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
    /// Whether a queue says what it has delivered before.
    pub(super) says_redelivered: bool,
    /// Which messages may be settled although nobody was told.
    pub(super) unsure: Unsure,
    /// What spans call its broker.
    pub(crate) system: &'static str,
    /// How long a message that failed waits before it is given back. `None`: its sender waits for the answer.
    give_back_after: Option<Backoff>,
    /// How often something was given back since the last message was settled.
    given_back_in_a_row: AtomicU32,
    /// Hears what became of each message.
    on_answer: Option<OnAnswer>,
    /// Hears that the position is acquired, or that the partition stands still.
    on_news: Option<OnNews>,
    closed: Mutex<bool>,
    closed_signal: Condvar,
}

impl Partition {
    pub(crate) fn new(
        consumer: ConsumerName,
        open: OpenStream,
        settings: &Settings,
        monitor: &Monitor,
    ) -> Self {
        let lag = monitor.open_partition(consumer.as_str(), &open.topic, open.partition, settings.clock);
        Self {
            lag,
            key: PositionKey { consumer, topic: open.topic, partition: open.partition },
            queues: Queues::new(settings.lanes, settings.batch, &settings.memory)
                .noting_arrivals(settings.telemetry.is_on()),
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
            says_redelivered: open.says_redelivered,
            unsure: Unsure::default(),
            system: open.system,
            give_back_after: open.give_back_after,
            given_back_in_a_row: AtomicU32::new(0),
            on_answer: open.on_answer,
            on_news: open.on_news,
            closed: Mutex::new(false),
            closed_signal: Condvar::new(),
        }
    }

    /// The inbox owns the position. False if it did before.
    pub(crate) fn acquired(&self, owner: Ownership) -> bool {
        let is_first = self.owner.set(owner).is_ok();
        self.tell_news();
        is_first
    }

    fn tell_news(&self) {
        if let Some(on_news) = &self.on_news {
            on_news();
        }
    }

    /// Tells the source what became of these messages.
    pub(crate) fn answer(&self, answers: &[Answered]) {
        if let Some(deliveries) = &self.deliveries {
            deliveries.answered(answers);
            self.lag.settled_below(deliveries.first_open());
        }
        if answers.iter().any(|one| !matches!(one.answer, Answer::GivenBack(_))) {
            self.given_back_in_a_row.store(0, Ordering::Relaxed);
        }
        if let Some(on_answer) = &self.on_answer {
            on_answer(answers);
        }
    }

    /// Whether somebody waits for the answer, and tries again by himself.
    pub(crate) fn sender_waits(&self) -> bool {
        self.give_back_after.is_none()
    }

    /// These messages go back to their source: at once, or after a while if it would deliver them again at once. They count as not
    /// answered until then.
    pub(crate) fn give_back(self: &Arc<Self>, deliveries: impl Iterator<Item = i64>, given_back: &GivenBack) {
        let answer = |delivery| Answered::new(delivery, Answer::GivenBack(given_back.clone()));
        let answers: Vec<Answered> = deliveries.map(answer).collect();
        let Some(backoff) = self.give_back_after else { return self.answer(&answers) };
        let in_a_row = self.given_back_in_a_row.fetch_add(1, Ordering::Relaxed);
        let (partition, wait) = (Arc::clone(self), backoff.delay(in_a_row.saturating_add(1)));
        tokio::spawn(async move {
            tokio::select! {
                biased;
                // Then all that is not answered is given back.
                () = partition.queues.ended() => {}
                () = tokio::time::sleep(wait) => partition.answer_those_open(answers),
            }
        });
    }

    /// Whoever closes the stream may have given some of them back meanwhile.
    fn answer_those_open(&self, mut answers: Vec<Answered>) {
        if let Some(deliveries) = &self.deliveries {
            deliveries.answered_if_open(&mut answers);
        }
        if let Some(on_answer) = self.on_answer.as_ref().filter(|_| !answers.is_empty()) {
            on_answer(&answers);
        }
    }

    /// What a queue has delivered and nobody will settle any more is given back.
    pub(crate) fn give_back_the_rest(&self) {
        let open = self.deliveries.as_ref().map(Deliveries::take_open).unwrap_or_default();
        let given_back = GivenBack::new(Why::Closing, self.stopped().unwrap_or("the stream closes"));
        let rest: Vec<Answered> = open
            .into_iter()
            .map(|delivery| Answered::new(delivery, Answer::GivenBack(given_back.clone())))
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
            self.tell_news();
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

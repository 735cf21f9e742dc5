//! A queue in memory, as a broker keeps it: what is delivered and not acknowledged comes back when its consumer is gone.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oncebox_core::error::BoxError;
use oncebox_core::message::Record;
use oncebox_core::source::{
    Answer, Answered, CancellationToken, Instant, Intake, LogId, OpenStream, Source, Stream,
};
use tokio::sync::Notify;

use crate::partition::eventually;

/// How often a look is taken whether a full stream has room again.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A queue in memory. Cheap to clone; every clone is the same queue.
///
/// Given to a worker as its source, or driven by [`MemoryQueue::consume`]. Several consumers share its messages.
#[derive(Clone)]
pub struct MemoryQueue {
    name: Arc<str>,
    prefetch: usize,
    compares_payloads: bool,
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

#[derive(Default)]
struct State {
    ready: VecDeque<Queued>,
    channels: HashMap<u64, Channel>,
    next_channel: u64,
    answers: Vec<(u64, Answer)>,
    published: u64,
}

struct Queued {
    /// The how-manieth message it is.
    number: u64,
    record: Record,
    deliveries: u32,
}

#[derive(Default)]
struct Channel {
    unacknowledged: BTreeMap<i64, Queued>,
    next_tag: i64,
}

impl fmt::Debug for MemoryQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryQueue").field("name", &self.name).finish_non_exhaustive()
    }
}

impl MemoryQueue {
    /// An empty queue.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        let (state, changed) = (Arc::default(), Arc::default());
        Self { name: name.into(), prefetch: 500, compares_payloads: false, state, changed }
    }

    /// How many messages a consumer may have without acknowledging them. Default: 500.
    #[must_use]
    pub fn prefetch(mut self, messages: usize) -> Self {
        self.prefetch = messages.max(1);
        self
    }

    /// A message with the id of another and another payload is told from a copy: see [`OpenStream::compare_payloads`].
    #[must_use]
    pub fn compare_payloads(mut self) -> Self {
        self.compares_payloads = true;
        self
    }

    /// Sends a message. Its place is the queue's business. Returns its number, counted from 0.
    pub fn publish(&self, record: Record) -> u64 {
        let mut state = self.state();
        let number = state.published;
        state.published += 1;
        state.ready.push_back(Queued { number, record, deliveries: 0 });
        drop(state);
        self.changed.notify_waiters();
        number
    }

    /// How many messages are not acknowledged yet.
    #[must_use]
    pub fn len(&self) -> usize {
        let state = self.state();
        state.ready.len() + state.channels.values().map(|channel| channel.unacknowledged.len()).sum::<usize>()
    }

    /// Whether all messages are acknowledged.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until all messages are acknowledged.
    ///
    /// # Panics
    /// If that does not happen.
    pub async fn drained(&self) {
        eventually(&format!("{} is drained", self.name), || self.is_empty()).await;
    }

    /// What consumers have answered, by the number of the message, in the order of the answers.
    #[must_use]
    pub fn answers(&self) -> Vec<(u64, Answer)> {
        self.state().answers.clone()
    }

    /// A consumer that is driven by the test.
    #[must_use]
    pub fn consume(&self, intake: &Intake) -> MemoryConsumer {
        let mut state = self.state();
        let channel = state.next_channel;
        state.next_channel += 1;
        state.channels.insert(channel, Channel::default());
        drop(state);
        let queue = self.clone();
        let on_answer = move |answered: &[Answered]| queue.answered(channel, answered);
        let open = OpenStream::queue(Arc::clone(&self.name)).says_redelivered().on_answer(on_answer);
        let stream = intake.open(if self.compares_payloads { open.compare_payloads() } else { open });
        let (gone, queue) = (CancellationToken::new(), self.clone());
        let delivering = queue.clone().deliver(channel, stream.clone(), gone.clone());
        tokio::spawn(delivering);
        MemoryConsumer { queue, channel, stream, gone }
    }

    /// Delivers everything that waits to a consumer that dies of it: it all comes back.
    pub fn deliver_in_vain(&self) {
        for queued in &mut self.state().ready {
            queued.deliveries += 1;
        }
    }

    async fn deliver(self, channel: u64, stream: Stream, gone: CancellationToken) {
        loop {
            let changed = self.changed.notified();
            while !gone.is_cancelled()
                && !stream.is_full()
                && let Some(record) = self.next(channel)
            {
                stream.push(record);
            }
            if self.state().ready.is_empty() {
                stream.nothing_waits(Instant::now());
            }
            tokio::select! {
                () = gone.cancelled() => return,
                () = changed => {}
                // A stream that was full says nothing when it has room again.
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// The next message for this channel, if it may have one more.
    fn next(&self, channel: u64) -> Option<Record> {
        let mut state = self.state();
        let State { ready, channels, .. } = &mut *state;
        let open = channels.get_mut(&channel).filter(|open| open.unacknowledged.len() < self.prefetch)?;
        let mut queued = ready.pop_front()?;
        queued.deliveries += 1;
        open.next_tag += 1;
        let tag = open.next_tag;
        let mut record = queued.record.clone();
        (record.topic, record.partition, record.offset) = (Arc::clone(&self.name), 0, tag);
        record.log = Some(LogId::new(format!("channel-{channel}")));
        record.redelivered = queued.deliveries > 1;
        open.unacknowledged.insert(tag, queued);
        Some(record)
    }

    fn answered(&self, channel: u64, answered: &[Answered]) {
        let mut state = self.state();
        let State { ready, channels, answers, .. } = &mut *state;
        // Whoever is gone acknowledges nothing any more.
        let Some(open) = channels.get_mut(&channel) else { return };
        for Answered { delivery, answer, .. } in answered {
            let Some(queued) = open.unacknowledged.remove(delivery) else { continue };
            answers.push((queued.number, answer.clone()));
            if matches!(answer, Answer::GivenBack(_)) {
                ready.push_front(queued);
            }
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// The connection of this channel is gone: what it has not acknowledged comes back, in its old order.
    fn cut(&self, channel: u64) {
        let mut state = self.state();
        if let Some(gone) = state.channels.remove(&channel) {
            for queued in gone.unacknowledged.into_values().rev() {
                state.ready.push_front(queued);
            }
        }
        drop(state);
        self.changed.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source for MemoryQueue {
    async fn run(&self, intake: Intake, stop: CancellationToken) -> Result<(), BoxError> {
        let consumer = self.consume(&intake);
        stop.cancelled().await;
        consumer.close().await;
        Ok(())
    }
}

/// Somebody who reads a [`MemoryQueue`].
#[derive(Debug)]
pub struct MemoryConsumer {
    queue: MemoryQueue,
    channel: u64,
    /// The engine's side of it.
    pub stream: Stream,
    gone: CancellationToken,
}

impl MemoryConsumer {
    /// The connection breaks: nothing more is delivered or acknowledged, and what was not acknowledged goes to others.
    pub fn cut(&self) {
        self.gone.cancel();
        self.queue.cut(self.channel);
    }

    /// Stops in good order, after a last look at the queue, and one more: only that says that the acknowledgements before the
    /// first have arrived.
    pub async fn close(&self) {
        self.gone.cancel();
        for _ in 0..2 {
            if self.queue.state().ready.is_empty() {
                self.stream.nothing_waits(Instant::now());
            }
        }
        self.stream.finish().await;
        self.queue.cut(self.channel);
    }
}

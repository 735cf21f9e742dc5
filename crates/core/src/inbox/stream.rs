//! One partition between its source and its lanes: bounded queues, what is done, and why it stands still.

use std::collections::VecDeque;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::ends::LogEnds;
use super::log::{LogId, LogMark};
use super::policy::BatchBounds;
use super::start::{Start, StartError};
use super::tracker::OffsetTracker;
use crate::clock::Clock;
use crate::message::Record;
use crate::mistake::mistaken;
use crate::monitor::lock;
use crate::names::ConsumerName;
use crate::source::{OnSettled, OpenStream, Settled};
use crate::store::{Ownership, PositionKey, Progress};

/// The most offsets that may be received and not yet passed. With several lanes one slow message would otherwise let the
/// others run ahead without end.
const MAX_OPEN_OFFSETS: usize = 50_000;

/// While nothing happens in a partition, it says so in the database this often: retention follows it.
const CAUGHT_UP_EVERY_MS: i64 = 60_000;

/// A partition's position, once the engine owns it. See [`Ownership`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Acquired {
    /// The next offset to apply, if the partition was ever started.
    pub next_offset: Option<i64>,
    /// The log it belongs to, if that is known.
    pub log: Option<LogId>,
    /// The last settled record that was written down.
    pub mark: Option<LogMark>,
    /// Where an operator has moved it to.
    pub floor: Option<i64>,
}

/// One partition, as its source sees it. Cheap to clone.
#[derive(Clone)]
pub struct Stream(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) key: PositionKey,
    pub(crate) positioned: bool,
    pub(crate) lanes: Vec<LaneQueue>,
    pub(crate) owner: OnceLock<Ownership>,
    pub(crate) start: OnceLock<Start>,
    pub(crate) start_known: Notify,
    clock: Clock,
    ends: Mutex<LogEnds>,
    /// Transactions of this owner that are known to be committed.
    commits: AtomicI64,
    /// The latest `caught_up_ms` that the database was told.
    told_caught_up_ms: AtomicI64,
    pub(crate) closing: CancellationToken,
    on_settled: Option<OnSettled>,
    tracker: Mutex<OffsetTracker>,
    queued_messages: AtomicUsize,
    queued_bytes: AtomicUsize,
    capacity: BatchBounds,
    stopped: OnceLock<String>,
    fenced: AtomicBool,
    attempts_kept: AtomicBool,
    begins_anew: AtomicBool,
    skip: AtomicI64,
    /// There may be something to write down although no message is settled.
    note_wanted: Notify,
    closed: Mutex<bool>,
    closed_signal: Condvar,
}

/// What waits for one lane.
#[derive(Debug, Default)]
pub(crate) struct LaneQueue {
    records: Mutex<VecDeque<Record>>,
    arrived: Notify,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0.key.topic, self.0.key.partition)
    }
}

impl Stream {
    pub(crate) fn new(
        consumer: ConsumerName,
        open: OpenStream,
        lanes: usize,
        batch: BatchBounds,
        clock: Clock,
    ) -> Self {
        Self(Arc::new(Shared {
            key: PositionKey { consumer, topic: open.topic, partition: open.partition },
            positioned: open.positioned,
            lanes: (0..lanes.max(1)).map(|_| LaneQueue::default()).collect(),
            owner: OnceLock::new(),
            start: OnceLock::new(),
            start_known: Notify::new(),
            clock,
            ends: Mutex::new(LogEnds::default()),
            commits: AtomicI64::new(0),
            told_caught_up_ms: AtomicI64::new(i64::MIN),
            closing: CancellationToken::new(),
            on_settled: open.on_settled,
            tracker: Mutex::new(OffsetTracker::new()),
            queued_messages: AtomicUsize::new(0),
            queued_bytes: AtomicUsize::new(0),
            // One batch in flight, one waiting for each lane, and one on its way.
            capacity: BatchBounds {
                messages: batch.messages.saturating_mul(lanes.max(1) + 1),
                bytes: batch.bytes.saturating_mul(2),
            },
            stopped: OnceLock::new(),
            fenced: AtomicBool::new(false),
            attempts_kept: AtomicBool::new(false),
            begins_anew: AtomicBool::new(false),
            skip: AtomicI64::new(-1),
            note_wanted: Notify::new(),
            closed: Mutex::new(false),
            closed_signal: Condvar::new(),
        }))
    }

    /// The topic.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.0.key.topic
    }

    /// The partition.
    #[must_use]
    pub fn partition(&self) -> i32 {
        self.0.key.partition
    }

    /// What the position belongs to.
    #[must_use]
    pub fn key(&self) -> &PositionKey {
        &self.0.key
    }

    /// The position, as soon as the engine owns it. The source then decides where to begin (see
    /// [`start_at`](crate::start_at)), moves there and calls [`Stream::start`].
    #[must_use]
    pub fn acquired(&self) -> Option<Acquired> {
        self.0.owner.get().map(|owner| Acquired {
            next_offset: owner.next_offset,
            log: owner.log.clone(),
            mark: owner.mark,
            floor: owner.floor,
        })
    }

    /// Reading begins there. The source pushes what it reads from `read_from` on.
    pub fn start(&self, start: Start) {
        if self.0.start.set(start).is_ok() {
            self.0.start_known.notify_one();
        }
    }

    /// The log ended there, one past its newest offset, when it was asked for at this time or later. To be told now and then
    /// while the partition is read; retention goes by it.
    pub fn log_ends_at(&self, end: i64, asked: Instant) {
        let shared = &self.0;
        lock(&shared.ends).saw(end, shared.clock.ms_at(asked));
        if shared.caught_up_to_tell().is_some() {
            shared.note_wanted.notify_one();
        }
    }

    /// Hands over a record; never waits. Returns false, and drops it, if the stream is closing or stopped, if the offset
    /// was received before, or if it lies below the start.
    pub fn push(&self, record: Record) -> bool {
        let shared = &self.0;
        if shared.is_ending() || self.lies_below_the_start(&record) {
            return false;
        }
        if !lock(&shared.tracker).received(record.offset) {
            return false;
        }
        shared.queued_messages.fetch_add(1, Ordering::Relaxed);
        shared.queued_bytes.fetch_add(record.byte_len(), Ordering::Relaxed);
        let lane = &shared.lanes[lane_of(&record, shared.lanes.len())];
        lock(&lane.records).push_back(record);
        lane.arrived.notify_one();
        true
    }

    /// Looks at the records that are read only to recognise the log.
    fn lies_below_the_start(&self, record: &Record) -> bool {
        let Some(start) = self.0.start.get() else { return false };
        if let Some(mark) = start.mark.filter(|mark| mark.offset == record.offset)
            && LogMark::of(record) != mark
        {
            let next = self.0.owner.get().and_then(|owner| owner.next_offset).unwrap_or(start.offset);
            self.stop(StartError::Rewritten { offset: mark.offset, next }.explain(&self.0.key));
            return true;
        }
        record.offset < start.offset
    }

    /// Whether the source should pause this partition.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.queued_above(1)
    }

    /// Whether the source may resume a paused partition. Lower than full, so that it does not flap.
    #[must_use]
    pub fn has_room(&self) -> bool {
        !self.queued_above(2)
    }

    fn queued_above(&self, fraction: usize) -> bool {
        let shared = &self.0;
        shared.queued_messages.load(Ordering::Relaxed) >= shared.capacity.messages / fraction
            || shared.queued_bytes.load(Ordering::Relaxed) >= shared.capacity.bytes / fraction
            || lock(&shared.tracker).open_len() >= MAX_OPEN_OFFSETS / fraction
    }

    /// Everything below this offset is settled and committed in the database: what may be acknowledged. `None` before the
    /// first settled message.
    #[must_use]
    pub fn settled(&self) -> Option<i64> {
        let tracker = lock(&self.0.tracker);
        if self.0.positioned { tracker.written() } else { tracker.next() }
    }

    /// Everything below this offset is settled, although the last message was before it: what lies between are markers of
    /// transactions or compacted messages. The position follows in the background, so that retention may remove them without
    /// leaving what looks like a gap.
    pub fn skip_to(&self, offset: i64) {
        if self.0.skip.fetch_max(offset, Ordering::Relaxed) < offset {
            self.0.note_wanted.notify_one();
        }
    }

    /// Why the partition stands still, if it does. It stays so until it is opened anew.
    #[must_use]
    pub fn stopped(&self) -> Option<&str> {
        self.0.stopped.get().map(String::as_str)
    }

    /// Whether it stands still because another process has acquired the position. If the source still has the partition
    /// after a while, it should close this stream and open a new one: an acquisition that was late may have come from a
    /// process that no longer has it.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.0.fenced.load(Ordering::Relaxed)
    }

    /// Stops the partition for a reason that an operator must see.
    pub fn stop(&self, reason: impl Into<String>) {
        self.0.stop(reason.into());
    }

    /// No new work is begun; the transaction in flight ends as it may. What still waits in the queue is dropped, since it
    /// will be delivered again.
    pub fn close(&self) {
        self.0.closing.cancel();
    }

    /// Waits until the lanes have ended after [`Stream::close`]. False if they have not within `budget`. Blocks: for the
    /// source's own thread.
    #[must_use]
    pub fn wait_closed(&self, budget: Duration) -> bool {
        let closed = lock(&self.0.closed);
        let (closed, _) = self
            .0
            .closed_signal
            .wait_timeout_while(closed, budget, |closed| !*closed)
            .unwrap_or_else(PoisonError::into_inner);
        *closed
    }
}

impl Shared {
    pub(crate) fn stop(&self, reason: String) {
        if self.stopped.set(reason).is_ok() {
            for lane in &self.lanes {
                lane.arrived.notify_one();
            }
            self.start_known.notify_one();
            self.note_wanted.notify_one();
        }
    }

    /// How far the partition is once these offsets (ascending) are done too; `mark` is of the highest of them.
    pub(crate) fn progress_if_done(&self, offsets: &[i64], mark: Option<LogMark>) -> Progress<'static> {
        let tracker = lock(&self.tracker);
        let next_offset = tracker.next_if_done(offsets);
        // Other lanes may have settled what comes behind these.
        let marks = [tracker.mark_below(next_offset), mark].into_iter().flatten();
        let mark = marks.filter(|mark| Some(mark.offset) < next_offset).max_by_key(|mark| mark.offset);
        let at_least = self.known_committed(&tracker);
        drop(tracker);
        Progress {
            next_offset,
            at_least,
            commits: self.known_commits(),
            log: None,
            mark,
            caught_up_ms: self.caught_up_if(next_offset),
        }
    }

    /// The database has committed these offsets (ascending), and this progress with them.
    pub(crate) fn settle(&self, offsets: &[i64], mark: Option<LogMark>, progress: &Progress<'_>) {
        let mut tracker = lock(&self.tracker);
        tracker.done(offsets, mark);
        tracker.wrote(progress.next_offset);
        let next = tracker.next();
        drop(tracker);
        if let Some(next) = next {
            lock(&self.ends).reached(next);
        }
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.told(progress);
    }

    /// Tells the source what became of the messages of a commit, if it wants to know.
    pub(crate) fn answer(&self, settled: impl FnOnce() -> Vec<Settled>) {
        if let Some(on_settled) = &self.on_settled {
            on_settled(&settled());
        }
    }

    /// Waits until there may be something to write down although no message is settled. `None` once no new work may begin.
    pub(crate) async fn next_note(&self) -> Option<()> {
        tokio::select! {
            biased;
            () = self.closing.cancelled() => {}
            () = self.note_wanted.notified() => {}
        }
        (!self.is_ending()).then_some(())
    }

    /// What is known and not written down yet, if it is worth a write: a skip, a position that lanes side by side have left
    /// behind, or that the partition is caught up.
    pub(crate) fn unwritten_progress(&self) -> Option<Progress<'static>> {
        let mut tracker = lock(&self.tracker);
        let skip = self.skip.load(Ordering::Relaxed);
        if skip >= 0 {
            tracker.skip_to(skip);
        }
        let next_offset = tracker.next().filter(|next| self.positioned && Some(*next) > tracker.written());
        let (mark, at_least) = (tracker.mark(), self.known_committed(&tracker));
        drop(tracker);
        let caught_up_ms = self.caught_up_to_tell();
        (next_offset.is_some() || caught_up_ms.is_some()).then_some(Progress {
            next_offset,
            at_least,
            commits: self.known_commits(),
            log: None,
            mark: mark.filter(|_| next_offset.is_some()),
            caught_up_ms,
        })
    }

    /// The database knows this progress.
    pub(crate) fn wrote(&self, progress: &Progress<'_>) {
        lock(&self.tracker).wrote(progress.next_offset);
        self.told(progress);
    }

    /// The position that this owner knows to be committed.
    fn known_committed(&self, tracker: &OffsetTracker) -> Option<i64> {
        tracker.written().max(self.owner.get().and_then(|owner| owner.next_offset))
    }

    fn known_commits(&self) -> Option<i64> {
        self.owner.get().map(|owner| owner.commits + self.commits.load(Ordering::Relaxed))
    }

    fn told(&self, progress: &Progress<'_>) {
        if let Some(caught_up_ms) = progress.caught_up_ms {
            self.told_caught_up_ms.fetch_max(caught_up_ms, Ordering::Relaxed);
        }
    }

    /// Until when everything is settled, if everything below this offset is.
    pub(crate) fn caught_up_if(&self, next: Option<i64>) -> Option<i64> {
        lock(&self.ends).if_reached(next.filter(|_| self.positioned)?)
    }

    /// The same for what is settled now, if the database was not told for a while.
    fn caught_up_to_tell(&self) -> Option<i64> {
        let settled = lock(&self.tracker).next().or(self.start.get().map(|start| start.offset))?;
        let told = self.told_caught_up_ms.load(Ordering::Relaxed);
        self.caught_up_if(Some(settled)).filter(|now| now.saturating_sub(told) >= CAUGHT_UP_EVERY_MS)
    }

    /// Another process owns the position.
    pub(crate) fn mark_fenced(&self) {
        self.fenced.store(true, Ordering::Relaxed);
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
        let ours = !self.fenced.load(Ordering::Relaxed) || self.begins_anew.load(Ordering::Relaxed);
        ours && !self.attempts_kept.load(Ordering::Relaxed)
    }

    pub(crate) fn mark_closed(&self) {
        *lock(&self.closed) = true;
        self.closed_signal.notify_all();
    }

    /// The next batch of a lane: what is there now, within the bounds. Waits only when there is nothing. `None` once the
    /// stream is closing or stopped.
    pub(crate) async fn next_batch(&self, lane: usize, bounds: BatchBounds) -> Option<Vec<Record>> {
        let queue = &self.lanes[lane];
        loop {
            if self.is_ending() {
                return None;
            }
            let batch = take_batch(&mut lock(&queue.records), bounds);
            if !batch.is_empty() {
                return Some(self.taken(batch));
            }
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return None,
                () = queue.arrived.notified() => {}
            }
        }
    }

    /// Whether no new work may begin.
    pub(crate) fn is_ending(&self) -> bool {
        self.closing.is_cancelled() || self.stopped.get().is_some()
    }

    /// A batch, if so many messages wait that it cannot grow any more.
    pub(crate) fn full_batch(&self, lane: usize, bounds: BatchBounds) -> Option<Vec<Record>> {
        let mut records = lock(&self.lanes[lane].records);
        (records.len() >= bounds.messages).then(|| self.taken(take_batch(&mut records, bounds)))
    }

    fn taken(&self, batch: Vec<Record>) -> Vec<Record> {
        let bytes = batch.iter().map(Record::byte_len).sum();
        self.queued_messages.fetch_sub(batch.len(), Ordering::Relaxed);
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        batch
    }

    /// Copies of what waits for a lane, without taking it.
    pub(crate) fn peek(&self, lane: usize, most: usize) -> Vec<Record> {
        lock(&self.lanes[lane].records).iter().take(most).cloned().collect()
    }

    pub(crate) fn is_idle(&self, lane: usize) -> bool {
        lock(&self.lanes[lane].records).is_empty()
    }
}

/// Messages of one key share a lane, so their order holds; messages without a key have no order and are spread.
fn lane_of(record: &Record, lanes: usize) -> usize {
    if lanes == 1 {
        return 0;
    }
    let slot = match &record.key {
        Some(key) if !mistaken("KeySpread") => {
            let mut hasher = DefaultHasher::new();
            key.hash(&mut hasher);
            hasher.finish()
        }
        _ => record.offset.unsigned_abs(),
    };
    (slot % lanes as u64) as usize
}

/// Takes records from the front while both bounds hold; always at least one.
fn take_batch(queue: &mut VecDeque<Record>, bounds: BatchBounds) -> Vec<Record> {
    let mut bytes = 0_usize;
    let count = queue
        .iter()
        .take(bounds.messages.max(1))
        .take_while(|record| {
            let first = bytes == 0;
            bytes = bytes.saturating_add(record.byte_len().max(1));
            first || bytes <= bounds.bytes
        })
        .count();
    queue.drain(..count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(offset: i64, key: Option<u8>, payload: usize) -> Record {
        let mut record = Record::at("t", 0, offset);
        record.key = key.map(|k| vec![k].into());
        record.payload = Some(vec![0; payload].into());
        record
    }

    fn stream(lanes: usize, batch: BatchBounds) -> Stream {
        let open = OpenStream { topic: "t".into(), partition: 0, positioned: true, on_settled: None };
        Stream::new(ConsumerName::new("stock").unwrap(), open, lanes, batch, Clock::starting_at(0))
    }

    proptest! {
        /// Batches are the queue in its order, none too large unless it is a single message, none smaller than it need be.
        #[test]
        fn batches_are_the_queue_in_order(
            sizes in prop::collection::vec(0_usize..50, 0..60),
            messages in 1_usize..20,
            bytes in 1_usize..120,
        ) {
            let mut queue: VecDeque<Record> =
                sizes.iter().enumerate().map(|(i, size)| record(i as i64, None, *size)).collect();
            let bounds = BatchBounds { messages, bytes };
            let mut seen = Vec::new();
            while !queue.is_empty() {
                let batch = take_batch(&mut queue, bounds);
                prop_assert!(!batch.is_empty() && batch.len() <= messages);
                let size = |r: &Record| r.byte_len().max(1);
                let total: usize = batch.iter().map(size).sum();
                prop_assert!(total <= bytes || batch.len() == 1);
                if let Some(next) = queue.front() {
                    prop_assert!(batch.len() == messages || total + size(next) > bytes);
                }
                seen.extend(batch.iter().map(|r| r.offset));
            }
            prop_assert_eq!(seen, (0..sizes.len() as i64).collect::<Vec<_>>());
        }

        /// Each key is on one lane, in the order of its offsets, and nothing is lost on the way.
        #[test]
        fn lanes_keep_the_order_of_a_key(keys in prop::collection::vec(prop::option::of(0_u8..6), 0..80), lanes in 1_usize..6) {
            let stream = stream(lanes, BatchBounds::default());
            for (offset, key) in keys.iter().enumerate() {
                let pushed = stream.push(record(offset as i64, *key, 1));
                prop_assert!(pushed);
            }
            let mut lane_of_key = std::collections::HashMap::new();
            let mut count = 0;
            for (at, lane) in stream.0.lanes.iter().enumerate() {
                let mut last = -1;
                for queued in lock(&lane.records).iter() {
                    prop_assert!(queued.offset > last);
                    last = queued.offset;
                    count += 1;
                    if let Some(key) = &queued.key {
                        prop_assert_eq!(*lane_of_key.entry(key.clone()).or_insert(at), at);
                    }
                }
            }
            prop_assert_eq!(count, keys.len());
        }
    }

    #[test]
    fn a_full_stream_asks_for_a_pause_and_has_room_again_at_half() {
        let stream = stream(1, BatchBounds { messages: 2, bytes: 1_000 });
        for offset in 0..4 {
            assert!(stream.push(record(offset, None, 1)));
        }
        assert!(stream.is_full() && !stream.has_room());
        assert!(!stream.push(record(3, None, 1)), "the same offset again is ignored");
    }

    #[tokio::test]
    async fn a_closing_stream_takes_and_gives_nothing() {
        let stream = stream(1, BatchBounds::default());
        assert!(stream.push(record(0, None, 1)));
        stream.close();
        assert!(!stream.push(record(1, None, 1)));
        assert!(stream.0.next_batch(0, BatchBounds::default()).await.is_none());
        assert_eq!(stream.settled(), None);
    }
}

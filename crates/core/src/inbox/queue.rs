//! What waits for the lanes of a partition: bounded by messages and bytes, in order for each key.

use std::collections::VecDeque;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::item::Item;
use super::memory::{Holding, InFlight, Load, Memory};
use super::policy::BatchBounds;
use crate::message::Record;
use crate::mistake::mistaken;
use crate::monitor::lock;

/// One queue for each lane, and how much they hold together.
#[derive(Debug)]
pub(crate) struct Queues {
    lanes: Vec<LaneQueue>,
    messages: AtomicUsize,
    bytes: AtomicUsize,
    capacity: BatchBounds,
    /// Of the memory of the process: what waits here, and what lanes have taken and is under way.
    holding: Arc<Holding>,
    /// No new work may begin.
    ended: CancellationToken,
    notes_arrivals: bool,
}

/// A batch that a lane has taken.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) records: Vec<Record>,
    /// When each of them, by its offset, came; nothing unless that is noted.
    pub(crate) arrivals: Vec<(i64, Instant)>,
    /// To be dropped when they are done with.
    pub(crate) in_flight: InFlight,
}

#[derive(Debug, Default)]
struct LaneQueue {
    records: Mutex<VecDeque<Waiting>>,
    arrived: Notify,
}

/// A record, and since when it waits, if that is noted.
#[derive(Debug)]
struct Waiting {
    record: Record,
    since: Option<Instant>,
}

impl Queues {
    pub(crate) fn new(lanes: usize, batch: BatchBounds, memory: &Memory) -> Self {
        let lanes = lanes.max(1);
        Self {
            lanes: (0..lanes).map(|_| LaneQueue::default()).collect(),
            messages: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            // One batch in flight, one waiting for each lane, and one on its way.
            capacity: BatchBounds {
                messages: batch.messages.max(1).saturating_mul(lanes + 1),
                bytes: batch.bytes.max(1).saturating_mul(2),
            },
            holding: Holding::of(memory),
            ended: CancellationToken::new(),
            notes_arrivals: false,
        }
    }

    /// With the times at which records come.
    pub(crate) fn noting_arrivals(mut self, noted: bool) -> Self {
        self.notes_arrivals = noted;
        self
    }

    pub(crate) fn lanes(&self) -> usize {
        self.lanes.len()
    }

    pub(crate) fn push(&self, record: Record) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(record.byte_len(), Ordering::Relaxed);
        self.holding.add(Load::of(std::iter::once(&record)));
        let lane = &self.lanes[lane_of(&record, self.lanes.len())];
        let since = self.notes_arrivals.then(Instant::now);
        lock(&lane.records).push_back(Waiting { record, since });
        lane.arrived.notify_one();
    }

    /// Whether they hold at least their capacity, or their share of the process's memory, divided by this.
    pub(crate) fn hold(&self, fraction: usize) -> bool {
        self.messages.load(Ordering::Relaxed) >= self.capacity.messages / fraction
            || self.bytes.load(Ordering::Relaxed) >= self.capacity.bytes / fraction
            || self.holding.is_above(fraction)
    }

    /// The next batch of a lane: what is there now, within the bounds. Waits only when there is nothing. `None` once no new
    /// work may begin.
    pub(crate) async fn next(&self, lane: usize, bounds: BatchBounds) -> Option<Taken> {
        let queue = &self.lanes[lane];
        while !self.has_ended() {
            let batch = take_batch(&mut lock(&queue.records), bounds);
            if !batch.is_empty() {
                return Some(self.taken(batch));
            }
            tokio::select! {
                biased;
                () = self.ended.cancelled() => {}
                () = queue.arrived.notified() => {}
            }
        }
        None
    }

    /// A batch, if so many messages wait that it cannot grow any more.
    pub(crate) fn take_full(&self, lane: usize, bounds: BatchBounds) -> Option<Taken> {
        let mut records = lock(&self.lanes[lane].records);
        (records.len() >= bounds.messages).then(|| self.taken(take_batch(&mut records, bounds)))
    }

    fn taken(&self, batch: Vec<Waiting>) -> Taken {
        let arrivals = batch.iter().filter_map(|one| Some((one.record.offset, one.since?))).collect();
        let records: Vec<Record> = batch.into_iter().map(|one| one.record).collect();
        let in_flight = self.no_longer_waiting(records.iter());
        Taken { records, arrivals, in_flight }
    }

    /// These wait somewhere else in the lane, and still count.
    pub(crate) fn keep(&self, items: &[Item]) {
        self.messages.fetch_add(items.len(), Ordering::Relaxed);
        self.bytes.fetch_add(items.iter().map(|item| item.record().byte_len()).sum(), Ordering::Relaxed);
        self.holding.add(Load::of(items.iter().map(Item::record)));
    }

    /// These do not wait there any more.
    pub(crate) fn let_go<'i>(&self, items: impl Iterator<Item = &'i Item> + Clone) -> InFlight {
        self.no_longer_waiting(items.map(Item::record))
    }

    fn no_longer_waiting<'r>(&self, records: impl Iterator<Item = &'r Record> + Clone) -> InFlight {
        let load = Load::of(records.clone());
        self.messages.fetch_sub(load.messages, Ordering::Relaxed);
        self.bytes.fetch_sub(records.map(Record::byte_len).sum(), Ordering::Relaxed);
        InFlight::taking_over(&self.holding, load)
    }

    /// Copies of what waits for a lane, without taking it.
    pub(crate) fn peek(&self, lane: usize, most: usize) -> Vec<Record> {
        lock(&self.lanes[lane].records).iter().take(most).map(|one| one.record.clone()).collect()
    }

    pub(crate) fn is_empty(&self, lane: usize) -> bool {
        lock(&self.lanes[lane].records).is_empty()
    }

    /// No new work may begin. What waits is dropped: it is delivered again, and a partition that stands still for days must not
    /// keep its share of the memory.
    pub(crate) fn end(&self) {
        self.ended.cancel();
        for lane in &self.lanes {
            let dropped = std::mem::take(&mut *lock(&lane.records));
            drop(self.no_longer_waiting(dropped.iter().map(|one| &one.record)));
        }
    }

    /// Waits until no new work may begin.
    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_cancelled()
    }
}

/// All messages of a key take the same lane, in every process; messages without a key are spread.
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

fn take_batch(queue: &mut VecDeque<Waiting>, bounds: BatchBounds) -> Vec<Waiting> {
    let mut bytes = 0_usize;
    let count = queue
        .iter()
        .take(bounds.messages.max(1))
        .take_while(|waiting| {
            let first = bytes == 0;
            bytes = bytes.saturating_add(waiting.record.byte_len().max(1));
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

    proptest! {
        #[test]
        fn batches_are_the_queue_in_order(
            sizes in prop::collection::vec(0_usize..50, 0..60),
            messages in 1_usize..20,
            bytes in 1_usize..120,
        ) {
            let waiting = |(i, size): (usize, &usize)| Waiting { record: record(i as i64, None, *size), since: None };
            let mut queue: VecDeque<Waiting> = sizes.iter().enumerate().map(waiting).collect();
            let bounds = BatchBounds { messages, bytes };
            let mut seen = Vec::new();
            while !queue.is_empty() {
                let batch = take_batch(&mut queue, bounds);
                prop_assert!(!batch.is_empty() && batch.len() <= messages);
                let size = |one: &Waiting| one.record.byte_len().max(1);
                let total: usize = batch.iter().map(size).sum();
                prop_assert!(total <= bytes || batch.len() == 1);
                if let Some(next) = queue.front() {
                    prop_assert!(batch.len() == messages || total + size(next) > bytes);
                }
                seen.extend(batch.iter().map(|one| one.record.offset));
            }
            prop_assert_eq!(seen, (0..sizes.len() as i64).collect::<Vec<_>>());
        }

        #[test]
        fn lanes_keep_the_order_of_a_key(keys in prop::collection::vec(prop::option::of(0_u8..6), 0..80), lanes in 1_usize..6) {
            let queues = Queues::new(lanes, BatchBounds::default(), &Memory::default());
            for (offset, key) in keys.iter().enumerate() {
                queues.push(record(offset as i64, *key, 1));
            }
            let mut lane_of_key = std::collections::HashMap::new();
            let mut count = 0;
            for lane in 0..lanes {
                let mut last = -1;
                for queued in queues.peek(lane, usize::MAX) {
                    prop_assert!(queued.offset > last);
                    last = queued.offset;
                    count += 1;
                    if let Some(key) = &queued.key {
                        prop_assert_eq!(*lane_of_key.entry(key.clone()).or_insert(lane), lane);
                    }
                }
            }
            prop_assert_eq!(count, keys.len());
        }
    }

    #[tokio::test]
    async fn what_is_taken_no_longer_counts() {
        let queues = Queues::new(1, BatchBounds { messages: 2, bytes: 1_000 }, &Memory::default());
        for offset in 0..4 {
            queues.push(record(offset, None, 1));
        }
        assert!(queues.hold(1) && queues.hold(2));
        let batch = queues.next(0, BatchBounds { messages: 3, bytes: 1_000 }).await;
        assert_eq!(batch.map(|batch| batch.records.len()), Some(3));
        assert!(!queues.hold(2) && !queues.is_empty(0));
    }

    #[tokio::test]
    async fn memory_is_held_until_a_batch_is_done_with_or_nothing_may_begin() {
        let memory = Memory::new(1 << 20);
        let queues = Queues::new(2, BatchBounds::default(), &memory);
        for offset in 0..10 {
            queues.push(record(offset, None, 1_000));
        }
        let all = memory.held();
        assert!((10_000..20_000).contains(&all), "{all}");
        let taken = queues.next(0, BatchBounds::default()).await.expect("five wait there");
        assert_eq!((taken.records.len(), memory.held()), (5, all));
        queues.end();
        assert_eq!(memory.held(), all / 2, "what is under way ends as it may");
        assert!(queues.is_empty(1));
        drop(taken);
        assert_eq!(memory.held(), 0);
    }
}

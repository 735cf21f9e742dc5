//! How far a partition is: what is settled without a gap, what of that the database knows, and until when it is caught up.
//!
//! Caught up is told by where the log was seen to end. Everything at or behind an end that was seen at some time was appended
//! after that time. So once the position has reached it, everything that the log held at that time is settled, whatever the
//! clocks of the producers say.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

use tokio::time::Instant;

use crate::clock::Clock;
use crate::message::Record;
use crate::monitor::lock;
use crate::source::LogMark;
use crate::store::{Ownership, Progress};

/// While nothing happens in a partition, it says so in the database this often: retention follows it.
const CAUGHT_UP_EVERY_MS: i64 = 60_000;

/// The progress of one partition under one owner. Its lanes and its source share it.
#[derive(Debug)]
pub(crate) struct PartitionProgress {
    clock: Clock,
    tracker: Mutex<OffsetTracker>,
    ends: Mutex<LogEnds>,
    /// Transactions of this owner that are known to be committed.
    commits: AtomicI64,
    /// The latest `caught_up_ms` that the database was told.
    told_caught_up_ms: AtomicI64,
    /// Everything below this offset is settled, if nothing is open; -1 if that was not said.
    skip: AtomicI64,
}

/// What a transaction settles if it commits.
#[derive(Debug)]
pub(crate) struct Foreseen {
    offsets: Vec<i64>,
    /// Of the highest of them.
    mark: Option<LogMark>,
    /// What it writes into the position.
    pub(crate) progress: Progress<'static>,
}

impl PartitionProgress {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            tracker: Mutex::new(OffsetTracker::new()),
            ends: Mutex::new(LogEnds::default()),
            commits: AtomicI64::new(0),
            told_caught_up_ms: AtomicI64::new(i64::MIN),
            skip: AtomicI64::new(-1),
        }
    }

    /// A record has arrived. False if it was received before.
    pub(crate) fn receive(&self, offset: i64) -> bool {
        lock(&self.tracker).received(offset)
    }

    /// How many offsets were received and not yet passed.
    pub(crate) fn open(&self) -> usize {
        lock(&self.tracker).open_len()
    }

    /// Everything below is settled.
    pub(crate) fn settled(&self) -> Option<i64> {
        lock(&self.tracker).next()
    }

    /// Everything below is settled, and the database knows.
    pub(crate) fn written(&self) -> Option<i64> {
        lock(&self.tracker).written()
    }

    /// Everything below this offset is settled, although the last message was before it. True if that is news.
    pub(crate) fn skip_to(&self, offset: i64) -> bool {
        self.skip.fetch_max(offset, Ordering::Relaxed) < offset
    }

    /// The log ended there when it was asked for at this time, or later.
    pub(crate) fn log_ends_at(&self, end: i64, asked: Instant) {
        lock(&self.ends).saw(end, self.clock.ms_at(asked));
    }

    /// How far the partition is once these records, in ascending order, are settled too.
    pub(crate) fn foresee<'r>(
        &self,
        owner: &Ownership,
        records: impl DoubleEndedIterator<Item = &'r Record> + Clone,
    ) -> Foreseen {
        let offsets: Vec<i64> = records.clone().map(|record| record.offset).collect();
        let mark = records.clone().next_back().map(LogMark::of);
        let tracker = lock(&self.tracker);
        let next_offset = tracker.next_if_done(&offsets);
        // Other lanes may have settled what comes behind these.
        let marks = [tracker.mark_below(next_offset), mark].into_iter().flatten();
        let mut known = marks.filter(|mark| Some(mark.offset) < next_offset).max_by_key(|mark| mark.offset);
        let at_least = known_committed(&tracker, Some(owner));
        drop(tracker);
        // With several lanes the position may end up between the records of this batch.
        let below = records.rev().find(|record| Some(record.offset) < next_offset);
        if let Some(below) = below.filter(|below| known.is_none_or(|mark| mark.offset < below.offset)) {
            known = Some(LogMark::of(below));
        }
        let progress = Progress {
            next_offset,
            at_least,
            commits: self.known_commits(Some(owner)),
            log: None,
            mark: known,
            caught_up_ms: next_offset.and_then(|next| lock(&self.ends).if_reached(next)),
            settled_to: offsets.last().map(|last| last + 1),
            rewound_to: None,
        };
        Foreseen { offsets, mark, progress }
    }

    /// The database has committed it.
    pub(crate) fn settle(&self, foreseen: &Foreseen) {
        let mut tracker = lock(&self.tracker);
        tracker.done(&foreseen.offsets, foreseen.mark);
        tracker.wrote(foreseen.progress.next_offset);
        let next = tracker.next();
        drop(tracker);
        if let Some(next) = next {
            lock(&self.ends).reached(next);
        }
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.told(&foreseen.progress);
    }

    /// These records, in ascending order, are settled without a transaction.
    pub(crate) fn pass(&self, records: &[Record]) {
        let offsets: Vec<i64> = records.iter().map(|record| record.offset).collect();
        let mut tracker = lock(&self.tracker);
        tracker.done(&offsets, records.last().map(LogMark::of));
        let next = tracker.next();
        drop(tracker);
        if let Some(next) = next {
            lock(&self.ends).reached(next);
        }
    }

    /// What is known and not written down yet, if it is worth a write: a skip, a position that lanes side by side have left
    /// behind, or that the partition is caught up. `start` is where reading began.
    pub(crate) fn unwritten(
        &self,
        owner: Option<&Ownership>,
        start: Option<i64>,
    ) -> Option<Progress<'static>> {
        let mut tracker = lock(&self.tracker);
        let skip = self.skip.load(Ordering::Relaxed);
        if skip >= 0 {
            tracker.skip_to(skip);
        }
        let next_offset = owner.and(tracker.next()).filter(|next| Some(*next) > tracker.written());
        let (mark, at_least) = (tracker.mark(), known_committed(&tracker, owner));
        drop(tracker);
        let caught_up_ms = owner.and_then(|_| self.caught_up_to_tell(start));
        (next_offset.is_some() || caught_up_ms.is_some()).then_some(Progress {
            next_offset,
            at_least,
            commits: self.known_commits(owner),
            log: None,
            mark: mark.filter(|_| next_offset.is_some()),
            caught_up_ms,
            ..Progress::default()
        })
    }

    /// The database knows this progress.
    pub(crate) fn wrote(&self, progress: &Progress<'_>) {
        lock(&self.tracker).wrote(progress.next_offset);
        self.told(progress);
    }

    /// Until when everything is settled, if the database was not told for a while.
    pub(crate) fn caught_up_to_tell(&self, start: Option<i64>) -> Option<i64> {
        let settled = self.settled().or(start)?;
        let told = self.told_caught_up_ms.load(Ordering::Relaxed);
        let caught_up = lock(&self.ends).if_reached(settled);
        caught_up.filter(|now| now.saturating_sub(told) >= CAUGHT_UP_EVERY_MS)
    }

    fn told(&self, progress: &Progress<'_>) {
        if let Some(caught_up_ms) = progress.caught_up_ms {
            self.told_caught_up_ms.fetch_max(caught_up_ms, Ordering::Relaxed);
        }
    }

    fn known_commits(&self, owner: Option<&Ownership>) -> Option<i64> {
        owner.map(|owner| owner.commits + self.commits.load(Ordering::Relaxed))
    }
}

/// The position that this owner knows to be committed.
fn known_committed(tracker: &OffsetTracker, owner: Option<&Ownership>) -> Option<i64> {
    tracker.written().max(owner.and_then(|owner| owner.next_offset))
}

/// Follows the received offsets of one partition and says up to where all of them are done.
///
/// Invariant: `next` never passes an offset that was received and is not done. Offsets may be sparse
/// (compaction, transaction markers): only received ones count.
#[derive(Debug, Default)]
pub(crate) struct OffsetTracker {
    /// Received and not yet passed, ascending.
    open: VecDeque<Entry>,
    last_received: Option<i64>,
    next: Option<i64>,
    /// The highest `next` that the database knows.
    written: Option<i64>,
    /// Marks of done records, ascending: at most one below `next`, and some of those that are done ahead of it.
    marks: VecDeque<LogMark>,
}

#[derive(Debug)]
struct Entry {
    offset: i64,
    done: bool,
}

impl OffsetTracker {
    /// Nothing received yet.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Takes note of a received offset. Returns false, and ignores it, if it is not above all earlier ones.
    pub(crate) fn received(&mut self, offset: i64) -> bool {
        if self.last_received.is_some_and(|last| offset <= last) {
            return false;
        }
        self.last_received = Some(offset);
        self.open.push_back(Entry { offset, done: false });
        true
    }

    /// Takes note of done offsets, in any order. `mark` is of the highest of them.
    pub(crate) fn done(&mut self, offsets: &[i64], mark: Option<LogMark>) {
        if let Some(mark) = mark {
            let at = self.marks.partition_point(|known| known.offset < mark.offset);
            self.marks.insert(at, mark);
        }
        for offset in offsets {
            if let Ok(at) = self.open.binary_search_by_key(offset, |e| e.offset) {
                self.open[at].done = true;
            }
        }
        while let Some(front) = self.open.front().filter(|e| e.done) {
            self.next = Some(front.offset + 1);
            self.open.pop_front();
        }
        // Of those that were passed, the last is the one to know.
        while self.marks.get(1).is_some_and(|second| Some(second.offset) < self.next) {
            self.marks.pop_front();
        }
    }

    /// The highest marked record below `next`.
    #[must_use]
    pub(crate) fn mark(&self) -> Option<LogMark> {
        self.mark_below(self.next)
    }

    /// The highest marked record that would lie below this `next`.
    #[must_use]
    pub(crate) fn mark_below(&self, next: Option<i64>) -> Option<LogMark> {
        self.marks.iter().rev().find(|mark| Some(mark.offset) < next).copied()
    }

    /// The next offset to read after a restart: one past the last done offset that has no open one below it.
    #[must_use]
    pub(crate) fn next(&self) -> Option<i64> {
        self.next
    }

    /// The database knows this `next`.
    pub(crate) fn wrote(&mut self, next: Option<i64>) {
        self.written = self.written.max(next);
    }

    /// The highest `next` that the database knows.
    #[must_use]
    pub(crate) fn written(&self) -> Option<i64> {
        self.written
    }

    /// What `next` would be if these offsets (ascending) were done too.
    #[must_use]
    pub(crate) fn next_if_done(&self, offsets: &[i64]) -> Option<i64> {
        let mut next = self.next;
        let mut ahead = offsets.iter().peekable();
        for entry in &self.open {
            while ahead.next_if(|o| **o < entry.offset).is_some() {}
            if !entry.done && ahead.next_if(|o| **o == entry.offset).is_none() {
                break;
            }
            next = Some(entry.offset + 1);
        }
        next
    }

    /// There is nothing to receive below this offset. Ignored while something is open.
    pub(crate) fn skip_to(&mut self, next: i64) {
        if self.open.is_empty() && self.next.is_none_or(|known| known < next) {
            self.next = Some(next);
        }
    }

    /// How many received offsets are not passed yet. Bounds the memory of a partition with one slow lane.
    #[must_use]
    pub(crate) fn open_len(&self) -> usize {
        self.open.len()
    }
}

/// How many ends are remembered. When there are more, every second one is forgotten.
const MAX_ENDS: usize = 64;

/// The ends of one log that its position has not reached yet.
#[derive(Debug, Default)]
pub(crate) struct LogEnds {
    /// End and time, both ascending.
    seen: VecDeque<(i64, i64)>,
    caught_up_ms: Option<i64>,
}

impl LogEnds {
    /// The log ended there at that time.
    pub(crate) fn saw(&mut self, end: i64, at_ms: i64) {
        match self.seen.back_mut() {
            Some((last, time)) if *last == end => *time = (*time).max(at_ms),
            // A log that became shorter; its source finds that out.
            Some((last, _)) if *last > end => {}
            _ => self.seen.push_back((end, at_ms)),
        }
        if self.seen.len() > MAX_ENDS {
            let mut at = 0;
            self.seen.retain(|_| {
                at += 1;
                at % 2 == 0
            });
        }
    }

    /// What was seen and is not reached yet says nothing any more.
    pub(crate) fn forget(&mut self) {
        self.seen.clear();
    }

    /// Until when the partition is caught up once everything below this offset is settled, if that is known. Only a
    /// question: a transaction that would settle it may still fail.
    pub(crate) fn if_reached(&self, next: i64) -> Option<i64> {
        let reached = self.seen.iter().take_while(|(end, _)| *end <= next).map(|(_, time)| *time).max();
        self.caught_up_ms.max(reached)
    }

    /// Everything below this offset is settled.
    pub(crate) fn reached(&mut self, next: i64) {
        self.caught_up_ms = self.if_reached(next);
        while self.seen.front().is_some_and(|(end, _)| *end <= next) {
            self.seen.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// The reference: the sets themselves.
    fn reference_next(received: &[i64], done: &BTreeSet<i64>) -> Option<i64> {
        received.iter().take_while(|o| done.contains(o)).last().map(|o| o + 1)
    }

    #[test]
    fn skips_only_when_nothing_is_open() {
        let mut tracker = OffsetTracker::new();
        tracker.received(7);
        tracker.skip_to(9);
        assert_eq!(tracker.next(), None);
        tracker.done(&[7], None);
        tracker.skip_to(9);
        assert_eq!(tracker.next(), Some(9));
        tracker.skip_to(8);
        assert_eq!(tracker.next(), Some(9), "never backwards");
    }

    proptest! {
        #[test]
        fn agrees_with_the_sets(
            gaps in prop::collection::vec(1_i64..4, 1..60),
            order in prop::collection::vec(any::<prop::sample::Index>(), 0..80),
        ) {
            let received: Vec<i64> = gaps.iter().scan(-1, |at, gap| { *at += gap; Some(*at) }).collect();
            let mut tracker = OffsetTracker::new();
            for offset in &received {
                prop_assert!(tracker.received(*offset));
                prop_assert!(!tracker.received(*offset));
            }
            let mut done = BTreeSet::new();
            for pick in order {
                let offset = received[pick.index(received.len())];
                done.insert(offset);
                let foreseen = tracker.next_if_done(&[offset]);
                tracker.done(&[offset], Some(LogMark { offset, digest: offset }));
                prop_assert_eq!(tracker.next(), reference_next(&received, &done));
                prop_assert_eq!(foreseen, tracker.next());
                prop_assert_eq!(tracker.next_if_done(&[]), tracker.next());
                let highest = done.iter().rfind(|o| Some(**o) < tracker.next());
                prop_assert_eq!(tracker.mark().map(|mark| mark.offset), highest.copied());
            }
        }

        #[test]
        fn foresees_a_whole_batch(len in 1_usize..50, picks in prop::collection::btree_set(0_i64..50, 0..50)) {
            let mut tracker = OffsetTracker::new();
            for offset in 0..len as i64 {
                tracker.received(offset);
            }
            let batch: Vec<i64> = picks.into_iter().filter(|o| *o < len as i64).collect();
            let foreseen = tracker.next_if_done(&batch);
            tracker.done(&batch, None);
            prop_assert_eq!(foreseen, tracker.next());
        }
    }

    #[test]
    fn an_end_counts_when_it_is_reached() {
        let mut ends = LogEnds::default();
        assert_eq!(ends.if_reached(100), None, "nobody has looked");
        ends.saw(10, 1_000);
        ends.saw(20, 2_000);
        assert_eq!(ends.if_reached(20), Some(2_000));
        assert_eq!(ends.if_reached(9), None, "it was only a question");
        ends.reached(10);
        assert_eq!(ends.if_reached(10), Some(1_000));
        assert_eq!(ends.if_reached(19), Some(1_000));
        ends.saw(20, 3_000);
        assert_eq!(ends.if_reached(25), Some(3_000), "the log stood still meanwhile");
    }

    proptest! {
        /// Never later than the truth: a message that was appended before that time and is not settled.
        #[test]
        fn it_is_never_too_late(steps in prop::collection::vec((0_i64..5, 0_i64..4), 1..300)) {
            let (mut ends, mut end, mut next) = (LogEnds::default(), 0, 0);
            let mut appended_at = Vec::new();
            for (time, (appended, settled)) in steps.into_iter().enumerate() {
                let time = time as i64;
                for _ in 0..appended {
                    appended_at.push(time);
                    end += 1;
                }
                ends.saw(end, time);
                next = (next + settled).min(end);
                ends.reached(next);
                if let Some(caught_up) = ends.if_reached(next) {
                    let oldest_open = appended_at.get(next as usize).copied();
                    prop_assert!(oldest_open.is_none_or(|oldest| oldest > caught_up));
                }
                prop_assert!(ends.seen.len() <= MAX_ENDS);
            }
        }
    }
}

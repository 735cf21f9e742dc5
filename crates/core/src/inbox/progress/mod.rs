//! How far a partition is: what is settled without a gap, what of that the database knows, and until when it is caught up.

mod ends;
mod tracker;

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

use tokio::time::Instant;

use crate::clock::Clock;
use crate::message::Record;
use crate::monitor::lock;
use crate::source::LogMark;
use crate::store::{Ownership, Progress};
use ends::LogEnds;
use tracker::OffsetTracker;

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
        owner: Option<&Ownership>,
        records: impl DoubleEndedIterator<Item = &'r Record> + Clone,
    ) -> Foreseen {
        let offsets: Vec<i64> = records.clone().map(|record| record.offset).collect();
        let mark = records.clone().next_back().map(LogMark::of);
        let tracker = lock(&self.tracker);
        let next_offset = tracker.next_if_done(&offsets);
        // Other lanes may have settled what comes behind these.
        let marks = [tracker.mark_below(next_offset), mark].into_iter().flatten();
        let mut known = marks.filter(|mark| Some(mark.offset) < next_offset).max_by_key(|mark| mark.offset);
        let at_least = known_committed(&tracker, owner);
        drop(tracker);
        // With several lanes the position may end up between the records of this batch.
        let below = records.rev().find(|record| Some(record.offset) < next_offset);
        if let Some(below) = below.filter(|below| known.is_none_or(|mark| mark.offset < below.offset)) {
            known = Some(LogMark::of(below));
        }
        let progress = Progress {
            next_offset,
            at_least,
            commits: self.known_commits(owner),
            log: None,
            mark: known,
            caught_up_ms: owner.and(next_offset).and_then(|next| lock(&self.ends).if_reached(next)),
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

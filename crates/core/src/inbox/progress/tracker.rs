//! Which offsets of a partition are done, and up to where without a gap.

use std::collections::VecDeque;

use crate::source::LogMark;

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
}

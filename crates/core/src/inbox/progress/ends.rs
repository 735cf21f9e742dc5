//! Until when a partition is caught up, told by where its log was seen to end.
//!
//! Everything at or behind an end that was seen at some time was appended after that time. So once the position has reached
//! it, everything that the log held at that time is settled, whatever the clocks of the producers say.

use std::collections::VecDeque;

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

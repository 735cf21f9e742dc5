//! Why a duplicate came: told by its place, and asked only for messages whose receipt was there.
//!
//! A position remembers how far anything of its log was ever settled (`settled_to`), and below which offset records come again
//! because somebody wanted them to (`rewound_to`). Both are read when the partition is taken over. One owner never takes the same
//! offset twice, so what they say stays true as long as it owns the partition: a record at or behind `settled_to` was not
//! there before, and its copy is another record.

use std::collections::BTreeSet;
use std::sync::Mutex;

use super::partition::Partition;
use crate::message::Record;
use crate::monitor::lock;
use crate::store::{Cause, Ownership};

impl Partition {
    /// Why this copy came, of a message whose receipt was there.
    pub(super) fn cause_of(&self, record: &Record) -> Cause {
        if self.unsure.holds(record.offset) {
            return Cause::Redelivered;
        }
        match (self.owner.get(), &self.deliveries) {
            (Some(owner), _) => owner.cause_at(record.offset, self.rewound_by_start()),
            (None, Some(_)) if record.redelivered => Cause::Redelivered,
            (None, Some(_)) if self.says_redelivered => Cause::PublishedTwice,
            (None, _) => Cause::Unknown,
        }
    }

    /// Below which offset records come again because somebody has set the broker's offset back, this time.
    pub(super) fn rewound_by_start(&self) -> Option<i64> {
        let owner = self.owner.get()?;
        // Before anything was counted, an offset of an older oncebox cannot be told from one that somebody else has set.
        owner.settled_to?;
        self.start.get().filter(|start| start.set_back).and(owner.settled_before())
    }
}

impl Ownership {
    /// Nothing at or behind this offset was settled before this owner came. `None` if nobody knows.
    fn settled_before(&self) -> Option<i64> {
        match self.settled_to {
            Some(to) => Some(to.max(self.next_offset.unwrap_or(to))),
            None if self.commits == 0 => Some(i64::MIN),
            // An older oncebox was here, and may have had several lanes.
            None => None,
        }
    }

    fn cause_at(&self, offset: i64, rewound_by_start: Option<i64>) -> Cause {
        match self.settled_before() {
            Some(to) if offset >= to => Cause::PublishedTwice,
            _ if Some(offset) < self.rewound_to.max(rewound_by_start) => Cause::Rewound,
            Some(_) => Cause::Redelivered,
            None => Cause::Unknown,
        }
    }
}

/// Offsets of transactions whose commit was not answered, until they are settled: they are run again, and if they find receipts
/// these are their own.
#[derive(Debug, Default)]
pub(super) struct Unsure(Mutex<BTreeSet<i64>>);

impl Unsure {
    /// Nobody knows whether these are settled.
    pub(super) fn about(&self, offsets: impl Iterator<Item = i64>) {
        lock(&self.0).extend(offsets);
    }

    /// These are settled.
    pub(super) fn over(&self, offsets: impl Iterator<Item = i64>) {
        let mut unsure = lock(&self.0);
        if !unsure.is_empty() {
            offsets.for_each(|offset| {
                unsure.remove(&offset);
            });
        }
    }

    fn holds(&self, offset: i64) -> bool {
        lock(&self.0).contains(&offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::ConsumerName;
    use crate::store::PositionKey;

    /// An owner that took over there, of a position that knows these.
    fn owner(next_offset: i64, settled_to: Option<i64>, rewound_to: Option<i64>) -> Ownership {
        let consumer = ConsumerName::new("stock").unwrap();
        Ownership {
            key: PositionKey { consumer, topic: "orders".into(), partition: 0 },
            epoch: 2,
            next_offset: Some(next_offset),
            log: None,
            mark: None,
            floor: None,
            was_retired: false,
            commits: 5,
            starts: 1,
            attempts_recorded: false,
            settled_to,
            rewound_to,
        }
    }

    #[test]
    fn what_lies_below_what_was_settled_came_before() {
        let ahead = owner(10, Some(13), None);
        for (offset, cause) in
            [(9, Cause::Redelivered), (12, Cause::Redelivered), (13, Cause::PublishedTwice)]
        {
            assert_eq!(ahead.cause_at(offset, None), cause, "{offset}");
        }
        let jumped = owner(20, Some(13), None);
        assert_eq!(jumped.cause_at(19, None), Cause::Redelivered);
        assert_eq!(jumped.cause_at(20, None), Cause::PublishedTwice);
    }

    #[test]
    fn what_was_moved_back_is_rewound_up_to_where_it_was() {
        let moved = owner(3, Some(10), Some(8));
        for (offset, cause) in
            [(3, Cause::Rewound), (7, Cause::Rewound), (8, Cause::Redelivered), (10, Cause::PublishedTwice)]
        {
            assert_eq!(moved.cause_at(offset, None), cause, "{offset}");
        }
        assert_eq!(owner(10, Some(10), None).cause_at(4, Some(10)), Cause::Rewound, "by the broker's offset");
    }

    #[test]
    fn what_an_older_oncebox_has_settled_is_unknown() {
        assert_eq!(owner(10, None, None).cause_at(4, None), Cause::Unknown);
        assert_eq!(owner(10, None, None).cause_at(14, None), Cause::Unknown);
        let new = Ownership { commits: 0, ..owner(10, None, None) };
        assert_eq!(new.cause_at(14, None), Cause::PublishedTwice, "nobody has settled anything here");
    }

    #[test]
    fn what_is_settled_is_not_unsure_any_more() {
        let unsure = Unsure::default();
        unsure.about([4, 5].into_iter());
        assert!(unsure.holds(4) && !unsure.holds(3));
        unsure.over([4].into_iter());
        assert!(!unsure.holds(4) && unsure.holds(5));
    }
}

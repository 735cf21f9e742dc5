//! What the reader has to come back to. Whoever is in none of these lists costs nothing.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::partition::Partitions;
use crate::ends::Place;

/// How many partitions are looked at unasked in each round: should a bell ever not ring, the partition is found all the same.
const SWEPT: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Agenda {
    /// Their turn ended before their queue was empty.
    pub(super) more: BTreeSet<Place>,
    /// Their stream had no room.
    pub(super) full: BTreeSet<Place>,
    /// They could not begin, and are to be asked about again then.
    begins: BTreeSet<(Instant, Place)>,
    /// They are in doubt, and are to be asked about then.
    doubts: BTreeSet<(Instant, Place)>,
    /// Who is looked at unasked, the next one last.
    swept: Vec<Place>,
}

impl Agenda {
    pub(super) fn begin_later(&mut self, place: Place, wait: Duration) {
        self.begins.insert((Instant::now() + wait, place));
    }

    pub(super) fn doubt_later(&mut self, place: Place, wait: Duration) {
        self.doubts.insert((Instant::now() + wait, place));
    }

    pub(super) fn begins_due(&mut self) -> Vec<Place> {
        due(&mut self.begins)
    }

    pub(super) fn doubts_due(&mut self) -> Vec<Place> {
        due(&mut self.doubts)
    }

    /// The next few of all partitions, in turn.
    pub(super) fn sweep(&mut self, partitions: &Partitions) -> Vec<Place> {
        if self.swept.is_empty() {
            self.swept = partitions.iter().map(super::partition::Partition::key).collect();
        }
        let left = self.swept.len().saturating_sub(SWEPT);
        self.swept.split_off(left)
    }
}

fn due(list: &mut BTreeSet<(Instant, Place)>) -> Vec<Place> {
    let now = Instant::now();
    let mut due = Vec::new();
    while list.first().is_some_and(|(at, _)| *at <= now) {
        due.extend(list.pop_first().map(|(_, place)| place));
    }
    due
}

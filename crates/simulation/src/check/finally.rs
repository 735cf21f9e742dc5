//! When the faults have stopped and operators have acted, everything is settled.

use crate::store::Spot;
use crate::world::Inner;

impl Inner {
    /// What is still to be done, in words; empty when everything is settled.
    pub(crate) fn left_to_do(&self) -> Vec<String> {
        let mut left = self.queues_left();
        for spot in self.log.spots() {
            if !self.log.topics[spot.place.topic].exists {
                continue;
            }
            if let Some((_, stop)) = self.log.stops.get(&spot) {
                left.push(format!("c{} stands still at {}: {stop:?}", spot.consumer, spot.place));
            }
            let next = self.db.tables.positions.get(&spot).and_then(|row| row.next_offset).unwrap_or(0);
            let end = self.log.partition(spot.place).end();
            if next != end {
                left.push(format!("c{} is at {next} of {end} in {}", spot.consumer, spot.place));
            }
        }
        let waiting = self.db.tables.outbox.values().filter(|row| row.is_pending());
        if self.config.relay {
            left.extend(waiting.map(|row| format!("event {} is not published", row.event.seq)));
        }
        left
    }

    /// Everything is settled: is it so for every message?
    pub(crate) fn check_finally(&mut self) {
        let mut lost = self.queues_lost();
        for spot in self.log.spots() {
            if self.log.topics[spot.place.topic].exists {
                let present = self.log.partition(spot.place).records.iter().flatten();
                let low = self.log.partition(spot.place).low;
                lost.extend(self.unsettled(spot, present.filter(|entry| entry.record.offset >= low)));
            }
        }
        let present = |spot: &Spot, entry: &crate::log::Entry| {
            let topic = spot.place.topic;
            self.log.topics[topic].exists && entry.record.log == Some(self.log.id(topic))
        };
        for (spot, entry) in self.log.removed.iter().filter(|(spot, entry)| present(spot, entry)) {
            lost.extend(self.unsettled(*spot, std::iter::once(entry)));
        }
        // Rejected ones are parked, and an operator's matter.
        let gone = self.db.tables.emitted.iter().filter(|seq| {
            let known = self.sink.known.get(seq);
            known.is_some_and(|known| known.delivered == 0 && !known.refused)
        });
        if self.config.relay {
            lost.extend(gone.map(|seq| format!("event {seq} was never published")));
        }
        if let Some(first) = lost.first() {
            let all = lost.len();
            self.violate(format!("{all} messages or events are lost, the first: {first}"));
        }
    }

    fn unsettled<'a>(&self, spot: Spot, entries: impl Iterator<Item = &'a crate::log::Entry>) -> Vec<String> {
        entries
            .filter(|entry| !self.is_settled(spot, entry) && !self.is_forgiven(spot, entry))
            .map(|entry| {
                format!("m{} at {}@{} for c{}", entry.number, spot.place, entry.record.offset, spot.consumer)
            })
            .collect()
    }

    /// All processes have stopped in good order: nothing of the crash guard is left behind.
    pub(crate) fn check_stopped(&mut self) {
        if self.config.prefetch.is_none() {
            self.check_positions_stopped();
        }
        if let Some(id) = self.db.open.keys().next() {
            let what = format!("transaction {id} is left open");
            self.violate(what);
        }
    }

    fn check_positions_stopped(&mut self) {
        let exists = |spot: &Spot| self.log.topics[spot.place.topic].exists;
        // Those below the position are forgotten when somebody takes it over.
        let positions = &self.db.tables.positions;
        let next = |spot: &Spot| positions.get(spot).and_then(|row| row.next_offset);
        let mut attempts = self.db.tables.attempts.iter();
        let left = attempts.find(|((spot, offset), _)| exists(spot) && next(spot) <= Some(*offset));
        if let Some(((spot, offset), attempts)) = left {
            let what = format!("{attempts} attempts at {}@{offset} are left behind", spot.place);
            self.violate(what);
        }
        let exists = |spot: &Spot| self.log.topics[spot.place.topic].exists;
        let started = self.db.tables.positions.iter().find(|(spot, row)| row.starts > 0 && exists(spot));
        // After a failover the database knows older owners again; and attempts below the position, where somebody has gone
        // back to, do not add up.
        let excused =
            |spot: &Spot| self.db.failovers > 0 || self.log.reread.iter().any(|(again, _, _)| again == spot);
        if let Some((spot, row)) = started.filter(|(spot, _)| !excused(spot)) {
            let what = format!("{} starts without progress of {} are left behind", row.starts, spot.place);
            self.violate(what);
        }
    }
}

//! Positions never pass what is not settled, and acknowledgements never pass positions.

use crate::store::{Moves, Spot};
use crate::world::Inner;

impl Inner {
    /// A position moves; what its transaction wrote is there already.
    pub(crate) fn check_progress(&mut self, moves: &Moves) {
        let Some(next) = moves.next_offset else { return };
        let spot = moves.spot;
        let old = self.db.tables.positions.get(&spot).and_then(|row| row.next_offset).unwrap_or(0);
        let Some(partition) = self.log.known_partition(spot.place) else { return };
        if self.log.begun.get(&spot) != Some(&partition.writing) {
            // What it has read is not there any more.
            return;
        }
        let passed = (old..next).filter_map(|offset| partition.at(offset));
        let open = passed.filter(|entry| !self.is_settled(spot, entry) && !self.is_forgiven(spot, entry));
        let open: Vec<String> =
            open.map(|entry| format!("m{}@{}", entry.number, entry.record.offset)).collect();
        if !open.is_empty() {
            self.violate(format!(
                "c{} moves {} from {old} to {next} past what is not settled: {}",
                spot.consumer,
                spot.place,
                open.join(" ")
            ));
        }
    }

    /// A position never changes its log by itself.
    pub(crate) fn check_log(&mut self, moves: &Moves) {
        let known = self.db.tables.positions.get(&moves.spot).and_then(|row| row.log.clone());
        if let (Some(was), Some(is)) = (known, &moves.log)
            && was.contradicts(is)
        {
            self.violate(format!("{:?} goes on in another log: {was} → {is}", moves.spot));
        }
    }

    /// An offset is committed at the broker.
    pub(crate) fn check_acknowledged(&mut self, spot: Spot, offset: i64) {
        let reached = self.log.reached.get(&spot).copied().unwrap_or(0);
        if offset > reached {
            self.violate(format!(
                "c{} acknowledges {} up to {offset}, but the position never was beyond {reached}",
                spot.consumer, spot.place
            ));
        }
    }
}

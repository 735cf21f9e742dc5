//! Which process reads which partition.

use super::{Log, Stop};
use crate::coverage::Event;
use crate::store::Spot;
use crate::world::{Actor, Inner};

/// Who reads a partition.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Assigned {
    /// Who should.
    pub(crate) wanted: Option<usize>,
    /// Who does, as far as the broker knows.
    pub(crate) holder: Option<Actor>,
}

impl Inner {
    /// Gives every partition to a member. Those that have to change hands are given up by their holders first.
    pub(crate) fn rebalance(&mut self) {
        self.saw(Event::Rebalance);
        let members: Vec<usize> = self.log.members.iter().copied().collect();
        self.log.rotation += 1;
        let rotation = self.log.rotation;
        for (at, spot) in self.log.spots().into_iter().enumerate() {
            let wanted = (!members.is_empty()).then(|| members[(at + rotation) % members.len()]);
            self.log.assigned.entry(spot).or_default().wanted = wanted;
        }
    }

    /// Holders that did not give their partitions up in time lose them.
    pub(crate) fn enforce_assignment(&mut self) {
        // Who runs a message alone cannot take its attempt back any more.
        self.attempts_are_stranded();
        let mut taken = 0;
        for assigned in self.log.assigned.values_mut() {
            if assigned.holder.is_some_and(|holder| Some(holder.process) != assigned.wanted) {
                assigned.holder = None;
                taken += 1;
            }
        }
        for _ in 0..taken {
            self.saw(Event::OwnershipTaken);
        }
    }

    /// A process joins, or leaves for whatever reason; its earlier lives hold nothing any more.
    pub(crate) fn set_member(&mut self, process: usize, member: bool) {
        let life = self.processes[process].life;
        let gone = |actor: Actor| actor.process == process && (!member || actor.life != life);
        self.cut_channels(gone);
        for assigned in self.log.assigned.values_mut() {
            if assigned.holder.is_some_and(gone) {
                assigned.holder = None;
            }
        }
        let changed =
            if member { self.log.members.insert(process) } else { self.log.members.remove(&process) };
        if changed && self.config.prefetch.is_none() {
            self.rebalance();
        }
    }
}

impl Log {
    /// The partitions of a consumer that this process should read now. It becomes their holder.
    pub(super) fn mine(&mut self, consumer: usize, actor: Actor) -> Vec<Spot> {
        let mut mine = Vec::new();
        for (spot, assigned) in self.assigned.iter_mut().filter(|(spot, _)| spot.consumer == consumer) {
            if assigned.wanted != Some(actor.process) || !self.topics[spot.place.topic].exists {
                continue;
            }
            if assigned.holder.is_none_or(|holder| holder == actor) {
                assigned.holder = Some(actor);
                mine.push(*spot);
            }
        }
        mine
    }

    /// Its holder reports that the partition stands still. What others say, who have lost it, is not heard: then false.
    pub(super) fn stand_still(&mut self, spot: Spot, actor: Actor, stop: Stop) -> bool {
        let holds = self.assigned.get(&spot).is_some_and(|assigned| assigned.holder == Some(actor));
        if holds {
            self.stops.insert(spot, (actor, stop));
        }
        holds
    }

    /// The process has given the partition up.
    pub(super) fn give_up(&mut self, spot: Spot, actor: Actor) {
        if let Some(assigned) = self.assigned.get_mut(&spot).filter(|assigned| assigned.holder == Some(actor))
        {
            assigned.holder = None;
        }
    }
}

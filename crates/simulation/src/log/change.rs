//! What happens to logs and to the offsets of groups.

use oncebox_core::inbox::StartPolicy;

use super::Partition;
use crate::coverage::Event;
use crate::plan::Place;
use crate::store::Spot;
use crate::world::Inner;

impl Inner {
    /// A marker of a producer's transaction takes an offset.
    pub(crate) fn append_marker(&mut self, place: Place) {
        self.saw(Event::Marker);
        self.log.partition_mut(place).records.push(None);
    }

    /// The log loses its end; what comes next is written in its place.
    pub(crate) fn truncate(&mut self, place: Place, records: i64) {
        let partition = self.log.partition_mut(place);
        let keep = (partition.end() - records).max(partition.low);
        if keep == partition.end() {
            return;
        }
        partition.records.truncate(usize::try_from(keep).unwrap_or_default());
        partition.writing += 1;
        self.saw(Event::Truncated);
    }

    pub(crate) fn delete_topic(&mut self, topic: usize) {
        let topic = &mut self.log.topics[topic];
        if std::mem::take(&mut topic.exists) {
            self.saw(Event::TopicDeleted);
        }
    }

    /// The topic is deleted, if it is there, and created with nothing in it.
    pub(crate) fn recreate_topic(&mut self, at: usize) {
        let topic = &mut self.log.topics[at];
        topic.exists = true;
        topic.creation += 1;
        for partition in &mut topic.partitions {
            *partition = Partition { writing: partition.writing + 1, ..Partition::default() };
        }
        // Kafka removes the group's offsets of a deleted topic.
        self.log.committed.retain(|spot, _| spot.place.topic != at);
        self.saw(Event::Recreated);
    }

    /// Of each key only the newest record stays, and the newest of all.
    pub(crate) fn compact(&mut self, place: Place) {
        let partition = self.log.partition_mut(place);
        let keys: Vec<_> =
            partition.records.iter().map(|entry| entry.as_ref().and_then(|e| e.record.key.clone())).collect();
        let mut removed = false;
        for at in 0..keys.len() {
            if keys[at].is_some() && keys[at + 1..].contains(&keys[at]) {
                removed |= partition.records[at].take().is_some();
            }
        }
        if removed {
            self.saw(Event::Compacted);
        }
    }

    /// Retention removes the oldest records.
    pub(crate) fn expire(&mut self, place: Place, records: i64) {
        let partition = self.log.partition(place);
        let low = (partition.low + records).min(partition.end());
        if low == partition.low {
            return;
        }
        let gone: Vec<_> = (partition.low..low).filter_map(|offset| partition.at(offset).cloned()).collect();
        self.log.partition_mut(place).low = low;
        self.saw(Event::Expired);
        for spot in self.log.spots().into_iter().filter(|spot| spot.place == place) {
            let next = self.db.tables.positions.get(&spot).and_then(|row| row.next_offset);
            for entry in &gone {
                if next.is_none() {
                    // The oldest message is where reading begins.
                    self.log.forgiven.insert((spot, entry.writing, entry.record.offset));
                } else if !self.is_settled(spot, entry) {
                    self.saw(Event::ExpiredUnread);
                }
                self.log.removed.push((spot, entry.clone()));
            }
        }
    }

    /// Somebody sets the group's offset back.
    pub(crate) fn rewind(&mut self, spot: Spot, records: i64) {
        if let Some(committed) = self.log.committed.get_mut(&spot) {
            *committed = (*committed - records).max(0);
            self.saw(Event::Rewound);
        }
    }

    /// Somebody sets the group's offset ahead.
    pub(crate) fn commit_ahead(&mut self, spot: Spot, records: i64) {
        let end = self.log.partition(spot.place).end();
        let committed = self.log.committed.entry(spot).or_insert(0);
        *committed = (*committed + records).min(end);
        let committed = *committed;
        self.saw(Event::CommittedAhead);
        let unknown = self.db.tables.positions.get(&spot).is_none_or(|row| row.next_offset.is_none());
        if unknown && self.config.start == StartPolicy::Group {
            // That is where this consumer is told to begin.
            self.forgive(spot, 0, committed);
        }
    }

    /// The group's offsets expire.
    pub(crate) fn lose_offsets(&mut self, consumer: usize) {
        self.log.committed.retain(|spot, _| spot.consumer != consumer);
        self.saw(Event::OffsetsLost);
    }

    /// Nobody expects these messages, which are not there any more, to be applied.
    pub(crate) fn forgive_removed(&mut self, spot: Spot, to: i64) {
        let removed = self.log.removed.iter().filter(|(of, entry)| *of == spot && entry.record.offset < to);
        let places: Vec<(u32, i64)> = removed.map(|(_, e)| (e.writing, e.record.offset)).collect();
        self.log.forgiven.extend(places.into_iter().map(|(writing, offset)| (spot, writing, offset)));
    }

    /// Nobody expects these messages to be applied any more.
    pub(crate) fn forgive(&mut self, spot: Spot, from: i64, to: i64) {
        let here = self.log.partition(spot.place);
        let present = (from..to).filter_map(|offset| here.at(offset));
        let removed = self.log.removed.iter().filter(|(of, _)| *of == spot).map(|(_, entry)| entry);
        let removed = removed.filter(|entry| (from..to).contains(&entry.record.offset));
        let places: Vec<(u32, i64)> =
            present.chain(removed).map(|entry| (entry.writing, entry.record.offset)).collect();
        self.log.forgiven.extend(places.into_iter().map(|(writing, offset)| (spot, writing, offset)));
    }
}

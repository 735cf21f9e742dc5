//! Once, in order, and only the guilty are parked.

use oncebox_core::inbox::{OnFailure, StalePolicy};
use oncebox_core::store::DeadLetter;

use crate::coverage::Event;
use crate::log::{header_of, number_of};
use crate::messages::Excused;
use crate::plan::Place;
use crate::store::{Effect, OpenTxn, ReceiptOf, ReceiptRow, Spot};
use crate::world::Inner;

impl Inner {
    /// A transaction is about to commit.
    pub(crate) fn check_commit(&mut self, txn: &OpenTxn) {
        for effect in &txn.effects {
            let receipts = txn.receipts.iter().chain(&txn.renewed);
            let mine = |(_, of): &&(_, ReceiptOf)| (of.consumer, &of.id) == (effect.consumer, &effect.id);
            if receipts.filter(mine).count() == 0 {
                self.violate(format!("the effect of {} commits without its receipt", effect.id));
            }
            if txn.effects.iter().filter(|other| other.id == effect.id).count() > 1 {
                self.violate(format!("{} has two effects in one transaction", effect.id));
            }
            self.check_once(effect);
            self.check_order(effect);
        }
        for (_, ReceiptOf { consumer, id, .. }) in &txn.receipts {
            let applied = txn.effects.iter().any(|effect| (effect.consumer, &effect.id) == (*consumer, id));
            let parked = |(of, _, letter): &(usize, Place, DeadLetter)| {
                of == consumer && letter.message_id.as_ref() == Some(id)
            };
            if !applied && !txn.letters.iter().any(parked) {
                self.violate(format!("the receipt of {id} commits without an effect or a dead letter"));
            }
        }
        for (consumer, place, letter) in &txn.letters {
            self.check_blame(*consumer, *place, letter);
        }
    }

    /// No message has two effects, unless the copy came after the time that receipts are kept.
    fn check_once(&mut self, effect: &Effect) {
        let known = self.db.tables.applied.get(&(effect.consumer, effect.id.clone()));
        let Some(before) = known.map(|at| self.db.tables.effects[*at].true_ms) else { return };
        let keep = i64::try_from(self.config.keep.as_millis()).unwrap_or(i64::MAX);
        let spot = Spot { consumer: effect.consumer, place: effect.place };
        let available = self.available_ms(spot, effect.offset, effect.appended_ms);
        if available > before + keep || self.is_unseen_copy(effect) {
            self.saw(Event::DoubleAfterRetention);
            return;
        }
        self.violate(format!(
            "c{} applies {} twice: the copy at {}@{} was there {} s after the first effect, and receipts are kept for {} s",
            effect.consumer,
            effect.id,
            effect.place,
            effect.offset,
            (available - before) / 1_000,
            keep / 1_000,
        ));
    }

    /// Since when a record is there to be read: since it was appended, or since somebody went back to it.
    fn available_ms(&self, spot: Spot, offset: i64, appended_ms: i64) -> i64 {
        let again = self.log.reread.iter().filter(|(of, from, _)| *of == spot && *from <= offset);
        again.map(|(_, _, at)| *at).max().unwrap_or(appended_ms).max(appended_ms)
    }

    /// Messages of one key are applied in the order of their partition.
    fn check_order(&mut self, effect: &Effect) {
        let in_order = self.config.on_failure == OnFailure::ParkKey;
        let Some(key) = effect.key.clone() else { return };
        if effect.replayed && (!in_order || self.forced_replay) {
            return;
        }
        let tables = &self.db.tables;
        // A copy of what was applied before says nothing about order.
        if tables.applied.contains_key(&(effect.consumer, effect.id.clone())) {
            return;
        }
        let spot = Spot { consumer: effect.consumer, place: effect.place };
        let overtaken = tables.effects.iter().find(|other| {
            (other.consumer, other.place, other.writing) == (effect.consumer, effect.place, effect.writing)
                && other.key.as_ref() == Some(&key)
                && other.offset > effect.offset
        });
        let Some(other) = overtaken else { return };
        let moved = self.log.forgiven.iter().any(|(of, _, offset)| *of == spot && *offset == effect.offset);
        if !moved && !self.log.out_of_order.contains(&spot) {
            let other = format!("{}@{}", other.id, other.offset);
            self.violate(format!(
                "c{} applies {}@{} of {} after {other} of the same key",
                effect.consumer, effect.id, effect.offset, effect.place
            ));
        }
    }

    /// Only what is itself the reason is given up, and nothing where the partition should halt.
    fn check_blame(&mut self, consumer: usize, place: Place, letter: &DeadLetter) {
        if self.config.on_failure == OnFailure::GiveBack && letter.message_id.is_none() {
            self.violate(format!(
                "a message without an id is parked although it should be given back: {}",
                letter.error
            ));
        }
        let Some(id) = &letter.message_id else {
            self.saw(Event::Unfit);
            return;
        };
        let stale = self.config.stale == StalePolicy::Park
            && letter.error.contains("stale")
            && letter.record.timestamp_ms < self.db.tables.purged_before.get(&consumer).copied();
        if stale {
            self.saw(Event::ParkedStale);
            return;
        }
        if matches!(self.config.on_failure, OnFailure::Halt | OnFailure::GiveBack) {
            self.violate(format!("{id} is parked although nothing should be: {}", letter.error));
            return;
        }
        if self.config.on_failure == OnFailure::ParkKey && letter.error.contains("behind an earlier") {
            self.saw(Event::ParkedBehind);
            return;
        }
        self.saw(Event::Parked);
        let Some(sent) = self.messages.get(number_of(&letter.record)) else { return };
        // Attempts belong to offsets: in a log that was written anew another message may stand there.
        let takes_the_place = self.config.prefetch.is_none()
            && header_of(&letter.record, "writing") > 0
            && letter.error.contains("process ended");
        let excused = Excused { exposed: sent.exposed, killed: sent.killed };
        let (attempts, crash_limit) = (self.config.attempts, self.config.crash_limit);
        // The table came back between two looks: the failure counts, once.
        let late = letter.error.contains("table is missing") && self.db.healed_ms + 10_000 > self.now_ms();
        let excused = Excused { exposed: excused.exposed + u32::from(late), ..excused };
        let guilty = takes_the_place || sent.behaviour.may_be_parked(excused, attempts, crash_limit);
        if !guilty {
            let what = format!("{:?}, exposed {}, killed {}", sent.behaviour, sent.exposed, sent.killed);
            self.violate(format!("{id} of {place} is parked ({}) but is not to blame: {what}", letter.error));
        }
    }

    /// A receipt goes. No copy that is still to be read may need it.
    pub(crate) fn check_purge(&mut self, row: &ReceiptRow, keep: i64) {
        self.check_purge_for_queues(row, keep);
        for spot in self.log.spots().into_iter().filter(|spot| spot.consumer == row.of.consumer) {
            if !self.log.topics[spot.place.topic].exists {
                continue;
            }
            let partition = self.log.partition(spot.place);
            let next = self.db.tables.positions.get(&spot).and_then(|row| row.next_offset).unwrap_or(0);
            let unread = (next.max(partition.low)..partition.end()).filter_map(|offset| partition.at(offset));
            let needed = unread.filter(|entry| entry.id.as_ref() == Some(&row.of.id)).find(|entry| {
                self.available_ms(spot, entry.record.offset, entry.appended_ms) <= row.true_ms + keep
            });
            // Where it reads a log that is not the one it was, the offsets mean nothing.
            let same = self.log.begun.get(&spot) == Some(&partition.writing);
            if let Some(entry) = needed.filter(|_| same) {
                let at = entry.record.offset;
                self.violate(format!(
                    "the receipt of {} is purged, but a copy at {}@{at} is still to be read",
                    row.of.id, spot.place
                ));
            }
        }
    }
}

//! A commit: everything that a transaction wrote becomes true at once, or nothing does.

use oncebox_core::store::{Advance, Progress, StoreError, StoreResult, StoredDeadLetter};

use super::tables::{Effect, EventRowState, LetterRow, PositionRow, ReceiptRow, Spot};
use super::txn::{KnownCommitted, Moves, OpenTxn};
use crate::coverage::Event;
use crate::mistake::{Mistake, made};
use crate::world::Inner;

impl Inner {
    pub(super) fn moves(&self, advance: &Advance<'_>) -> Moves {
        let Progress { next_offset, at_least, commits, log, mark, caught_up_ms } = advance.progress;
        Moves {
            spot: self.log.spot(&advance.owner.key),
            epoch: advance.owner.epoch,
            next_offset,
            known: (at_least, commits),
            log: log.cloned(),
            mark,
            caught_up_ms,
            settled_attempt: advance.settled_attempt,
            duplicates: advance.duplicates,
        }
    }

    /// Commits an open transaction, unless its owner was fenced.
    pub(crate) fn commit_open(&mut self, id: u64) -> StoreResult<()> {
        let Some(txn) = self.db.open.remove(&id) else { return Ok(()) };
        if let Some(moves) = &txn.advance
            && !self.owns(moves.spot, moves.epoch, moves.known)
        {
            self.saw(Event::Fenced);
            self.release_letters(id);
            return Err(StoreError::fenced(format!("{:?}", moves.spot)));
        }
        self.check_commit(&txn);
        self.write(txn);
        Ok(())
    }

    /// Whether this epoch is the owner's, and the database has not forgotten what the owner knows to be committed.
    pub(super) fn owns(&self, spot: Spot, epoch: i64, known: KnownCommitted) -> bool {
        let row = self.db.tables.positions.get(&spot);
        row.is_some_and(|row| {
            let forgotten = row.next_offset < known.0 || Some(row.commits) < known.1;
            (row.epoch == epoch || made(Mistake::PositionWithoutEpoch))
                && (!forgotten || made(Mistake::ForgottenPosition))
        })
    }

    /// The mistake: an effect that does not wait for its receipt.
    pub(super) fn apply_at_once(&mut self, effect: Effect) {
        let effect = Effect { true_ms: self.now_ms(), ..effect };
        let known = (effect.consumer, effect.id.clone());
        if self.db.tables.applied.contains_key(&known) {
            self.violate(format!("{} has two effects", effect.id));
        }
        self.db.tables.applied.insert(known, self.db.tables.effects.len());
        self.db.tables.effects.push(effect);
    }

    fn write(&mut self, txn: OpenTxn) {
        let failed_at_ms = self.db_now_ms();
        let row = |consumer, id| ReceiptRow {
            consumer,
            id,
            processed_at_ms: txn.processed_at_ms,
            true_ms: txn.began_ms,
        };
        for (key, consumer, id) in txn.receipts {
            self.db.tables.receipts.insert(key, row(consumer, id));
        }
        for (key, consumer, id) in txn.renewed {
            let fresh = row(consumer, id);
            let receipt = self.db.tables.receipts.entry(key).or_insert_with(|| fresh.clone());
            if !made(Mistake::ReplayKeepsAge) {
                receipt.processed_at_ms = receipt.processed_at_ms.max(fresh.processed_at_ms);
                receipt.true_ms = fresh.true_ms;
            }
        }
        for (consumer, place, letter) in txn.letters {
            let number = self.db.next_letter;
            self.db.next_letter += 1;
            self.note(|| {
                let id = letter.message_id.as_deref().unwrap_or("no id");
                format!("c{consumer} parks {id} of {place}@{}: {}", letter.record.offset, letter.error)
            });
            let stored =
                StoredDeadLetter { number, consumer: self.log.consumer(consumer), letter, failed_at_ms };
            self.db.tables.letters.insert(number, LetterRow { consumer, place, stored, taken_by: None });
        }
        if let Some(number) = txn.taken {
            self.db.tables.letters.remove(&number);
        }
        for effect in txn.effects {
            self.saw(Event::Applied);
            self.note(|| {
                let how = if effect.replayed { " (replay)" } else { "" };
                format!(
                    "c{} applies {} of {}@{}{how}",
                    effect.consumer, effect.id, effect.place, effect.offset
                )
            });
            let at = self.db.tables.effects.len();
            self.db.tables.applied.insert((effect.consumer, effect.id.clone()), at);
            self.db.tables.effects.push(effect);
        }
        self.sink.next_commit();
        for (seq, shard, event) in txn.events {
            self.sink.committed(seq, &event);
            self.db.tables.emitted.insert(seq);
            let row = EventRowState { event, shard, held_until_ms: None, parked: false, published_ms: None };
            self.db.tables.outbox.insert(seq, row);
        }
        if let Some(moves) = txn.advance {
            for _ in 0..moves.duplicates {
                self.saw(Event::DuplicateSkipped);
            }
            if let Some(offset) = moves.settled_attempt {
                self.db.tables.attempts.remove(&(moves.spot, offset));
            }
            self.advance(&moves, true);
        }
    }

    /// Moves a position; its epoch was checked.
    pub(super) fn advance(&mut self, moves: &Moves, commits: bool) {
        self.check_progress(moves);
        let begins = self.db.tables.positions.get(&moves.spot).is_none_or(|row| row.next_offset.is_none());
        if let Some(next) = moves.next_offset.filter(|_| begins) {
            // What was removed before the beginning is nobody's.
            self.forgive_removed(moves.spot, next);
        }
        let now = self.db_now_ms();
        let row: &mut PositionRow = self.db.tables.positions.entry(moves.spot).or_default();
        // With several lanes a commit may be of duplicates ahead of the position: that is no progress.
        let moved = moves.next_offset > row.next_offset || made(Mistake::AnyCommitIsProgress);
        row.next_offset = row.next_offset.max(moves.next_offset);
        if moves.log.is_some() {
            row.log.clone_from(&moves.log);
        }
        if let Some(mark) = moves.mark
            && row.mark.is_none_or(|known| known.offset <= mark.offset)
        {
            row.mark = Some(mark);
        }
        if let Some(caught_up) = moves.caught_up_ms {
            row.caught_up_ms = row.caught_up_ms.max(Some(caught_up.min(now)));
            let known = row.caught_up_ms.unwrap_or_default() - crate::world::BEGIN_MS;
            let spot = moves.spot;
            self.note(|| {
                format!(
                    "c{} has caught up in {} until {}.{:03}",
                    spot.consumer,
                    spot.place,
                    known / 1_000,
                    known % 1_000
                )
            });
        }
        let row = self.db.tables.positions.entry(moves.spot).or_default();
        if commits {
            row.starts = if moved { 0 } else { row.starts };
            row.commits += 1;
        }
        let next = row.next_offset;
        self.log.position_reached(moves.spot, next);
    }
}

//! A commit: everything that a transaction wrote becomes true at once, or nothing does.

use oncebox_core::store::{Advance, DeadLetter, StoreError, StoreResult, StoredDeadLetter};

use super::access::away;
use super::tables::{Effect, LetterRow, ReceiptRow, Spot};
use super::txn::OpenTxn;
use super::{ModelStore, Txn};
use crate::coverage::Event;
use crate::log::header_of;
use crate::mistake::{Mistake, made};
use crate::plan::Fault;
use crate::world::{About, Inner};

/// Moves the position and commits; the answer may be lost on its way.
pub(super) async fn commit(store: &ModelStore, txn: Txn, advance: Option<&Advance<'_>>) -> StoreResult<()> {
    let id = txn.id;
    store.world.alive(store.actor).await;
    {
        let mut inner = store.world.lock();
        let moves = advance.map(|advance| inner.moves(advance));
        let Some(open) = inner.db.open.get_mut(&id) else { return Err(away()) };
        open.advance = moves;
        open.commit_sent = true;
    }
    store.reach().await?;
    let lost = {
        let mut inner = store.world.lock();
        if inner.db.takes(Fault::CommitUndone) {
            inner.saw(Event::LostAnswerUndone);
            inner.attempts_are_stranded();
            return Err(away());
        }
        inner.in_txn(id, |inner, id| inner.commit_open(id))?;
        inner.db.takes(Fault::CommitAnswerLost)
    };
    store.world.stir(About::Transactions);
    store.world.takes_time(store.actor).await;
    if lost {
        let mut inner = store.world.lock();
        inner.saw(Event::LostAnswerCommitted);
        inner.attempts_are_stranded();
        return Err(away());
    }
    Ok(())
}

impl Inner {
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

    /// What has no id is known by its place, in all stores. In a log that was cut and written on under the same identity
    /// another message may stand there; it gets no letter. That is no more than the stores promise, but it is counted.
    fn forgive_taken_place(&mut self, spot: Spot, letter: &DeadLetter, known: i64) {
        let writing = header_of(&letter.record, "writing");
        if writing != known {
            self.saw(Event::PlaceTaken);
            let offset = letter.record.offset;
            self.log.forgiven.insert((spot, u32::try_from(writing).unwrap_or_default(), offset));
        }
    }

    fn write(&mut self, txn: OpenTxn) {
        let failed_at_ms = self.db_now_ms();
        let row = |of| ReceiptRow { of, processed_at_ms: txn.processed_at_ms, true_ms: txn.began_ms };
        for (key, of) in txn.receipts {
            self.db.tables.receipts.insert(key, row(of));
        }
        for (key, of) in txn.renewed {
            let fresh = row(of);
            let receipt = self.db.tables.receipts.entry(key).or_insert_with(|| fresh.clone());
            if !made(Mistake::ReplayKeepsAge) {
                receipt.processed_at_ms = receipt.processed_at_ms.max(fresh.processed_at_ms);
                receipt.true_ms = fresh.true_ms;
            }
        }
        for (consumer, place, letter) in txn.letters {
            if let Some(known) = self.letter_without_id(consumer, place, &letter) {
                self.forgive_taken_place(Spot { consumer, place }, &letter, known);
                continue;
            }
            let number = self.db.next_letter;
            self.db.next_letter += 1;
            self.note(|| {
                let id = letter.message_id.as_deref().unwrap_or("no id");
                format!("c{consumer} parks {id} of {place}@{}: {}", letter.record.offset, letter.error)
            });
            let stored = StoredDeadLetter {
                number,
                consumer: self.log.consumer(consumer),
                letter,
                failed_at_ms,
                edit: None,
            };
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
        for row in txn.events {
            let seq = row.event.seq;
            self.sink.committed(seq, &row.event);
            self.db.tables.emitted.insert(seq);
            self.db.tables.outbox.insert(seq, row);
        }
        if let Some(moves) = txn.advance {
            for _ in 0..moves.duplicates.total() {
                self.saw(Event::DuplicateSkipped);
            }
            if let Some(offset) = moves.finished_attempt {
                self.db.tables.attempts.remove(&(moves.spot, offset));
            }
            self.advance(&moves, true);
        }
    }
}

//! Retention in the model database: one process at a time makes a pass, in small steps, and another goes on where it was left.

use std::ops::Bound;

use oncebox_core::inbox::ReceiptKey;
use oncebox_core::names::ConsumerName;
use oncebox_core::store::{PassEnd, Purge, PurgePass, PurgeProgress, Purged, StoreResult};

use super::{ModelStore, ReceiptRow, Txn};
use crate::coverage::Event;
use crate::mistake::{Mistake, made};
use crate::world::Inner;

/// Receipts that one step looks at.
const STEP: usize = 16;

/// How long a purger that is not heard of keeps its turn.
const TURN_MS: i64 = 60_000;

impl Purge for ModelStore {
    async fn purged_before(&self, txn: &mut Txn, consumer: &ConsumerName) -> StoreResult<Option<i64>> {
        self.statement(txn.id, |inner, _| {
            let consumer = inner.log.consumer_index(consumer.as_str());
            Ok(inner.db.tables.purged_before.get(&consumer).copied())
        })
        .await
    }

    async fn purge(&self, pass: PurgePass<'_>) -> StoreResult<Purged> {
        let mut purged = Purged::default();
        if pass.stop.is_cancelled() {
            return Ok(Purged { end: PassEnd::Stopped, ..purged });
        }
        if pass.dry_run {
            purged.receipts = self.operation(|inner| Ok(inner.count_due(&pass))).await?;
            return Ok(purged);
        }
        let Some(turn) = self.operation(|inner| Ok(inner.take_turn())).await? else {
            return Ok(Purged { end: PassEnd::Elsewhere, ..purged });
        };
        loop {
            if pass.stop.is_cancelled() {
                self.operation(|inner| inner.give_back_turn(turn)).await?;
                return Ok(Purged { end: PassEnd::Stopped, ..purged });
            }
            let Some(step) = self.operation(|inner| Ok(inner.purge_step(&pass, turn))).await? else {
                return Ok(Purged { end: PassEnd::Elsewhere, ..purged });
            };
            purged.receipts += step.removed;
            (pass.progress)(step);
            if step.done == step.total {
                return Ok(purged);
            }
        }
    }
}

impl Inner {
    /// The number of this turn; `None` if another process is at it.
    fn take_turn(&mut self) -> Option<u64> {
        let now = self.db_now_ms();
        let purger = &mut self.db.tables.purger;
        if purger.turn.is_some() && purger.until_ms > now && purger.until_ms <= now + TURN_MS {
            return None;
        }
        // As with any sequence: a failover brings none back.
        self.db.next_turn += 1;
        (purger.turn, purger.until_ms) = (Some(self.db.next_turn), now + TURN_MS);
        purger.turn
    }

    /// Whoever is next goes on from where it is.
    fn give_back_turn(&mut self, turn: u64) -> StoreResult<()> {
        let purger = &mut self.db.tables.purger;
        purger.turn = purger.turn.filter(|other| *other != turn);
        Ok(())
    }

    /// Up to when everything that a consumer's logs held is settled; `None` if nobody knows.
    fn caught_up(&self, consumer: usize, now: i64) -> Option<i64> {
        let positions = self.db.tables.positions.iter();
        let mine = positions.filter(|(spot, row)| spot.consumer == consumer && !row.retired);
        let caught_up = mine.map(|(_, row)| row.caught_up_ms);
        if made(Mistake::FastestPartition) {
            // The time of the newest progress anywhere.
            return caught_up.max().flatten().map(|at| at.min(now));
        }
        caught_up.min().map_or(Some(now), |slowest| slowest.map(|at| at.min(now)))
    }

    /// The retention and the horizon of a receipt that may go.
    fn due(&mut self, pass: &PurgePass<'_>, row: &ReceiptRow) -> Option<(i64, i64)> {
        let now = if made(Mistake::PurgeByDatabaseClock) {
            self.db_now_ms()
        } else {
            self.db_now_ms().min(pass.now_ms)
        };
        let name = self.log.consumer(row.of.consumer);
        let retention = pass.retention.iter().find(|r| r.consumer.as_str() == name)?;
        let keep = i64::try_from(retention.keep.as_millis()).unwrap_or(i64::MAX);
        let by_wall_clock = made(Mistake::PurgeByWallClock) || made(Mistake::PurgeByDatabaseClock);
        let caught_up = if by_wall_clock { Some(now) } else { self.caught_up(row.of.consumer, now) };
        let old = |until: i64| row.processed_at_ms < until - keep;
        let Some(caught_up) = caught_up.filter(|until| old(*until)) else {
            if old(now) {
                self.saw(Event::PurgeHeld);
            }
            return None;
        };
        let in_letters = self.db.tables.letters.values().any(|other| {
            let letter = &other.stored.letter;
            other.consumer == row.of.consumer
                && letter.tenant.as_str() == row.of.tenant
                && letter.message_id.as_deref() == Some(&row.of.id)
        });
        (!in_letters).then_some((keep, caught_up - keep))
    }

    fn count_due(&mut self, pass: &PurgePass<'_>) -> u64 {
        let rows: Vec<ReceiptRow> = self.db.tables.receipts.values().cloned().collect();
        rows.iter().filter(|row| self.due(pass, row).is_some()).count() as u64
    }

    /// `None` if another process has the turn. With the last step it is given back.
    fn purge_step(&mut self, pass: &PurgePass<'_>, turn: u64) -> Option<PurgeProgress> {
        let until_ms = self.db_now_ms() + TURN_MS;
        let tables = &mut self.db.tables;
        if tables.purger.turn != Some(turn) {
            return None;
        }
        let after = tables.purger.reached.map_or(Bound::Unbounded, Bound::Excluded);
        let left = || tables.receipts.range((after, Bound::Unbounded));
        let steps_left = left().count().div_ceil(STEP).max(1) as u64;
        let rows: Vec<(ReceiptKey, ReceiptRow)> =
            left().take(STEP).map(|(key, row)| (*key, row.clone())).collect();
        tables.purger.until_ms = until_ms;
        tables.purger.reached = rows.last().map(|(key, _)| *key);
        tables.purger.done += 1;
        let done = tables.purger.done;
        if steps_left == 1 {
            tables.purger = super::tables::Purger::default();
        }
        let mut removed = 0;
        for (key, row) in rows {
            let Some((keep, horizon)) = self.due(pass, &row) else { continue };
            self.check_purge(&row, keep);
            self.db.tables.receipts.remove(&key);
            let purged = self.db.tables.purged_before.entry(row.of.consumer).or_insert(horizon);
            *purged = (*purged).max(horizon);
            removed += 1;
            self.saw(Event::Purged);
        }
        Some(PurgeProgress { removed, done, total: done + steps_left - 1 })
    }
}

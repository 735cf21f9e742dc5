//! Retention in the model database.

use oncebox_core::inbox::ReceiptKey;
use oncebox_core::names::ConsumerName;
use oncebox_core::store::{PassEnd, Purge, PurgePass, PurgeProgress, Purged, StoreResult};

use super::{ModelStore, Txn};
use crate::coverage::Event;
use crate::mistake::{Mistake, made};
use crate::world::Inner;

/// Receipts that one step looks at.
const STEP: usize = 16;

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
        let mut after: Option<ReceiptKey> = None;
        loop {
            if pass.stop.is_cancelled() {
                purged.end = PassEnd::Stopped;
                return Ok(purged);
            }
            let (removed, last) = self.operation(|inner| Ok(inner.purge_step(&pass, after))).await?;
            purged.receipts += removed;
            (pass.progress)(PurgeProgress { removed, done: 1, total: 1 });
            match last {
                Some(last) => after = Some(last),
                None => return Ok(purged),
            }
        }
    }
}

impl Inner {
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

    fn purge_step(&mut self, pass: &PurgePass<'_>, after: Option<ReceiptKey>) -> (u64, Option<ReceiptKey>) {
        let now = if made(Mistake::PurgeByDatabaseClock) {
            self.db_now_ms()
        } else {
            self.db_now_ms().min(pass.now_ms)
        };
        let rows = self.db.tables.receipts.iter();
        let keys: Vec<ReceiptKey> = rows
            .map(|(key, _)| *key)
            .filter(|key| after.is_none_or(|after| *key > after))
            .take(STEP)
            .collect();
        let mut removed = 0;
        for key in &keys {
            let row = self.db.tables.receipts[key].clone();
            let name = self.log.consumer(row.consumer);
            let Some(retention) = pass.retention.iter().find(|r| r.consumer.as_str() == name) else {
                continue;
            };
            let keep = i64::try_from(retention.keep.as_millis()).unwrap_or(i64::MAX);
            let by_wall_clock = made(Mistake::PurgeByWallClock) || made(Mistake::PurgeByDatabaseClock);
            let horizon = if by_wall_clock { Some(now) } else { self.caught_up(row.consumer, now) };
            let old = |horizon: i64| row.processed_at_ms < horizon - keep;
            if !horizon.is_some_and(old) {
                if old(now) {
                    self.saw(Event::PurgeHeld);
                }
                continue;
            }
            let in_letters = self.db.tables.letters.values().any(|letter| {
                letter.consumer == row.consumer && letter.stored.letter.message_id.as_deref() == Some(&row.id)
            });
            if in_letters || pass.dry_run {
                continue;
            }
            self.check_purge(&row, keep);
            self.db.tables.receipts.remove(key);
            let horizon = horizon.unwrap_or(now) - keep;
            let purged = self.db.tables.purged_before.entry(row.consumer).or_insert(horizon);
            *purged = (*purged).max(horizon);
            removed += 1;
            self.saw(Event::Purged);
        }
        (removed, (keys.len() == STEP).then(|| keys.last().copied()).flatten())
    }
}

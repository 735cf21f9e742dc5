//! Positions, and the attempts of the crash guard.

use oncebox_core::source::LogId;
use oncebox_core::store::{Ownership, PositionKey, Progress, StoreError, StoreResult};

use super::ModelStore;
use super::txn::{KnownCommitted, Moves};
use crate::coverage::Event;
use crate::mistake::{Mistake, made};
use crate::world::Inner;

impl ModelStore {
    pub(super) async fn take_over(&self, key: &PositionKey) -> StoreResult<Ownership> {
        let actor = self.actor;
        self.operation(|inner| {
            let spot = inner.log.spot(key);
            let tables = &mut inner.db.tables;
            let row = tables.positions.entry(spot).or_default();
            row.epoch += 1;
            row.starts += 1;
            let was_retired = std::mem::take(&mut row.retired);
            let next = row.next_offset.unwrap_or(i64::MIN);
            let row = row.clone();
            tables.attempts.retain(|(of, offset), _| *of != spot || *offset >= next);
            let attempts_recorded = tables.attempts.keys().any(|(of, _)| *of == spot);
            inner.note(|| {
                format!(
                    "p{} takes over {spot:?} at {:?}, epoch {}",
                    actor.process, row.next_offset, row.epoch
                )
            });
            Ok(Ownership {
                key: key.clone(),
                epoch: row.epoch,
                next_offset: row.next_offset,
                log: row.log,
                mark: row.mark,
                floor: row.floor,
                was_retired,
                commits: row.commits,
                starts: row.starts,
                attempts_recorded,
            })
        })
        .await
    }

    pub(super) async fn write_progress(&self, owner: &Ownership, progress: Progress<'_>) -> StoreResult<()> {
        self.operation(|inner| {
            let spot = inner.log.spot(&owner.key);
            inner.must_own(owner, (progress.at_least, progress.commits))?;
            let Progress { next_offset, at_least, commits, log, mark, caught_up_ms } = progress;
            let moves = Moves {
                spot,
                epoch: owner.epoch,
                next_offset,
                known: (at_least, commits),
                log: log.cloned(),
                mark,
                caught_up_ms,
                settled_attempt: None,
                duplicates: 0,
            };
            inner.check_log(&moves);
            inner.advance(&moves, false);
            Ok(())
        })
        .await
    }

    pub(super) async fn give_back(&self, owner: &Ownership) -> StoreResult<()> {
        self.operation(|inner| {
            let spot = inner.log.spot(&owner.key);
            if inner.owns(spot, owner.epoch, (None, None)) && !made(Mistake::OrderlyEndCounts) {
                inner.db.tables.attempts.retain(|(of, _), _| *of != spot);
                if let Some(row) = inner.db.tables.positions.get_mut(&spot) {
                    row.starts = 0;
                }
            }
            Ok(())
        })
        .await
    }

    pub(super) async fn write_attempt(&self, owner: &Ownership, offset: i64) -> StoreResult<u32> {
        let actor = self.actor;
        self.operation(|inner| {
            let spot = inner.log.spot(&owner.key);
            inner.must_own(owner, (None, None))?;
            inner.saw(Event::GuardedAttempt);
            inner.db.attempted_by.insert((spot, offset), actor);
            let attempts = inner.db.tables.attempts.entry((spot, offset)).or_default();
            *attempts += 1;
            Ok(*attempts)
        })
        .await
    }

    pub(super) async fn take_back_attempt(&self, owner: &Ownership, offset: i64) -> StoreResult<()> {
        self.operation(|inner| {
            let spot = inner.log.spot(&owner.key);
            if !inner.owns(spot, owner.epoch, (None, None)) || made(Mistake::OrderlyEndCounts) {
                return Ok(());
            }
            if let Some(attempts) = inner.db.tables.attempts.get_mut(&(spot, offset)) {
                *attempts = attempts.saturating_sub(1);
                if *attempts == 0 {
                    inner.db.tables.attempts.remove(&(spot, offset));
                }
            }
            Ok(())
        })
        .await
    }

    pub(super) async fn set_position(
        &self,
        key: &PositionKey,
        next_offset: i64,
        log: Option<&LogId>,
    ) -> StoreResult<()> {
        self.operation(|inner| {
            let spot = inner.log.spot(key);
            let tables = &mut inner.db.tables;
            let row = tables.positions.entry(spot).or_default();
            row.epoch += 1;
            row.next_offset = Some(next_offset);
            row.log = log.cloned();
            row.mark = None;
            row.floor = Some(next_offset);
            row.starts = 0;
            row.caught_up_ms = None;
            row.retired = false;
            tables.attempts.retain(|(of, _), _| *of != spot);
            Ok(())
        })
        .await
    }
}

impl Inner {
    fn must_own(&mut self, owner: &Ownership, known: KnownCommitted) -> StoreResult<()> {
        if self.owns(self.log.spot(&owner.key), owner.epoch, known) {
            return Ok(());
        }
        self.saw(Event::Fenced);
        Err(StoreError::fenced(owner.key.to_string()))
    }
}

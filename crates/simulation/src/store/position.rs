//! Positions, and the attempts of the crash guard.

use oncebox_core::names::ConsumerName;
use oncebox_core::source::LogId;
use oncebox_core::store::{
    Advance, Duplicates, Ownership, PositionKey, Positions, Progress, StoreError, StoreResult,
};

use super::ModelStore;
use super::tables::{PositionRow, Spot};
use super::txn::{KnownCommitted, Moves};
use crate::coverage::Event;
use crate::mistake::{Mistake, made};
use crate::world::Inner;

impl Positions for ModelStore {
    async fn acquire(&self, key: &PositionKey) -> StoreResult<Ownership> {
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
            // Of a queue everybody does that all the time.
            if inner.config.prefetch.is_none() {
                inner.note(|| {
                    format!(
                        "p{} takes over {spot:?} at {:?}, epoch {}",
                        actor.process, row.next_offset, row.epoch
                    )
                });
            }
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
                settled_to: row.settled_to,
                rewound_to: row.rewound_to,
            })
        })
        .await
    }

    async fn record_progress(&self, owner: &Ownership, progress: Progress<'_>) -> StoreResult<()> {
        self.operation(|inner| {
            inner.must_own(owner, (progress.at_least, progress.commits))?;
            let moves = inner.moves(&Advance {
                owner,
                progress,
                applied: 0,
                duplicates: Duplicates::default(),
                finished_attempt: None,
            });
            inner.check_log(&moves);
            inner.advance(&moves, false);
            Ok(())
        })
        .await
    }

    async fn release(&self, owner: &Ownership) -> StoreResult<()> {
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

    async fn record_attempt(&self, owner: &Ownership, offset: i64) -> StoreResult<u32> {
        let actor = self.actor;
        self.operation(|inner| {
            let spot = inner.log.spot(&owner.key);
            inner.must_own(owner, (None, None))?;
            inner.saw(Event::GuardedAttempt);
            let queue = inner.config.prefetch.is_some();
            if queue {
                inner.excuse_if_shared(spot, offset, actor);
            }
            let by = inner.db.attempted_by.entry((spot, offset)).or_default();
            by.retain(|other| queue && *other != actor);
            by.push(actor);
            let attempts = inner.db.tables.attempts.entry((spot, offset)).or_default();
            *attempts += 1;
            Ok(*attempts)
        })
        .await
    }

    async fn withdraw_attempt(&self, owner: &Ownership, offset: i64) -> StoreResult<()> {
        self.operation(|inner| {
            let spot = inner.log.spot(&owner.key);
            if !inner.owns(spot, owner.epoch, (None, None)) {
                inner.excuse_if_stranded(spot, offset);
                return Ok(());
            }
            if made(Mistake::OrderlyEndCounts) {
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

    async fn move_position(
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
            if row.log.as_ref().zip(log).is_some_and(|(was, is)| was != is) {
                (row.settled_to, row.rewound_to) = (Some(next_offset), None);
            } else {
                row.rewound_to = row.settled_to.or(row.next_offset);
            }
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

    async fn retire_positions(&self, consumer: &ConsumerName, topic: &str) -> StoreResult<u64> {
        self.operation(|inner| {
            let consumer = inner.log.consumer_index(consumer.as_str());
            let topic = inner.log.place(topic, 0).topic;
            let rows = inner.db.tables.positions.iter_mut();
            let mut retired = 0;
            for (_, row) in rows.filter(|(spot, _)| spot.consumer == consumer && spot.place.topic == topic) {
                row.retired = true;
                retired += 1;
            }
            Ok(retired)
        })
        .await
    }
}

impl Inner {
    fn must_own(&mut self, owner: &Ownership, known: KnownCommitted) -> StoreResult<()> {
        let spot = self.log.spot(&owner.key);
        if self.owns(spot, owner.epoch, known) {
            return Ok(());
        }
        self.saw(Event::Fenced);
        Err(StoreError::fenced(owner.key.to_string()))
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

    pub(super) fn moves(&mut self, advance: &Advance<'_>) -> Moves {
        let Progress { next_offset, at_least, commits, log, mark, caught_up_ms, settled_to, rewound_to } =
            advance.progress;
        Moves {
            spot: self.log.spot(&advance.owner.key),
            epoch: advance.owner.epoch,
            next_offset,
            known: (at_least, commits),
            log: log.cloned(),
            mark,
            caught_up_ms,
            finished_attempt: advance.finished_attempt,
            applied: advance.applied,
            duplicates: advance.duplicates,
            settled_to,
            rewound_to,
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
        // With several lanes a commit may be of duplicates ahead of the position: that is not progress.
        let moved = moves.next_offset > row.next_offset || made(Mistake::AnyCommitIsProgress);
        row.next_offset = row.next_offset.max(moves.next_offset);
        row.settled_to = row.settled_to.max(moves.settled_to);
        row.rewound_to = row.rewound_to.max(moves.rewound_to);
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
            let known = row.caught_up_ms.unwrap_or_default();
            let known = self.since_begin(known);
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
            row.applied += moves.applied;
            row.duplicates += moves.duplicates;
            row.updated_ms = now;
            // Whoever applies something has not gone.
            row.retired = false;
        }
        let next = row.next_offset;
        self.log.position_reached(moves.spot, next);
    }
}

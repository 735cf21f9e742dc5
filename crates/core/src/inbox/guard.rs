//! The guard against crash loops: one message at a time, with its attempt written down first.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::Engine;
use super::item::Item;
use super::partition::Partition;
use super::policy::OnFailure;
use super::transaction::{Task, Trouble};
use crate::mistake::mistaken;
use crate::store::{InboxStore, Ownership, PositionKey, Progress, StoreResult};

/// While it is up, the lanes of a partition run one message at a time, alone in the process.
///
/// It goes up when the partition was taken over several times without progress: something at this position ends the
/// process. One message at a time tells which.
#[derive(Debug)]
pub(crate) struct CrashGuard {
    remaining: AtomicUsize,
}

impl CrashGuard {
    /// Up for as many messages as may have been in flight when the process ended.
    pub(crate) fn up_for(messages: usize) -> Self {
        Self { remaining: AtomicUsize::new(messages) }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.remaining.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn one_done(&self) {
        let less = |left: usize| Some(left.saturating_sub(1));
        self.remaining.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok();
    }
}

/// A message that runs under the guard.
#[derive(Debug)]
pub(crate) struct Guarded<'s> {
    notes: Notes<'s>,
    /// Attempts that ended in good order and could not be taken back, because the database was away.
    owed: AtomicU32,
}

/// Where its attempts are written down, and under which number.
#[derive(Debug, Clone, Copy)]
enum Notes<'s> {
    /// With the position of its partition, by its offset.
    Owned(&'s Ownership),
    /// With the queue, by its receipt: another process may get it the next time, under another number.
    Shared(&'s PositionKey),
}

impl<'s> Guarded<'s> {
    pub(crate) fn at_position(owner: &'s Ownership) -> Self {
        Self { notes: Notes::Owned(owner), owed: AtomicU32::new(0) }
    }

    pub(crate) fn in_queue(queue: &'s PositionKey) -> Self {
        Self { notes: Notes::Shared(queue), owed: AtomicU32::new(0) }
    }

    /// For another message of the same partition.
    pub(super) fn another(&self) -> Self {
        Self { notes: self.notes, owed: AtomicU32::new(0) }
    }

    fn number_of(&self, item: &Item) -> i64 {
        match (self.notes, item) {
            (Notes::Shared(_), Item::Fit(_, receipt)) => receipt.number(),
            _ => item.offset(),
        }
    }
}

impl<S: InboxStore> Engine<S> {
    /// Runs a message alone in the process. If the process ends meanwhile, the attempt stays behind; whatever else happens,
    /// it is taken back.
    pub(super) async fn transact_alone(
        self: &Arc<Self>,
        partition: &Arc<Partition>,
        items: &Arc<Vec<Item>>,
        range: Range<usize>,
        task: Task,
        guarded: &Guarded<'_>,
    ) -> Result<(), Trouble> {
        let number = guarded.number_of(&items[range.start]);
        let _alone = if mistaken("BlameNeighbour") { None } else { Some(self.settings.turn.alone().await) };
        let recorded = self.record_attempt(guarded, number).await;
        if recorded.is_err() {
            // It may be written down although the answer got lost.
            guarded.owed.fetch_add(1, Ordering::Relaxed);
        }
        let attempts = recorded?;
        let ended = attempts.saturating_sub(1).saturating_sub(guarded.owed.load(Ordering::Relaxed));
        let too_often = ended >= self.settings.crash_limit;
        let probe = matches!(task, Task::Probe);
        let result = match task {
            Task::Apply if too_often => {
                let error = format!("the process ended {ended} times while this message was being applied");
                let keeps_none = matches!(self.settings.on_failure, OnFailure::Halt | OnFailure::GiveBack);
                if keeps_none && !mistaken("HaltOverridden") {
                    Err(Trouble::KeepsCrashing(error))
                } else {
                    tracing::error!(position = %partition.key, message = %items[range.start], error, "the message is given up");
                    let park = Task::Park { error, attempts: ended };
                    self.transact(partition, items, range, park, Some(number)).await
                }
            }
            Task::Probe if too_often => Err(Trouble::NothingToTry),
            task => self.transact(partition, items, range, task, Some(number)).await,
        };
        let settled = result.is_ok() && !probe;
        match guarded.notes {
            // Forgotten with the commit of the position.
            Notes::Owned(_) if settled => {}
            Notes::Shared(queue) if settled => self.forget_attempts(queue, number).await,
            _ => {
                if self.withdraw_attempt(guarded, number).await.is_err() {
                    guarded.owed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        result
    }

    async fn record_attempt(&self, guarded: &Guarded<'_>, number: i64) -> StoreResult<u32> {
        match guarded.notes {
            Notes::Owned(owner) => {
                let _connection = self.connections.take().await;
                self.store.record_attempt(owner, number).await
            }
            Notes::Shared(queue) => {
                self.as_owner(queue, |owner| async move { self.store.record_attempt(&owner, number).await })
                    .await
            }
        }
    }

    async fn withdraw_attempt(&self, guarded: &Guarded<'_>, number: i64) -> StoreResult<()> {
        match guarded.notes {
            Notes::Owned(owner) => {
                let _connection = self.connections.take().await;
                self.store.withdraw_attempt(owner, number).await
            }
            Notes::Shared(queue) => {
                self.as_owner(queue, |owner| async move {
                    self.store.withdraw_attempt(&owner, number).await?;
                    // Who was interrupted has withdrawn nothing and is not told so; this tells. An attempt that stayed
                    // behind would blame an innocent message. If it is withdrawn twice, one end of the process is forgotten.
                    self.store.record_progress(&owner, Progress::default()).await
                })
                .await
            }
        }
    }
}

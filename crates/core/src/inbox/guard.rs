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
use crate::store::{InboxStore, Ownership};

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
    pub(crate) owner: &'s Ownership,
    /// Attempts that ended in good order and could not be taken back, because the database was away.
    owed: AtomicU32,
}

impl<'s> Guarded<'s> {
    pub(crate) fn new(owner: &'s Ownership) -> Self {
        Self { owner, owed: AtomicU32::new(0) }
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
        let offset = items[range.start].offset();
        let _alone = if mistaken("BlameNeighbour") { None } else { Some(self.settings.turn.alone().await) };
        let recorded = self.store.record_attempt(guarded.owner, offset).await;
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
                if self.settings.on_failure == OnFailure::Halt && !mistaken("HaltOverridden") {
                    Err(Trouble::KeepsCrashing(error))
                } else {
                    tracing::error!(position = %partition.key, offset, error, "the message is given up");
                    let park = Task::Park { error, attempts: ended };
                    self.transact(partition, items, range, park, Some(offset)).await
                }
            }
            Task::Probe if too_often => Err(Trouble::NothingToTry),
            task => self.transact(partition, items, range, task, Some(offset)).await,
        };
        // What commits settles its attempt; a probe does not commit.
        let over = result.is_err() || probe;
        if over && self.store.withdraw_attempt(guarded.owner, offset).await.is_err() {
            guarded.owed.fetch_add(1, Ordering::Relaxed);
        }
        result
    }
}

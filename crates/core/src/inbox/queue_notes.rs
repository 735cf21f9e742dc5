//! What is written down about a queue, which nobody owns: how much of it was applied, until when it is caught up, and who was
//! tried how often.
//!
//! It stands where positions stand, in one row for all processes that read the queue. Whoever writes there takes it over for
//! that moment, and whoever was interrupted by another does it once more.

use std::future::Future;
use std::time::Duration;

use tracing::debug;

use super::Engine;
use super::deliveries::Untold;
use super::partition::Partition;
use crate::backoff;
use crate::error::describe;
use crate::store::{Advance, Claimed, ErrorClass, InboxStore, Ownership, PositionKey, Progress, StoreResult};

/// How often others may come in between before it counts as trouble.
const MAX_INTERRUPTIONS: u32 = 10;

/// How often the database is told.
const NOTE_EVERY: Duration = Duration::from_secs(5);

impl<S: InboxStore> Engine<S> {
    /// Does something that only an owner may.
    pub(super) async fn as_owner<T, F>(
        &self,
        queue: &PositionKey,
        work: impl Fn(Ownership) -> F + Send,
    ) -> StoreResult<T>
    where
        F: Future<Output = StoreResult<T>> + Send,
        T: Send,
    {
        let mut interruptions = 0;
        loop {
            let _connection = self.connections.take().await;
            let owner = self.store.acquire(queue).await?;
            match work(owner).await {
                Err(e) if e.class == ErrorClass::Fenced && interruptions < MAX_INTERRUPTIONS => {
                    interruptions += 1;
                    tokio::time::sleep(backoff::TURN.delay(interruptions)).await;
                }
                // Nobody owns a queue, so nobody has lost it: it is only busy.
                other => {
                    return other.map_err(|e| match e.class {
                        ErrorClass::Fenced => e.with_class(ErrorClass::Transient),
                        _ => e,
                    });
                }
            }
        }
    }

    /// Tells the database now and then what became of the messages of a queue.
    pub(super) async fn keep_queue_notes(&self, partition: &Partition) {
        loop {
            tokio::select! {
                biased;
                () = partition.queues.ended() => return,
                () = tokio::time::sleep(NOTE_EVERY) => self.write_queue_notes(partition).await,
            }
        }
    }

    /// Tells it what it was not told yet. What cannot be told now is told the next time.
    pub(super) async fn write_queue_notes(&self, partition: &Partition) {
        let Some(deliveries) = &partition.deliveries else { return };
        let Some(untold) = deliveries.take_untold() else { return };
        if let Err(e) = self.note(&partition.key, untold, None).await {
            deliveries.put_back(untold);
            debug!(queue = %partition.key, error = describe(&e), "the notes of a queue could not be written");
        }
    }

    /// The message is settled, so nobody asks for its attempts any more: if it fails, nothing is lost.
    pub(super) async fn forget_attempts(&self, queue: &PositionKey, number: i64) {
        if let Err(e) = self.note(queue, Untold::default(), Some(number)).await {
            debug!(%queue, error = describe(&e), "the attempts at a settled message could not be forgotten");
        }
    }

    async fn note(
        &self,
        queue: &PositionKey,
        untold: Untold,
        finished_attempt: Option<i64>,
    ) -> StoreResult<()> {
        self.as_owner(queue, |owner| async move {
            let Claimed { txn, .. } = self.store.claim(&self.consumer, &[]).await?;
            let Untold { applied, duplicates, caught_up_ms } = untold;
            let progress = Progress { caught_up_ms, ..Progress::default() };
            let advance = Advance { owner: &owner, progress, applied, duplicates, finished_attempt };
            self.store.commit(txn, Some(advance)).await
        })
        .await
    }
}

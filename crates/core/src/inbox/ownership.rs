//! The life of a partition under one owner: take over its position, wait for the start, run its lanes, give it back.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tracing::{debug, error, info, warn};

use super::Engine;
use super::guard::CrashGuard;
use super::partition::Partition;
use crate::backoff;
use crate::error::describe;
use crate::failpoint::failpoint;
use crate::monitor::LoopHandle;
use crate::store::{ErrorClass, StoreResult};
use crate::store::{InboxStore, Ownership, Progress};

/// How soon a partition that stands still sees that its position was moved.
const MOVE_NOTICED_WITHIN: Duration = Duration::from_secs(5);

/// How many partitions of a consumer may be taken over or given back at the same time. With hundreds of them all want to at
/// once; the connections of the pool are for the messages.
const MOVES: usize = 4;
/// How many may say at the same time that they are caught up, which nobody waits for.
const NOTES: usize = 2;

/// Whose turn it is to write about a partition, in the order of asking.
pub(super) struct Turns {
    moves: Semaphore,
    notes: Semaphore,
}

impl Default for Turns {
    fn default() -> Self {
        Self { moves: Semaphore::new(MOVES), notes: Semaphore::new(NOTES) }
    }
}

/// Tells the source that the lanes have ended, whatever ended them.
struct ClosedOnDrop(Arc<Partition>);

impl Drop for ClosedOnDrop {
    fn drop(&mut self) {
        self.0.mark_closed();
    }
}

impl<S: InboxStore> Engine<S> {
    pub(crate) async fn run_partition(self: Arc<Self>, partition: Arc<Partition>) {
        let _closed = ClosedOnDrop(Arc::clone(&partition));
        let place = format!("{}/{}", partition.key.topic, partition.key.partition);
        let health = self.monitor.register(format!("inbox:{}", self.consumer), place);
        // In a task of its own: should it panic, the partition stands still and red instead of vanishing.
        let life = Arc::clone(&self).live(Arc::clone(&partition), health.clone());
        if let Err(panic) = tokio::spawn(life).await {
            partition.stop(format!("its task ended unexpectedly: {panic}"));
        }
        self.stand_still(&partition, &health).await;
        partition.give_back_the_rest();
    }

    async fn live(self: Arc<Self>, partition: Arc<Partition>, health: LoopHandle) {
        if let Some(guard) = self.take_over(&partition, &health).await {
            health.idle();
            self.run_lanes(&partition, guard).await;
            self.write_progress(&partition).await;
            self.write_queue_notes(&partition).await;
        }
        if let Some(reason) = partition.stopped() {
            health.stopped(reason);
        }
        if partition.ends_in_good_order() {
            self.give_back(&partition).await;
        }
    }

    /// A partition that is closed, or that was stopped with open eyes, has not crashed. Tried until its source closes it: what
    /// stays behind would look like a crash.
    async fn give_back(&self, partition: &Partition) {
        let Some(owner) = partition.owner.get() else { return };
        let mut tries = 0;
        while let Err(e) = self.in_turn(self.with_connection(self.store.release(owner))).await {
            if partition.closing.is_cancelled() || !e.class.may_pass() {
                warn!(position = %partition.key, error = describe(&e), "could not give the position back in good order");
                return;
            }
            tries += 1;
            tokio::select! {
                biased;
                () = partition.closing.cancelled() => {}
                () = tokio::time::sleep(backoff::TROUBLE.delay(tries)) => {}
            }
        }
    }

    async fn in_turn<T>(&self, operation: impl Future<Output = T> + Send) -> T {
        // Nobody closes the semaphore.
        let _turn = self.turns.moves.acquire().await;
        operation.await
    }

    async fn run_lanes(self: &Arc<Self>, partition: &Arc<Partition>, guard: CrashGuard) {
        let guard = Arc::new(guard);
        let mut lanes = JoinSet::new();
        for lane in 0..partition.queues.lanes() {
            let (engine, partition) = (Arc::clone(self), Arc::clone(partition));
            match partition.deliveries {
                Some(_) => lanes.spawn(engine.run_queue_lane(partition, lane)),
                None => lanes.spawn(engine.run_lane(partition, lane, Arc::clone(&guard))),
            };
        }
        let notes = async {
            match partition.deliveries {
                Some(_) => self.keep_queue_notes(partition).await,
                None => self.keep_notes(partition).await,
            }
        };
        // Both end when the stream closes or stops; neither is dropped half-way.
        tokio::join!(self.join(partition, &mut lanes), notes);
    }

    /// Writes down what is known although no message is settled.
    async fn keep_notes(&self, partition: &Partition) {
        while partition.next_note().await.is_some() {
            let _turn = tokio::select! {
                biased;
                () = partition.closing.cancelled() => return,
                turn = self.turns.notes.acquire() => turn,
            };
            self.write_progress(partition).await;
        }
    }

    /// Moves the position past what is no message, and past what lanes that commit side by side, and do not know of each
    /// other, have left behind; says that the partition is caught up.
    pub(crate) async fn write_progress(&self, partition: &Partition) {
        let (Some(owner), Some(progress)) = (partition.owner.get(), partition.unwritten_progress()) else {
            return;
        };
        match self.with_connection(self.store.record_progress(owner, progress)).await {
            Ok(()) => partition.progress.wrote(&progress),
            // Also when nothing arrives somebody may have moved the position: the source begins anew there.
            Err(e) if e.class == ErrorClass::Fenced => {
                partition.mark_fenced();
                partition.stop(describe(&e));
            }
            // The next note, or the next message, tries again.
            Err(e) => {
                debug!(position = %partition.key, error = describe(&e), "the position did not follow");
            }
        }
    }

    async fn join(&self, partition: &Partition, lanes: &mut JoinSet<Option<String>>) {
        while let Some(ended) = lanes.join_next().await {
            match ended {
                Ok(None) => {}
                Ok(Some(reason)) => partition.stop(reason),
                Err(panic) => partition.stop(format!("a lane ended unexpectedly: {panic}")),
            }
        }
    }

    /// A stopped partition stays visible in `/healthz` until its source closes it, or an operator has moved its position:
    /// then it is handed back as one that somebody else has taken, and the source opens it anew.
    async fn stand_still(&self, partition: &Partition, health: &LoopHandle) {
        let Some(reason) = partition.stopped() else { return };
        error!(position = %partition.key, reason, "the partition stands still");
        health.stopped(reason);
        loop {
            tokio::select! {
                biased;
                () = partition.closing.cancelled() => return,
                () = tokio::time::sleep(MOVE_NOTICED_WITHIN) => {}
            }
            let Some(owner) = partition.owner.get().filter(|_| !partition.is_fenced()) else { continue };
            // Says nothing and changes nothing, but only an owner may say it.
            if let Err(e) = self.with_connection(self.store.record_progress(owner, Progress::default())).await
                && e.class == ErrorClass::Fenced
            {
                info!(position = %partition.key, "the position was moved or taken over; beginning anew");
                partition.mark_fenced();
            }
        }
    }

    /// Acquires the position, waits until the source knows where to begin, and writes that down. `None` if the stream
    /// closes or stops before.
    async fn take_over(&self, partition: &Partition, health: &LoopHandle) -> Option<CrashGuard> {
        if partition.deliveries.is_some() {
            // Nobody owns a queue. But it is written down before anything of it is applied: what the database does not know of
            // does not hold the receipts that its copies need.
            self.persist(partition, health, || self.store.acquire(&partition.key)).await?;
            return Some(CrashGuard::up_for(0));
        }
        let owner = self.persist(partition, health, || self.store.acquire(&partition.key)).await?;
        failpoint("after-acquire");
        let guard = self.guard_for(&owner);
        if !partition.acquired(owner.clone()) {
            return None;
        }

        while partition.start.get().is_none() {
            if partition.stopped().is_some() {
                return None;
            }
            tokio::select! {
                biased;
                () = partition.closing.cancelled() => return None,
                () = partition.start_known.notified() => {}
            }
        }
        let start = partition.start.get()?;
        let begin = Progress {
            next_offset: Some(start.offset),
            log: start.log.as_ref(),
            rewound_to: partition.rewound_by_start(),
            ..Progress::default()
        };
        self.persist(partition, health, || self.store.record_progress(&owner, begin)).await?;
        debug!(consumer = %self.consumer, place = format_args!("{}/{}", partition.key.topic, partition.key.partition), start = start.offset, epoch = owner.epoch, "partition taken over");
        Some(guard)
    }

    fn guard_for(&self, owner: &Ownership) -> CrashGuard {
        if owner.starts <= self.settings.crash_limit && !owner.attempts_recorded {
            return CrashGuard::up_for(0);
        }
        warn!(
            consumer = %self.consumer, place = %owner.key, starts = owner.starts,
            "the process ended several times without progress here: running messages one at a time to find the cause"
        );
        CrashGuard::up_for(self.settings.batch.messages.saturating_mul(self.settings.lanes.max(1)))
    }

    /// A store operation, within the share of the consumer.
    async fn with_connection<T>(
        &self,
        operation: impl Future<Output = StoreResult<T>> + Send,
    ) -> StoreResult<T> {
        let _connection = self.connections.take().await;
        operation.await
    }

    /// Repeats a store operation until it succeeds or the stream closes. A fence stops the stream.
    async fn persist<T, F>(
        &self,
        partition: &Partition,
        health: &LoopHandle,
        mut operation: impl FnMut() -> F,
    ) -> Option<T>
    where
        F: Future<Output = StoreResult<T>> + Send,
        T: Send,
    {
        let mut troubles = 0;
        loop {
            let turn = tokio::select! {
                biased;
                () = partition.closing.cancelled() => return None,
                turn = self.turns.moves.acquire() => turn,
            };
            let answer = self.with_connection(operation()).await;
            drop(turn);
            match answer {
                Ok(value) => {
                    health.succeeded();
                    return Some(value);
                }
                Err(e) if e.class == ErrorClass::Fenced => {
                    partition.mark_fenced();
                    partition.stop(describe(&e));
                    return None;
                }
                Err(e) => {
                    troubles += 1;
                    self.report_trouble(partition, &describe(&e), troubles, health);
                }
            }
            tokio::select! {
                biased;
                () = partition.closing.cancelled() => return None,
                () = tokio::time::sleep(backoff::TROUBLE.delay(troubles)) => {}
            }
        }
    }
}

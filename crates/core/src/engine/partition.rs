//! The life of one partition: take over its position, wait for the start, run its lanes, give it back.

use std::sync::Arc;

use tokio::task::JoinSet;
use tracing::{debug, error, info, warn};

use super::Engine;
use super::lane::CrashGuard;
use super::settle::TROUBLE_BACKOFF;
use crate::error::{ErrorClass, StoreResult, describe};
use crate::failpoint::failpoint;
use crate::handler::Apply;
use crate::monitor::LoopHandle;
use crate::store::{Ownership, PositionKey, Store};
use crate::stream::{Shared, Stream};

/// Tells the source that the lanes have ended, whatever ended them.
struct ClosedOnDrop(Arc<Shared>);

impl Drop for ClosedOnDrop {
    fn drop(&mut self) {
        self.0.mark_closed();
    }
}

impl<S: Store, A: Apply<S>> Engine<S, A> {
    pub(crate) async fn run_partition(self: Arc<Self>, stream: Stream) {
        let shared = Arc::clone(&stream.0);
        let _closed = ClosedOnDrop(Arc::clone(&shared));
        let place = format!("{}/{}", shared.topic, shared.partition);
        let health = self.monitor.register(format!("inbox:{}", self.consumer), place.clone());
        if let Some(guard) = self.take_over(&stream, &shared, &health).await {
            health.idle();
            self.run_lanes(&stream, &shared, guard).await;
            self.write_position(&shared).await;
        }
        if stream.stopped().is_none()
            && let Some(owner) = shared.owner.get()
            && let Err(e) = self.store.release(owner).await
        {
            warn!(consumer = %self.consumer, place, error = describe(&e), "could not give the position back in good order");
        }
        self.stand_still(&stream, &health).await;
    }

    async fn run_lanes(self: &Arc<Self>, stream: &Stream, shared: &Arc<Shared>, guard: CrashGuard) {
        let guard = Arc::new(guard);
        let mut lanes = JoinSet::new();
        for lane in 0..shared.lanes.len() {
            lanes.spawn(Arc::clone(self).run_lane(Arc::clone(shared), lane, Arc::clone(&guard)));
        }
        // Both end when the stream closes or stops; neither is dropped half-way.
        tokio::join!(self.join(stream, &mut lanes), self.follow_skips(stream));
    }

    /// Moves the position past what is no message.
    async fn follow_skips(&self, stream: &Stream) {
        let shared = &stream.0;
        while let (Some(offset), Some(owner)) = (shared.next_skip().await, shared.owner.get()) {
            match self.store.begin_at(owner, offset).await {
                Ok(()) => shared.skipped_to(offset),
                // The next skip, or the next message, tries again.
                Err(e) => {
                    debug!(consumer = %self.consumer, place = ?stream, error = describe(&e), "the position did not follow");
                }
            }
        }
    }

    async fn join(&self, stream: &Stream, lanes: &mut JoinSet<Option<String>>) {
        while let Some(ended) = lanes.join_next().await {
            match ended {
                Ok(None) => {}
                Ok(Some(reason)) => stream.stop(reason),
                Err(panic) => stream.stop(format!("a lane ended unexpectedly: {panic}")),
            }
        }
    }

    /// A stopped partition stays visible in `/healthz` until its source closes it.
    async fn stand_still(&self, stream: &Stream, health: &LoopHandle) {
        if let Some(reason) = stream.stopped() {
            error!(consumer = %self.consumer, place = ?stream, reason, "the partition stands still");
            health.stopped(reason);
            stream.0.closing.cancelled().await;
        }
    }

    /// Acquires the position, waits until the source knows where to begin, and writes that down. `None` if the stream
    /// closes or stops before.
    async fn take_over(&self, stream: &Stream, shared: &Shared, health: &LoopHandle) -> Option<CrashGuard> {
        if !shared.positioned {
            return Some(CrashGuard::up_for(0));
        }
        let key = PositionKey {
            consumer: self.consumer.clone(),
            topic: Arc::clone(&shared.topic),
            partition: shared.partition,
        };
        let owner = self.persist(stream, health, || self.store.acquire(&key)).await?;
        failpoint("after-acquire");
        let guard = self.guard_for(&owner);
        shared.owner.set(owner.clone()).ok()?;

        while shared.start.get().is_none() {
            if stream.stopped().is_some() {
                return None;
            }
            tokio::select! {
                () = shared.start_known.notified() => {}
                () = shared.closing.cancelled() => return None,
            }
        }
        let start = *shared.start.get()?;
        self.persist(stream, health, || self.store.begin_at(&owner, start)).await?;
        info!(consumer = %self.consumer, topic = %shared.topic, partition = shared.partition, start, epoch = owner.epoch, "partition taken over");
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

    /// Repeats a store operation until it succeeds or the stream closes. A fence stops the stream.
    async fn persist<T, F>(
        &self,
        stream: &Stream,
        health: &LoopHandle,
        mut operation: impl FnMut() -> F,
    ) -> Option<T>
    where
        F: Future<Output = StoreResult<T>> + Send,
        T: Send,
    {
        let shared = &stream.0;
        let mut troubles = 0;
        loop {
            match operation().await {
                Ok(value) => {
                    health.succeeded();
                    return Some(value);
                }
                Err(e) if e.class == ErrorClass::Fenced => {
                    shared.mark_fenced();
                    stream.stop(describe(&e));
                    return None;
                }
                Err(e) => {
                    troubles += 1;
                    self.report_trouble(shared, &describe(&e), troubles, health);
                }
            }
            tokio::select! {
                () = tokio::time::sleep(TROUBLE_BACKOFF.delay(troubles)) => {}
                () = shared.closing.cancelled() => return None,
            }
        }
    }
}

//! The life of one partition: take over its position, wait for the start, run its lanes, give it back.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tracing::{debug, error, info, warn};

use super::Engine;
use super::batch::TROUBLE_BACKOFF;
use super::guard::CrashGuard;
use super::handler::Apply;
use super::stream::{Shared, Stream};
use crate::error::describe;
use crate::failpoint::failpoint;
use crate::monitor::LoopHandle;
use crate::store::{ErrorClass, StoreResult};
use crate::store::{InboxStore, Ownership, Progress};

/// How soon a partition that stands still sees that its position was moved.
const LOOK_FOR_A_MOVE: Duration = Duration::from_secs(5);

/// Tells the source that the lanes have ended, whatever ended them.
struct ClosedOnDrop(Arc<Shared>);

impl Drop for ClosedOnDrop {
    fn drop(&mut self) {
        self.0.mark_closed();
    }
}

impl<S: InboxStore, A: Apply<S>> Engine<S, A> {
    pub(crate) async fn run_partition(self: Arc<Self>, stream: Stream) {
        let shared = Arc::clone(&stream.0);
        let _closed = ClosedOnDrop(Arc::clone(&shared));
        let place = format!("{}/{}", shared.key.topic, shared.key.partition);
        let health = self.monitor.register(format!("inbox:{}", self.consumer), place);
        // In a task of its own: should it panic, the partition stands still and red instead of vanishing.
        let life = Arc::clone(&self).live(stream.clone(), health.clone());
        if let Err(panic) = tokio::spawn(life).await {
            stream.stop(format!("its task ended unexpectedly: {panic}"));
        }
        self.stand_still(&stream, &health).await;
    }

    async fn live(self: Arc<Self>, stream: Stream, health: LoopHandle) {
        let shared = Arc::clone(&stream.0);
        if let Some(guard) = self.take_over(&stream, &shared, &health).await {
            health.idle();
            self.run_lanes(&stream, &shared, guard).await;
            self.write_progress(&shared).await;
        }
        if let Some(reason) = stream.stopped() {
            health.stopped(reason);
        }
        if shared.ends_in_good_order() {
            self.give_back(&shared).await;
        }
    }

    /// A partition that is closed, or that was stopped with open eyes, has not crashed. Tried until its source closes it: what
    /// stays behind would look like a crash.
    async fn give_back(&self, shared: &Shared) {
        let Some(owner) = shared.owner.get() else { return };
        let mut tries = 0;
        while let Err(e) = self.store.release(owner).await {
            if shared.closing.is_cancelled() || !e.class.may_pass() {
                warn!(position = %shared.key, error = describe(&e), "could not give the position back in good order");
                return;
            }
            tries += 1;
            tokio::select! {
                biased;
                () = shared.closing.cancelled() => {}
                () = tokio::time::sleep(TROUBLE_BACKOFF.delay(tries)) => {}
            }
        }
    }

    async fn run_lanes(self: &Arc<Self>, stream: &Stream, shared: &Arc<Shared>, guard: CrashGuard) {
        let guard = Arc::new(guard);
        let mut lanes = JoinSet::new();
        for lane in 0..shared.lanes.len() {
            lanes.spawn(Arc::clone(self).run_lane(Arc::clone(shared), lane, Arc::clone(&guard)));
        }
        // Both end when the stream closes or stops; neither is dropped half-way.
        tokio::join!(self.join(stream, &mut lanes), self.keep_notes(shared));
    }

    /// Writes down what is known although no message is settled.
    async fn keep_notes(&self, shared: &Shared) {
        while shared.next_note().await.is_some() {
            self.write_progress(shared).await;
        }
    }

    /// Moves the position past what is no message, and past what lanes that commit side by side, and do not know of each
    /// other, have left behind; says that the partition is caught up.
    pub(crate) async fn write_progress(&self, shared: &Shared) {
        let (Some(owner), Some(progress)) = (shared.owner.get(), shared.unwritten_progress()) else { return };
        match self.store.record_progress(owner, progress).await {
            Ok(()) => shared.wrote(&progress),
            // Also when nothing arrives somebody may have moved the position: the source begins anew there.
            Err(e) if e.class == ErrorClass::Fenced => {
                shared.mark_fenced();
                shared.stop(describe(&e));
            }
            // The next note, or the next message, tries again.
            Err(e) => {
                debug!(position = %shared.key, error = describe(&e), "the position did not follow");
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

    /// A stopped partition stays visible in `/healthz` until its source closes it, or an operator has moved its position:
    /// then it is handed back as one that somebody else has taken, and the source opens it anew.
    async fn stand_still(&self, stream: &Stream, health: &LoopHandle) {
        let Some(reason) = stream.stopped() else { return };
        let shared = &stream.0;
        error!(position = %shared.key, reason, "the partition stands still");
        health.stopped(reason);
        loop {
            tokio::select! {
                biased;
                () = shared.closing.cancelled() => return,
                () = tokio::time::sleep(LOOK_FOR_A_MOVE) => {}
            }
            let Some(owner) = shared.owner.get().filter(|_| !stream.is_fenced()) else { continue };
            // Says nothing and changes nothing, but only an owner may say it.
            if let Err(e) = self.store.record_progress(owner, Progress::default()).await
                && e.class == ErrorClass::Fenced
            {
                info!(position = %shared.key, "the position was moved or taken over; beginning anew");
                shared.mark_fenced();
            }
        }
    }

    /// Acquires the position, waits until the source knows where to begin, and writes that down. `None` if the stream
    /// closes or stops before.
    async fn take_over(&self, stream: &Stream, shared: &Shared, health: &LoopHandle) -> Option<CrashGuard> {
        if !shared.positioned {
            return Some(CrashGuard::up_for(0));
        }
        let owner = self.persist(stream, health, || self.store.acquire(&shared.key)).await?;
        failpoint("after-acquire");
        let guard = self.guard_for(&owner);
        shared.owner.set(owner.clone()).ok()?;

        while shared.start.get().is_none() {
            if stream.stopped().is_some() {
                return None;
            }
            tokio::select! {
                biased;
                () = shared.closing.cancelled() => return None,
                () = shared.start_known.notified() => {}
            }
        }
        let start = shared.start.get()?;
        let begin =
            Progress { next_offset: Some(start.offset), log: start.log.as_ref(), ..Progress::default() };
        self.persist(stream, health, || self.store.record_progress(&owner, begin)).await?;
        info!(consumer = %self.consumer, place = ?stream, start = start.offset, epoch = owner.epoch, "partition taken over");
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
                biased;
                () = shared.closing.cancelled() => return None,
                () = tokio::time::sleep(TROUBLE_BACKOFF.delay(troubles)) => {}
            }
        }
    }
}

//! A lane: one batch in flight, what arrives meanwhile is the next one. And the guard against crash loops.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Engine;
use super::settle::{End, TROUBLE_BACKOFF};
use super::transact::{Item, Task};
use crate::error::ErrorClass;
use crate::handler::Apply;
use crate::message::Record;
use crate::monitor::LoopHandle;
use crate::policy::BatchBounds;
use crate::receipt::ReceiptKey;
use crate::store::Store;
use crate::stream::Shared;

/// While it is up, the lanes of a partition run one message at a time, each with its attempt written down first.
///
/// It goes up when the partition was taken over several times without progress: something at this position ends the
/// process. One message at a time tells which.
#[derive(Debug)]
pub(crate) struct CrashGuard {
    remaining: AtomicUsize,
    /// One message at a time across all lanes, or a lane's innocent message would share the blame.
    turn: tokio::sync::Mutex<()>,
}

impl CrashGuard {
    /// Up for as many messages as may have been in flight when the process ended.
    pub(crate) fn up_for(messages: usize) -> Self {
        Self { remaining: AtomicUsize::new(messages), turn: tokio::sync::Mutex::new(()) }
    }

    fn is_up(&self) -> bool {
        self.remaining.load(Ordering::Relaxed) > 0
    }

    fn one_done(&self) {
        let less = |left: usize| Some(left.saturating_sub(1));
        self.remaining.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok();
    }
}

impl<S: Store, A: Apply<S>> Engine<S, A> {
    /// Runs a lane until its stream closes or stops. Returns why it stands still, if it does.
    pub(crate) async fn run_lane(
        self: Arc<Self>,
        shared: Arc<Shared>,
        lane: usize,
        guard: Arc<CrashGuard>,
    ) -> Option<String> {
        let health = self.monitor.register(
            format!("inbox:{}", self.consumer),
            format!("{}/{}#{lane}", shared.topic, shared.partition),
        );
        let mut prepared: Option<Arc<Vec<Item>>> = None;
        loop {
            if prepared.is_none() && shared.is_idle(lane) {
                self.write_position(&shared).await;
                health.idle();
            }
            let guarded = guard.is_up();
            let bounds = if guarded {
                BatchBounds { messages: 1, ..self.settings.batch }
            } else {
                self.settings.batch
            };
            let items = match prepared.take() {
                Some(_) if shared.is_ending() => return None,
                Some(items) => items,
                None => Arc::new(self.identify(shared.next_batch(lane, bounds).await?)),
            };
            health.busy();
            let end = if guarded {
                let _turn = guard.turn.lock().await;
                let end = self.settle_guarded(&shared, &items, &health).await;
                guard.one_done();
                end
            } else {
                // While the database works, the next batch is made ready; but only a full one, or it could still grow.
                let settling = self.settle(&shared, &items, Task::Apply, None, &health);
                let (end, next) = tokio::join!(settling, async {
                    shared.full_batch(lane, bounds).map(|records| Arc::new(self.identify(records)))
                });
                prepared = next;
                end
            };
            match end {
                End::Settled => {}
                End::Closing => return None,
                End::Stopped(reason) => return Some(reason),
            }
        }
    }

    /// Two lanes that commit side by side do not know of each other, so neither moves the position past both. It catches up
    /// when there is time.
    pub(crate) async fn write_position(&self, shared: &Shared) {
        if let (Some(owner), Some(next)) = (shared.owner.get(), shared.unwritten())
            && self.store.begin_at(owner, next).await.is_ok()
        {
            shared.wrote(next);
        }
    }

    fn identify(&self, records: Vec<Record>) -> Vec<Item> {
        records
            .into_iter()
            .map(|record| match self.settings.identity.identify(record) {
                Ok(message) => {
                    let key = ReceiptKey::of(&self.consumer, message.tenant(), message.id());
                    Item::Fit(message, key)
                }
                Err(unfit) => Item::Unfit(unfit),
            })
            .collect()
    }

    async fn settle_guarded(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        items: &Arc<Vec<Item>>,
        health: &LoopHandle,
    ) -> End {
        let (Some(owner), Some(item)) = (shared.owner.get(), items.first()) else {
            return self.settle(shared, items, Task::Apply, None, health).await;
        };
        let mut troubles = 0;
        let attempts = loop {
            match self.store.record_attempt(owner, item.offset()).await {
                Ok(attempts) => break attempts,
                Err(e) if e.class == ErrorClass::Fenced => {
                    shared.mark_fenced();
                    return End::Stopped(e.to_string());
                }
                Err(e) => {
                    troubles += 1;
                    self.report_trouble(shared, &e.to_string(), troubles, health);
                    tokio::select! {
                        () = tokio::time::sleep(TROUBLE_BACKOFF.delay(troubles)) => {}
                        () = shared.closing.cancelled() => return End::Closing,
                    }
                }
            }
        };
        let ended = attempts.saturating_sub(1);
        let task = if ended >= self.settings.crash_limit {
            let error = format!("the process ended {ended} times while this message was being applied");
            tracing::error!(consumer = %self.consumer, offset = item.offset(), error, "the message is given up");
            Task::Park { error, attempts: ended }
        } else {
            Task::Apply
        };
        self.settle(shared, items, task, Some(item.offset()), health).await
    }
}

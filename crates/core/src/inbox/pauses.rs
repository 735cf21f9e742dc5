//! Whether a consumer is paused, as this process knows it, and who waits for that.
//!
//! The database is asked now and then, never for a batch. Between two looks, and while it does not answer, what was seen last
//! holds. Until the first look nobody begins anything: a process that starts does not know yet that it is paused.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Engine;
use super::batch::STANDS_STILL;
use super::partition::Partition;
use crate::error::describe;
use crate::metrics;
use crate::mistake::mistaken;
use crate::monitor::{LoopHandle, lock};
use crate::names::ConsumerName;
use crate::store::{ErrorClass, InboxStore, Pause};

/// How often the database is asked.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(86_400);

/// Which consumers are paused. Cheap to clone: give the same one to every inbox of a database
/// ([`Inbox::pauses`](super::Inbox::pauses)), and one of them asks the database for all.
#[derive(Debug, Clone)]
pub struct PauseWatch(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    every: Duration,
    state: Mutex<State>,
    changed: Notify,
    /// Held by whoever asks; when to ask next.
    looking: tokio::sync::Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct State {
    /// The consumers of this process.
    mine: BTreeSet<String>,
    /// All that are paused. `None`: nobody has told yet.
    paused: Option<BTreeMap<String, Pause>>,
}

impl Default for PauseWatch {
    fn default() -> Self {
        Self::every(LOOK_EVERY)
    }
}

impl PauseWatch {
    /// Asks the database this often, and at least once a day. Default: every second.
    #[must_use]
    pub fn every(interval: Duration) -> Self {
        Self(Arc::new(Inner {
            every: interval.min(LOOK_AT_LEAST_EVERY),
            state: Mutex::default(),
            changed: Notify::new(),
            looking: tokio::sync::Mutex::new(None),
        }))
    }

    /// The consumers of this process that are paused, by name.
    #[must_use]
    pub fn paused(&self) -> Vec<Pause> {
        let state = lock(&self.0.state);
        let pauses = state.paused.iter().flat_map(BTreeMap::values);
        pauses.filter(|pause| state.mine.contains(&pause.consumer)).cloned().collect()
    }

    /// The pause of a consumer, as far as it is known.
    pub(crate) fn of(&self, consumer: &str) -> Option<Pause> {
        lock(&self.0.state).paused.as_ref()?.get(consumer).cloned()
    }

    /// Waits until the consumer is known to be paused, or not to be.
    pub(crate) async fn until(&self, consumer: &str, paused: bool) {
        loop {
            let mut changed = pin!(self.0.changed.notified());
            // First: what changes after the look below is heard of.
            changed.as_mut().enable();
            if self.is_known(consumer, paused) {
                return;
            }
            changed.await;
        }
    }

    fn is_known(&self, consumer: &str, paused: bool) -> bool {
        lock(&self.0.state).paused.as_ref().is_some_and(|all| all.contains_key(consumer) == paused)
    }

    fn join(&self, consumer: &ConsumerName) {
        lock(&self.0.state).mine.insert(consumer.to_string());
    }

    fn learn(&self, found: Vec<Pause>) {
        let now: BTreeMap<String, Pause> =
            found.into_iter().map(|pause| (pause.consumer.clone(), pause)).collect();
        let mut state = lock(&self.0.state);
        let before = state.paused.replace(now.clone()).unwrap_or_default();
        for consumer in &state.mine {
            let pause = now.get(consumer);
            metrics::consumer_paused(consumer.clone()).set(if pause.is_some() { 1.0 } else { 0.0 });
            match (before.contains_key(consumer), pause) {
                (false, Some(Pause { by, reason, .. })) => {
                    info!(consumer, by, reason, "paused: what is in flight ends, and nothing is begun");
                }
                (true, None) => info!(consumer, "resumed"),
                _ => {}
            }
        }
        drop(state);
        self.0.changed.notify_waiters();
    }
}

impl<S: InboxStore> Engine<S> {
    /// Asks the database which consumers are paused, until it is `over`. Of those who share a watch, one asks.
    pub(super) async fn watch_pauses(self: Arc<Self>, over: CancellationToken) {
        let watch = self.settings.pauses.clone();
        watch.join(&self.consumer);
        let mut next = tokio::select! {
            biased;
            () = over.cancelled() => return,
            next = watch.0.looking.lock() => next,
        };
        let health = self.monitor.register("pauses", "");
        loop {
            tokio::select! {
                biased;
                () = over.cancelled() => return,
                () = tokio::time::sleep_until(next.unwrap_or_else(Instant::now)) => {}
            }
            let store = self.store.clone();
            // In a task of its own, so that a panic is a failure like any other.
            let found = tokio::spawn(async move { store.paused().await }).await;
            let reason = match found {
                Ok(Ok(found)) => {
                    *next = Some(Instant::now() + watch.0.every);
                    health.succeeded();
                    watch.learn(found);
                    continue;
                }
                Ok(Err(e)) if e.class == ErrorClass::Environment => {
                    format!(
                        "{}. `oncebox migrate` makes the table, and the user must be able to read it",
                        describe(&e)
                    )
                }
                Ok(Err(e)) => describe(&e),
                Err(panic) => panic.to_string(),
            };
            *next = Some(Instant::now() + watch.0.every.min(LOOK_EVERY));
            let reason = format!(
                "whether consumers are paused cannot be read, so what was known last holds, and who starts waits: {reason}"
            );
            if health.failed(reason.as_str()) {
                warn!("{reason}");
            }
        }
    }

    /// Waits while the consumer is paused. False if the stream ends meanwhile.
    pub(super) async fn until_resumed(&self, partition: &Partition, health: &LoopHandle) -> bool {
        let (watch, consumer) = (&self.settings.pauses, self.consumer.as_str());
        if watch.is_known(consumer, false) || mistaken("PauseIgnored") {
            return true;
        }
        // Nobody has to look at it: it stands still because somebody wanted it.
        health.over(STANDS_STILL);
        health.idle();
        tokio::select! {
            biased;
            () = partition.queues.ended() => return false,
            () = watch.until(consumer, false) => {}
        }
        health.busy();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pause(consumer: &str) -> Pause {
        Pause { consumer: consumer.to_owned(), since_ms: 0, by: "ana".to_owned(), reason: None }
    }

    #[tokio::test]
    async fn who_waits_hears_of_it() {
        let watch = PauseWatch::default();
        let consumer = ConsumerName::new("stock").unwrap();
        watch.join(&consumer);
        assert!(!watch.is_known("stock", true) && !watch.is_known("stock", false), "nobody has told yet");
        let waiting = tokio::spawn({
            let watch = watch.clone();
            async move {
                watch.until("stock", false).await;
                watch.until("stock", true).await;
                watch.until("stock", false).await;
            }
        });
        for paused in [vec![pause("other")], vec![pause("other"), pause("stock")], vec![]] {
            let expected = paused.iter().any(|pause| pause.consumer == "stock");
            watch.learn(paused);
            assert_eq!(watch.paused().len(), usize::from(expected), "only those of this process");
            assert_eq!(watch.of("stock").is_some(), expected);
            tokio::task::yield_now().await;
        }
        waiting.await.unwrap();
    }
}

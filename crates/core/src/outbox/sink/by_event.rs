//! Sinks that deliver one event at a time: mail, HTTP, a closure.

use std::collections::HashMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::{FutureExt, StreamExt, stream};
use tokio::sync::Semaphore;

use super::{Delivery, KEEP_TRYING, OutgoingEvent, Sink, Standing};
use crate::error::{BoxError, Outcome, Result, describe};
use crate::inbox::RetryPolicy;

/// Delivers one event. The error says what happens next, as in handlers: [`reject`](crate::error::reject) parks the event,
/// [`retry_after`](crate::error::retry_after) says when to try again, anything else is tried again with backoff.
pub trait Deliver: Send + Sync + 'static {
    /// Delivers the event. It may get the same event again, with the same id.
    fn deliver(&self, event: &OutgoingEvent) -> impl Future<Output = Result> + Send;

    /// Delivers the event and says what becomes of it. What is there by itself does what the error says; who knows more than an
    /// error can say writes it anew.
    fn attempt(&self, event: &OutgoingEvent) -> impl Future<Output = Delivery> + Send {
        async move { delivery(self.deliver(event).await) }
    }

    /// Whether the receiver takes events: see [`Sink::standing`].
    fn standing(&self) -> Standing {
        Standing::Ready
    }

    /// What spans call it: see [`Sink::system`].
    fn system(&self) -> Option<&'static str> {
        Some("oncebox")
    }
}

/// A [`Deliver`] made of an `async fn(OutgoingEvent) -> oncebox::Result` or an async closure.
#[derive(Debug, Clone)]
pub struct SinkFn<F>(F);

impl<F, Fut> Deliver for SinkFn<F>
where
    F: Fn(OutgoingEvent) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result> + Send,
{
    fn deliver(&self, event: &OutgoingEvent) -> impl Future<Output = Result> + Send {
        (self.0)(event.clone())
    }
}

/// A [`Sink`] that delivers its events one at a time for each key, and several keys at once. After a failure the later events
/// of that key wait.
#[derive(Debug, Clone)]
pub struct ByEvent<D> {
    deliver: D,
    at_once: usize,
    /// What all batches together may have under way.
    permits: Arc<Semaphore>,
    retry: RetryPolicy,
    parks_keys: bool,
}

impl<D: Deliver> ByEvent<D> {
    /// Delivers up to eight events at once.
    pub fn new(deliver: D) -> Self {
        let permits = Arc::new(Semaphore::new(8));
        Self { deliver, at_once: 8, permits, retry: KEEP_TRYING, parks_keys: false }
    }

    /// Delivers up to this many events at once.
    #[must_use]
    pub fn at_once(mut self, events: usize) -> Self {
        self.at_once = events.clamp(1, Semaphore::MAX_PERMITS);
        self.permits = Arc::new(Semaphore::new(self.at_once));
        self
    }

    /// How often a failing event is tried, and how long to wait in between.
    #[must_use]
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// Whether an event that is parked holds back its key: the later ones are parked behind it, and an operator retries them in their
    /// order. Without it they go on.
    #[must_use]
    pub fn park_keys(mut self, whole: bool) -> Self {
        self.parks_keys = whole;
        self
    }

    async fn deliver_key(&self, events: Vec<(usize, OutgoingEvent)>) -> Vec<(usize, Delivery)> {
        let mut deliveries = Vec::with_capacity(events.len());
        // What becomes of the events behind one that was not delivered.
        let mut behind = None;
        for (at, event) in events {
            let delivery = if let Some(fate) = &behind {
                Delivery::clone(fate)
            } else {
                let _permit = self.permits.acquire().await;
                // Its own failure: otherwise its neighbours would be delivered again and again with it.
                let delivering = async { self.deliver.attempt(&event).await };
                AssertUnwindSafe(delivering).catch_unwind().await.unwrap_or_else(|_| Delivery::Retry {
                    error: "the sink panicked".to_owned(),
                    after: None,
                })
            };
            match delivery {
                Delivery::Retry { .. } | Delivery::Wait { .. } => behind = Some(Delivery::Behind),
                Delivery::Reject { .. } if self.parks_keys => behind = Some(Delivery::Behind),
                Delivery::NotTried => behind = Some(Delivery::NotTried),
                _ => {}
            }
            deliveries.push((at, delivery));
        }
        deliveries
    }
}

impl<F, Fut> ByEvent<SinkFn<F>>
where
    F: Fn(OutgoingEvent) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result> + Send,
{
    /// Delivers with a function.
    ///
    /// ```
    /// use oncebox::sink::{ByEvent, OutgoingEvent};
    ///
    /// async fn mail(event: OutgoingEvent) -> oncebox::Result {
    ///     println!("a mail with the id {}", event.id());
    ///     Ok(())
    /// }
    /// let sink = ByEvent::from_fn(mail);
    /// ```
    pub fn from_fn(deliver: F) -> Self {
        Self::new(SinkFn(deliver))
    }
}

impl<D: Deliver> Sink for ByEvent<D> {
    async fn deliver(&self, events: &[OutgoingEvent]) -> Result<Vec<Delivery>, BoxError> {
        let mut deliveries = vec![Delivery::Behind; events.len()];
        let mut under_way = stream::iter(by_key(events))
            .map(|events| self.deliver_key(events))
            .buffer_unordered(self.at_once);
        while let Some(key) = under_way.next().await {
            for (at, delivery) in key {
                deliveries[at] = delivery;
            }
        }
        Ok(deliveries)
    }

    fn concurrency(&self) -> usize {
        self.at_once
    }

    /// Small batches: a batch is done when the last of its events is.
    fn batch_events(&self) -> usize {
        32
    }

    fn retry(&self) -> RetryPolicy {
        self.retry
    }

    fn parks_keys(&self) -> bool {
        self.parks_keys
    }

    fn standing(&self) -> Standing {
        self.deliver.standing()
    }

    fn system(&self) -> Option<&'static str> {
        self.deliver.system()
    }
}

/// The events of each key, in their order; those without a key are each for themselves.
fn by_key(events: &[OutgoingEvent]) -> Vec<Vec<(usize, OutgoingEvent)>> {
    let mut groups: Vec<Vec<(usize, OutgoingEvent)>> = Vec::new();
    let mut of_key: HashMap<&[u8], usize> = HashMap::new();
    for (at, event) in events.iter().enumerate() {
        let known = event.key().and_then(|key| of_key.get(key).copied());
        match known {
            Some(group) => groups[group].push((at, event.clone())),
            None => {
                if let Some(key) = event.key() {
                    of_key.insert(key, groups.len());
                }
                groups.push(vec![(at, event.clone())]);
            }
        }
    }
    groups
}

fn delivery(result: Result) -> Delivery {
    let Err(error) = result else { return Delivery::Delivered };
    match Outcome::of(error.as_ref()) {
        Some(Outcome::Reject { reason }) => Delivery::Reject { error: reason },
        Some(Outcome::RetryAfter { delay, reason }) => Delivery::Retry { error: reason, after: Some(delay) },
        _ => Delivery::Retry { error: describe(error.as_ref()), after: None },
    }
}

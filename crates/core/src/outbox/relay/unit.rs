//! One piece of work: the events of a topic in some shards, read and delivered until none are left.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tracing::{debug, warn};

use super::Inner;
use super::fan_out;
use super::routes::Route;
use crate::backoff;
use crate::error::describe;
use crate::failpoint::failpoint;
use crate::inbox::{BatchBounds, RetryPolicy};
use crate::outbox::sink::{Delivery, OutgoingEvent};
use crate::store::{Deliveries, HeldEvent, Lease, OutboxAdmin, ParkedEvent, StoredEvent};

/// After this many batches another unit gets a turn.
const MAX_BATCHES_PER_TURN: usize = 8;
/// How often what became of a batch is written before its events are left to be published again.
const RECORD_TRIES: u32 = 5;
/// A batch in which everything failed makes its unit wait, but not for long: the next one may hold other keys.
const ALL_FAILED_WAIT: Duration = Duration::from_secs(2);
/// A unit that failed as a whole costs one request to try; whoever mends the cause should not have to wait for long.
const FAILED_WAIT: Duration = Duration::from_secs(10);

/// Which events a unit is about. No two units share a key of a topic.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct UnitKey {
    pub(super) topic: Arc<str>,
    pub(super) group: u16,
}

/// A unit that is about to run.
pub(super) struct Unit {
    pub(super) key: UnitKey,
    pub(super) leases: Vec<Lease>,
    pub(super) route: Arc<Route>,
    /// How often it failed in a row.
    pub(super) failures: u32,
}

/// How a unit ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Nothing more to do, or another unit's turn.
    Well,
    /// Everything it read failed and is held: others may be better, a little later.
    Paused(Duration),
    /// No event is to blame (the receiver is away, the database is): try again after this time.
    Failed(Duration),
}

impl<S: OutboxAdmin> Inner<S> {
    /// Runs a unit; a sink that panics is a unit that failed.
    pub(super) async fn run_unit(&self, unit: &Unit) -> Ended {
        let running = AssertUnwindSafe(self.publish(unit)).catch_unwind();
        match running.await {
            Ok(ended) => ended,
            Err(_) => self.failed(unit, "the sink panicked"),
        }
    }

    async fn publish(&self, unit: &Unit) -> Ended {
        let sink = &unit.route.sink;
        let bounds = BatchBounds {
            messages: self.settings.batch.messages.min(sink.batch_events()),
            bytes: self.settings.batch.bytes,
        };
        let shards: Vec<u16> = unit.leases.iter().map(|lease| lease.shard).collect();
        for _ in 0..MAX_BATCHES_PER_TURN {
            let events = match self.store.next_events(&unit.key.topic, &shards, bounds).await {
                Ok(events) => events,
                Err(error) => return self.failed(unit, &describe(&error)),
            };
            if events.is_empty() {
                return Ended::Well;
            }
            // A store may give each shard its share of the bound.
            let last = events.len() < bounds.messages / shards.len().max(1)
                && events.iter().map(StoredEvent::byte_len).sum::<usize>() < bounds.bytes / 2;
            let events = match self.due_events(unit, events).await {
                Ok(events) => events,
                Err(ended) => return ended,
            };
            if events.is_empty() {
                if last {
                    return Ended::Well;
                }
                continue;
            }
            unit.route.health.busy();
            failpoint("relay-after-read");
            let events: Vec<OutgoingEvent> = events.into_iter().map(|event| self.outgoing(event)).collect();
            let delivered = tokio::select! {
                biased;
                // First, so that nothing is sent on a lease that ended while we were reading.
                () = self.shards.lost(&unit.leases) => {
                    debug!(topic = %unit.key.topic, "the lease is over; leaving the batch to the next owner");
                    return Ended::Well;
                }
                delivered = sink.deliver(&events) => delivered,
            };
            let answers = match delivered {
                Ok(answers) => answers,
                Err(error) => return self.failed(unit, &describe(error.as_ref())),
            };
            failpoint("relay-after-report");
            let deliveries = self.deliveries(unit, &events, answers, &sink.retry());
            if let Err(ended) = self.record(unit, &deliveries).await {
                return ended;
            }
            failpoint("relay-after-delete");
            unit.route.health.succeeded();
            if deliveries.published.is_empty() && deliveries.parked.is_empty() {
                return Ended::Paused(sink.retry().backoff.delay(unit.failures + 1).min(ALL_FAILED_WAIT));
            }
            if last {
                return Ended::Well;
            }
        }
        Ended::Well
    }

    /// A copy has the topic of its event again.
    fn outgoing(&self, mut event: StoredEvent) -> OutgoingEvent {
        if let Some((_, topic)) = fan_out::copy(&event.topic) {
            event.topic = topic.into();
        }
        OutgoingEvent::new(event, Arc::clone(&self.source))
    }

    pub(super) fn failed(&self, unit: &Unit, reason: &str) -> Ended {
        unit.route.health.busy();
        unit.route.health.failed(reason);
        let wait = unit.route.sink.retry().backoff.delay(unit.failures + 1).min(FAILED_WAIT);
        warn!(topic = %unit.key.topic, reason, retry_in = ?wait, "events wait: they could not be published");
        Ended::Failed(wait)
    }

    /// What the database is told about a batch.
    fn deliveries(
        &self,
        unit: &Unit,
        events: &[OutgoingEvent],
        answers: Vec<Delivery>,
        retry: &RetryPolicy,
    ) -> Deliveries {
        let mut deliveries = Deliveries {
            leases: unit.leases.clone(),
            keep: !self.settings.keep.is_zero(),
            ..Deliveries::default()
        };
        // How long the first event of a key that failed waits; those behind it wait as long.
        let mut delays: HashMap<&[u8], Duration> = HashMap::new();
        for (event, answer) in events.iter().zip(answers) {
            let (seq, id, topic) = (event.seq(), event.id(), event.topic());
            match answer {
                Delivery::Delivered => deliveries.published.push(seq),
                Delivery::Retry { error, .. } if event.attempts().saturating_add(1) >= retry.attempts => {
                    warn!(%id, topic, error, attempts = retry.attempts, "an event is parked after its last attempt");
                    deliveries.parked.push(ParkedEvent { seq, error });
                }
                Delivery::Retry { error, after } => {
                    let delay = after.unwrap_or_else(|| retry.backoff.delay(event.attempts() + 1));
                    warn!(%id, topic, error, retry_in = ?delay, "an event is held: its delivery failed");
                    if let Some(key) = event.key() {
                        delays.entry(key).or_insert(delay);
                    }
                    deliveries.held.push(HeldEvent { seq, delay, error: Some(error) });
                }
                Delivery::Reject { error } => {
                    warn!(%id, topic, error, "an event is parked: no retry can help");
                    deliveries.parked.push(ParkedEvent { seq, error });
                }
                Delivery::Behind => {
                    let delay = event.key().and_then(|key| delays.get(key).copied());
                    deliveries.held.push(HeldEvent { seq, delay: delay.unwrap_or_default(), error: None });
                }
            }
        }
        deliveries
    }

    /// Writes down what became of events. If they are out that is worth some tries, because without it they go out again.
    pub(super) async fn record(&self, unit: &Unit, deliveries: &Deliveries) -> Result<(), Ended> {
        let mut tries = 0;
        loop {
            failpoint("relay-before-delete");
            let error = match self.store.record_deliveries(deliveries).await {
                Ok(()) => break,
                Err(error) => error,
            };
            tries += 1;
            if tries == RECORD_TRIES || !error.class.may_pass() {
                return Err(self.failed(unit, &describe(&error)));
            }
            tokio::time::sleep(backoff::DELIVERIES.delay(tries)).await;
        }
        self.meters.published.increment(deliveries.published.len() as u64);
        self.meters.parked.increment(deliveries.parked.len() as u64);
        let failed = deliveries.held.iter().filter(|held| held.error.is_some()).count();
        self.meters.retried.increment(failed as u64);
        Ok(())
    }
}

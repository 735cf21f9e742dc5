//! One piece of work: the events of a topic in some shards, read and delivered until none are left.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;
use tracing::debug;

use super::Inner;
use super::behind::behind;
use super::fan_out;
use super::routes::Route;
use super::trace::Sending;
use crate::backoff;
use crate::error::describe;
use crate::failpoint::failpoint;
use crate::inbox::{BatchBounds, RetryPolicy};
use crate::outbox::sink::{Delivery, OutgoingEvent, Standing};
use crate::store::{Deliveries, HeldEvent, Lease, OutboxAdmin, ParkedEvent, StoredEvent};

/// After this many batches another unit gets a turn.
const MAX_BATCHES_PER_TURN: usize = 8;
/// How often what became of a batch is written before its events are left to be published again.
const RECORD_TRIES: u32 = 5;
/// A batch in which everything failed makes its unit wait, but not for long: the next one may hold other keys.
const ALL_FAILED_WAIT: Duration = Duration::from_secs(2);
/// Who needed long to find out that some events fail waits as long before it tries others, up to this.
const SOME_FAILED_WAIT: Duration = Duration::from_secs(2);
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
    /// Some of what it read failed and is held: others may be better, a little later.
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
            let connection = self.share.to_look().await;
            let events = self.store.next_events(&unit.key.topic, &shards, bounds).await;
            drop(connection);
            let events = match events {
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
            let events = match self.not_behind(unit, events).await {
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
            let mut events: Vec<OutgoingEvent> =
                events.into_iter().map(|event| self.outgoing(event)).collect();
            let sending = Sending::begin(&self.telemetry, sink.system(), &mut events);
            let sent = Instant::now();
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
                Err(error) => {
                    let reason = describe(error.as_ref());
                    sending.failed(&reason);
                    return self.failed(unit, &reason);
                }
            };
            sending.answered(&answers);
            let took = sent.elapsed();
            failpoint("relay-after-report");
            let no_answer =
                answers.iter().any(|answer| matches!(answer, Delivery::Retry { after: None, .. }));
            let deliveries = self.deliveries(unit, &events, answers, &sink.retry());
            if let Err(ended) = self.record(unit, &deliveries).await {
                return ended;
            }
            failpoint("relay-after-delete");
            if !unit.route.shows_trouble() {
                unit.route.health.succeeded();
            }
            if matches!(sink.standing(), Standing::Away { .. } | Standing::Probe { .. }) {
                // Nothing begins while it is away, so this needs no pause of its own.
                return Ended::Well;
            }
            if deliveries.published.is_empty() && deliveries.parked.is_empty() {
                return Ended::Paused(sink.retry().backoff.delay(unit.failures + 1).min(ALL_FAILED_WAIT));
            }
            // The next batch may wait for the same partition, or the same receiver: the turn is another unit's. Not if the
            // receiver has said when to come again.
            if no_answer {
                return Ended::Paused(took.min(SOME_FAILED_WAIT));
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
        unit.route.lines.wait(&unit.key.topic, reason, wait);
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
        // The parked event of a key, for a sink that parks whole keys.
        let mut ahead: HashMap<&[u8], i64> = HashMap::new();
        let parks_keys = unit.route.sink.parks_keys();
        for (event, answer) in events.iter().zip(answers) {
            let seq = event.seq();
            match answer {
                Delivery::Delivered => {
                    if event.attempts() > 0 || unit.failures > 0 {
                        unit.route.lines.recovered(event);
                    }
                    deliveries.published.push(seq);
                }
                Delivery::Retry { error, .. } if event.attempts().saturating_add(1) >= retry.attempts => {
                    unit.route.lines.parked(event, &error);
                    ahead.extend(event.key().map(|key| (key, seq)));
                    deliveries.parked.push(ParkedEvent { seq, error });
                }
                Delivery::Retry { error, after } => {
                    let delay = after.unwrap_or_else(|| retry.backoff.delay(event.attempts() + 1));
                    unit.route.lines.held(event, &error, delay);
                    if let Some(key) = event.key() {
                        delays.entry(key).or_insert(delay);
                    }
                    deliveries.held.push(HeldEvent { seq, delay, error: Some(error) });
                }
                Delivery::Reject { error } => {
                    unit.route.lines.parked(event, &error);
                    ahead.extend(event.key().map(|key| (key, seq)));
                    deliveries.parked.push(ParkedEvent { seq, error });
                }
                Delivery::Behind => {
                    let parked = event.key().filter(|_| parks_keys).and_then(|key| ahead.get(key));
                    if let Some(first) = parked {
                        deliveries.parked.push(ParkedEvent { seq, error: behind(*first) });
                        continue;
                    }
                    let delay = event.key().and_then(|key| delays.get(key).copied());
                    deliveries.held.push(HeldEvent { seq, delay: delay.unwrap_or_default(), error: None });
                }
                Delivery::Wait { after } => {
                    if let Some(key) = event.key() {
                        delays.entry(key).or_insert(after);
                    }
                    deliveries.held.push(HeldEvent { seq, delay: after, error: None });
                }
                Delivery::NotTried => {}
            }
        }
        deliveries
    }

    /// Writes down what became of events. If they are out that is worth some tries, because without it they go out again.
    pub(super) async fn record(&self, unit: &Unit, deliveries: &Deliveries) -> Result<(), Ended> {
        let Deliveries { published, held, parked, .. } = deliveries;
        if published.is_empty() && held.is_empty() && parked.is_empty() {
            return Ok(());
        }
        let mut tries = 0;
        loop {
            failpoint("relay-before-delete");
            let connection = self.share.to_record().await;
            let recorded = self.store.record_deliveries(deliveries).await;
            drop(connection);
            let error = match recorded {
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

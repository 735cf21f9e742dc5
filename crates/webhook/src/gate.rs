//! What stands before a receiver: its breaker and its slow keys, shared by all deliveries to it, with what they write into the log and
//! show as a metric.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oncebox_core::backoff::Backoff;
use oncebox_core::metrics;
use oncebox_core::outbox::{Delivery, OutgoingEvent, Standing};
use oncebox_core::quiet::Quiet;
use tokio::time::Instant;
use tracing::{info, warn};
use uuid::Uuid;

use crate::breaker::{Admission, Blame, Breaker, Failure, Recovery};
use crate::failure::{Cause, Failed};
use crate::slow::{Key, Slow};

/// One line in this time about a receiver that stays away, and one about a receiver that comes back again and again.
const AWAY_EVERY: Duration = Duration::from_secs(60);
const BACK_EVERY: Duration = Duration::from_secs(10);

/// The gate of one receiver. Clones are the same gate.
#[derive(Debug, Clone)]
pub(crate) struct Gate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Scheme, host and port.
    receiver: String,
    state: Mutex<State>,
    away: Quiet,
    back: Quiet,
}

#[derive(Debug)]
struct State {
    breaker: Breaker,
    slow: Slow,
}

/// One event on its way. If it is dropped, nobody knows what became of it.
#[derive(Debug)]
pub(crate) struct Pass<'a> {
    inner: &'a Inner,
    event: Uuid,
    key: Key,
    probe: bool,
    since: Instant,
    ended: bool,
}

impl Gate {
    pub(crate) fn new(receiver: String, backoff: Backoff, timeout: Duration) -> Self {
        // So that it can be seen before the first trouble.
        metrics::webhook_away(receiver.clone()).increment(0.0);
        let state = Mutex::new(State { breaker: Breaker::new(backoff, timeout), slow: Slow::default() });
        let (away, back) = (Quiet::new(AWAY_EVERY), Quiet::new(BACK_EVERY));
        Self(Arc::new(Inner { receiver, state, away, back }))
    }

    /// Lets an event through, or says what becomes of it.
    pub(crate) fn enter(&self, event: &OutgoingEvent) -> Result<Pass<'_>, Delivery> {
        let now = Instant::now();
        let key = event.key().map_or_else(|| Key::of(event.id().as_bytes()), Key::of);
        let mut state = self.0.lock();
        state.slow.enter(now, key).map_err(|after| Delivery::Wait { after })?;
        let probe = match state.breaker.admit(now) {
            Admission::Send => false,
            Admission::Probe => true,
            Admission::Wait => {
                state.slow.dropped(key);
                return Err(Delivery::NotTried);
            }
        };
        Ok(Pass { inner: &self.0, event: event.id(), key, probe, since: now, ended: false })
    }

    pub(crate) fn standing(&self) -> Standing {
        self.0.lock().breaker.standing(Instant::now())
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Whoever holds it never leaves it half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recovered(&self, recovery: Option<Recovery>) {
        let Some(Recovery { after, failures }) = recovery else { return };
        metrics::webhook_away(self.receiver.clone()).decrement(1.0);
        if let Some(left_out) = self.back.next_line() {
            let receiver = self.receiver.as_str();
            info!(receiver, ?after, failures, left_out, "a receiver takes events again");
        }
    }

    /// The breaker has decided about a failure.
    fn blamed(&self, was_open: bool, blame: Blame, failed: Failed) -> Delivery {
        let Blame::Receiver { after } = blame else {
            return Delivery::Retry { error: failed.error, after: None };
        };
        if !was_open {
            metrics::webhook_away(self.receiver.clone()).increment(1.0);
        }
        if let Some(left_out) = self.away.next_line() {
            warn!(
                reason = &*failed.reason,
                retry_in = ?after,
                left_out,
                "a receiver gets no events but one now and then: they wait, in their order"
            );
        }
        Delivery::Wait { after }
    }
}

impl<'a> Pass<'a> {
    /// The receiver has it.
    pub(crate) fn delivered(mut self) -> Delivery {
        let mut state = self.end(false);
        let recovery = state.breaker.delivered(Instant::now(), self.probe);
        if recovery.is_some() {
            state.slow.forget();
        }
        drop(state);
        self.inner.recovered(recovery);
        Delivery::Delivered
    }

    /// It has not, or nobody knows.
    pub(crate) fn failed(mut self, failed: Failed) -> Delivery {
        let now = Instant::now();
        let mut state = self.end(matches!(failed.cause, Cause::Silent));
        let was_open = state.breaker.is_open();
        let asked = if let Cause::Later(asked) = failed.cause { asked } else { None };
        let (event, probe, reason) = (self.event, self.probe, Arc::clone(&failed.reason));
        let failure = Failure { event, probe, reason, asked };
        let (blame, recovery) = match failed.cause {
            Cause::Refused => state.breaker.refused(now, failure),
            Cause::Later(_) | Cause::Silent => (Some(state.breaker.failed(now, failure)), None),
        };
        drop(state);
        self.inner.recovered(recovery);
        match blame {
            Some(blame) => self.inner.blamed(was_open, blame, failed),
            None => Delivery::Reject { error: failed.error },
        }
    }

    fn end(&mut self, hung: bool) -> MutexGuard<'a, State> {
        self.ended = true;
        let now = Instant::now();
        let inner: &'a Inner = self.inner;
        let mut state = inner.lock();
        state.slow.ended(now, self.key, now.saturating_duration_since(self.since), hung);
        state
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let mut state = self.inner.lock();
        state.slow.dropped(self.key);
        if self.probe {
            state.breaker.probe_dropped();
        }
    }
}

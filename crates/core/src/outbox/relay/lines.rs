//! What a route writes into the log. A receiver in trouble fails event after event, and one line says it as well as a thousand.

use std::time::Duration;

use tracing::{info, warn};

use crate::outbox::sink::OutgoingEvent;
use crate::quiet::Quiet;

/// One line of each kind in this time.
const EVERY: Duration = Duration::from_secs(10);

/// The lines of one route. Each says how many of its kind were left out before it.
#[derive(Debug)]
pub(super) struct Lines {
    waits: Quiet,
    held: Quiet,
    parked: Quiet,
    recovered: Quiet,
}

impl Default for Lines {
    fn default() -> Self {
        let [waits, held, parked, recovered] = std::array::from_fn(|_| Quiet::new(EVERY));
        Self { waits, held, parked, recovered }
    }
}

/// What the log shows of an error. What a receiver answered comes after the first line: it may quote the event.
fn first_line(error: &str) -> &str {
    error.lines().next().unwrap_or_default()
}

impl Lines {
    /// No event of the topic is to blame.
    pub(super) fn wait(&self, topic: &str, reason: &str, retry_in: Duration) {
        if let Some(left_out) = self.waits.next_line() {
            warn!(topic, reason, ?retry_in, left_out, "events wait: they could not be published");
        }
    }

    pub(super) fn held(&self, event: &OutgoingEvent, error: &str, retry_in: Duration) {
        if let Some(left_out) = self.held.next_line() {
            let (id, topic, error) = (event.id(), event.topic(), first_line(error));
            warn!(%id, topic, error, ?retry_in, left_out, "an event is held: its delivery failed");
        }
    }

    pub(super) fn parked(&self, event: &OutgoingEvent, error: &str) {
        if let Some(left_out) = self.parked.next_line() {
            let (id, topic, error) = (event.id(), event.topic(), first_line(error));
            let attempts = event.attempts().saturating_add(1);
            warn!(%id, topic, error, attempts, left_out, "an event is parked: no retry can help, or its attempts are used up");
        }
    }

    /// They were not tried: an earlier one of their key is parked.
    pub(super) fn parked_behind(&self, topic: &str, events: usize) {
        if let Some(left_out) = self.parked.next_line() {
            warn!(topic, events, left_out, "events are parked behind an earlier one of their key");
        }
    }

    /// Something went out after it had failed.
    pub(super) fn recovered(&self, event: &OutgoingEvent) {
        if let Some(left_out) = self.recovered.next_line() {
            let (id, topic, attempts) = (event.id(), event.topic(), event.attempts());
            info!(%id, topic, attempts, left_out, "an event was delivered that could not be delivered before");
        }
    }
}

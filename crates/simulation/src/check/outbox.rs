//! Events are published if and only if they were committed, first occurrences in order.

use oncebox_core::outbox::OutgoingEvent;
use oncebox_core::store::ParkedEvent;

use crate::coverage::Event;
use crate::world::Inner;

impl Inner {
    /// An event reaches the receiver.
    pub(crate) fn check_delivered(&mut self, event: &OutgoingEvent) {
        let seq = event.seq();
        let Some(known) = self.sink.known.get(&seq) else {
            self.violate(format!("event {seq} is published, but its transaction never committed"));
            return;
        };
        if known.id != event.id() {
            self.violate(format!("event {seq} changes its id"));
            return;
        }
        if let Some(at) = known.deliver_at_ms.filter(|at| *at > self.db_latest_ms()) {
            let early = at - self.db_latest_ms();
            self.violate(format!("event {seq} is published {early} ms before its time"));
            return;
        }
        if known.delivered > 0 || known.refused || known.key.is_none() {
            return;
        }
        let pending = |seq: &i64| self.db.tables.outbox.get(seq).is_some_and(|row| row.is_pending());
        let overtaken = self.sink.known.range(..seq).find(|(earlier, other)| {
            other.delivered == 0
                && !other.refused
                && (&other.topic, &other.key) == (&known.topic, &known.key)
                && other.commit <= known.commit
                && pending(earlier)
        });
        if let Some((earlier, _)) = overtaken {
            let earlier = *earlier;
            self.violate(format!("event {seq} is published before {earlier} of the same topic and key"));
        }
    }

    /// An event is given up.
    pub(crate) fn check_parked(&mut self, parked: &ParkedEvent) {
        if !parked.error.starts_with("it expired") {
            return;
        }
        self.saw(Event::EventExpired);
        let expiry = self.sink.known.get(&parked.seq).and_then(|known| known.expires_ms);
        if expiry.is_none_or(|expiry| expiry > self.db_latest_ms()) {
            self.violate(format!("event {} is given up before its time is over", parked.seq));
        }
    }

    /// An event leaves the outbox as published.
    pub(crate) fn check_removed(&mut self, seq: i64) {
        let undelivered = self.sink.known.get(&seq).is_none_or(|known| known.delivered == 0);
        if undelivered && self.db.tables.outbox.contains_key(&seq) {
            self.violate(format!("event {seq} leaves the outbox, but nobody has received it"));
        }
    }
}

//! Where events go that no sink takes: aside, for an operator.

use crate::error::BoxError;
use crate::outbox::sink::{Delivery, OutgoingEvent, Sink};

/// Takes nothing.
pub(super) struct NoSink;

impl Sink for NoSink {
    async fn deliver(&self, events: &[OutgoingEvent]) -> Result<Vec<Delivery>, BoxError> {
        let rejected = |event: &OutgoingEvent| Delivery::Reject {
            error: format!(
                "no sink takes the topic {}: add a route for it (or [kafka]), then retry this event",
                event.topic()
            ),
        };
        Ok(events.iter().map(rejected).collect())
    }
}

//! One event to several sinks: it becomes a copy for each, and each copy has a state of its own.
//!
//! A copy is an event with the same id, in the same outbox, whose topic names its sink. So a sink that is away holds back its
//! own copies, in order for each key, and nobody else's.

use std::collections::HashMap;

use tracing::debug;

use super::routes::Takers;
use super::share::Share;
use crate::error::BoxError;
use crate::message::Headers;
use crate::names::ConsumerName;
use crate::outbox::event::EventRow;
use crate::outbox::sink::{Delivery, OutgoingEvent, Sink};
use crate::outbox::time::to_rfc3339;
use crate::outbox::wake;
use crate::store::{EventFilter, OutboxAdmin, StoreResult, headers_json};

/// What the topics of copies begin with; the name of the sink and the topic itself follow.
const PREFIX: &str = "oncebox.to.";

/// The topic of the copies of one sink.
pub(super) fn topic_for(name: &str, topic: &str) -> String {
    format!("{PREFIX}{name}.{topic}")
}

/// The sink and the topic of a copy; `None` if it is none.
pub(super) fn copy(topic: &str) -> Option<(&str, &str)> {
    topic.strip_prefix(PREFIX)?.split_once('.')
}

/// A consumer and a tenant.
type Cause = (Option<String>, Option<String>);

/// Writes the copies. The relay then removes the event itself; if it ends in between, they are written again, as anything that it
/// delivers may be.
pub(super) struct FanOut<S> {
    store: S,
    share: Share,
    takers: Takers,
    /// Nobody's: no receipt is written.
    consumer: ConsumerName,
}

impl<S: OutboxAdmin> FanOut<S> {
    pub(super) fn new(store: S, share: Share, takers: Takers) -> Option<Self> {
        Some(Self { store, share, takers, consumer: ConsumerName::new("oncebox").ok()? })
    }

    /// The consumer and the tenant of the message that caused each of them, by their places. A relay reads events without them.
    async fn causes(&self, events: &[OutgoingEvent]) -> StoreResult<HashMap<i64, Cause>> {
        let filter = EventFilter {
            seqs: events.iter().map(OutgoingEvent::seq).collect(),
            limit: u32::try_from(events.len()).unwrap_or(u32::MAX),
            ..EventFilter::default()
        };
        let _connection = self.share.to_look().await;
        let entries = self.store.events(&filter).await?;
        Ok(entries.into_iter().map(|entry| (entry.event.seq, (entry.consumer, entry.tenant))).collect())
    }

    async fn write(&self, rows: &[EventRow<'_>]) -> StoreResult<()> {
        let _connection = self.share.to_look().await;
        let mut txn = self.store.claim(&self.consumer, &[]).await?.txn;
        match S::write_events(&mut txn, rows).await {
            Ok(()) => self.store.commit(txn, None).await?,
            Err(error) => {
                self.store.rollback(txn).await;
                return Err(error);
            }
        }
        wake::events_committed();
        Ok(())
    }
}

impl<S: OutboxAdmin> Sink for FanOut<S> {
    async fn deliver(&self, events: &[OutgoingEvent]) -> Result<Vec<Delivery>, BoxError> {
        let Some(topic) = events.first().map(OutgoingEvent::topic) else { return Ok(Vec::new()) };
        let topics: Vec<String> =
            self.takers.of(topic).into_iter().map(|name| topic_for(name, topic)).collect();
        if let Some(error) = topics.iter().find_map(|topic| crate::outbox::check_topic(topic).err()) {
            let error = format!("its topic is too long for copies to several sinks: {error}");
            return Ok(vec![Delivery::Reject { error }; events.len()]);
        }
        let causes = self.causes(events).await?;
        let headers: Vec<String> = events.iter().map(headers).collect();
        let mut rows = Vec::with_capacity(events.len() * topics.len());
        for (event, headers) in events.iter().zip(&headers) {
            let stored = event.stored();
            let (consumer, tenant) = causes.get(&stored.seq).cloned().unwrap_or_default();
            rows.extend(topics.iter().map(|topic| EventRow {
                id: stored.id,
                topic,
                key: stored.key.as_deref(),
                payload: stored.payload.as_deref(),
                headers: headers.clone(),
                consumer: consumer.clone(),
                tenant: tenant.clone(),
                causation_id: stored.causation_id.clone(),
                deliver_at_ms: None,
            }));
        }
        self.write(&rows).await?;
        debug!(topic, events = events.len(), sinks = topics.len(), "copies for each sink");
        Ok(vec![Delivery::Delivered; events.len()])
    }

    fn batch_events(&self) -> usize {
        500
    }

    /// The copies are what is sent.
    fn system(&self) -> Option<&'static str> {
        None
    }
}

/// The headers of a copy: it was written when the event was.
fn headers(event: &OutgoingEvent) -> String {
    let stored = event.stored();
    let mut headers: Headers = stored.headers.clone();
    if headers.last("ce_time").is_none() {
        headers.push("ce_time", Some(to_rfc3339(stored.created_at_ms).into()));
    }
    headers_json::compact(&headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topic_of_a_copy_names_its_sink() {
        let topic = topic_for("crm", "invoice.issued");
        assert_eq!(topic, "oncebox.to.crm.invoice.issued");
        assert_eq!(copy(&topic), Some(("crm", "invoice.issued")));
        for other in ["invoice.issued", "oncebox.to", "oncebox.to.crm"] {
            assert_eq!(copy(other), None, "{other}");
        }
    }
}

//! One message: its receipts, its dead letters, and the events that it caused.

use std::collections::BTreeSet;

use crate::message::Headers;
use crate::names::{ConsumerName, MessageId, Tenant};
use crate::store::{
    CausedEvents, DeadFilter, DeadSummary, FoundReceipt, OutboxAdmin, OutboxEntry, StoreResult,
};
use crate::telemetry::TRACEPARENT;

/// How many places of the outbox are looked at.
const NEWEST_EVENTS: u32 = 100_000;
/// How many dead letters of a message are told.
const MAX_LETTERS: u32 = 20;

/// The header that says which trace a message belongs to (W3C Trace Context).
pub const TRACE_HEADER: &str = TRACEPARENT;

/// A message as one consumer knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundAt {
    /// The consumer.
    pub consumer: ConsumerName,
    /// The tenant.
    pub tenant: Tenant,
    /// Whether it is settled, and when.
    pub receipt: Option<FoundReceipt>,
    /// Its dead letters: it was given up, and its receipt says only that.
    pub letters: Vec<DeadSummary>,
}

/// What is known of a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Where it was seen.
    pub at: Vec<FoundAt>,
    /// The events that it caused, and that are still in the outbox.
    pub events: CausedEvents,
    /// The traces that its letters and its events belong to.
    pub traces: Vec<String>,
    /// The consumers that were asked.
    pub asked: Vec<ConsumerName>,
}

impl Found {
    /// Whether it was seen at all.
    #[must_use]
    pub fn is_seen(&self) -> bool {
        !self.at.is_empty() || !self.events.events.is_empty()
    }
}

/// Looks for a message by its id, with all that the database knows of these consumers (of all, if there are none). Without a tenant,
/// receipts are looked for without one, and with those that its dead letters have: nothing else finds them.
pub async fn find<S: OutboxAdmin>(
    store: &S,
    consumers: &[ConsumerName],
    tenant: Option<&Tenant>,
    id: &MessageId,
) -> StoreResult<Found> {
    let mut found = Found { asked: asked(store, consumers).await?, ..Found::default() };
    let mut traces = BTreeSet::new();
    for consumer in &found.asked {
        let of_id = DeadFilter {
            consumer: Some(consumer.to_string()),
            message_id: Some(id.as_str().to_owned()),
            tenant: tenant.map(|tenant| tenant.as_str().to_owned()),
            newest_first: true,
            limit: MAX_LETTERS,
            ..DeadFilter::default()
        };
        let letters = store.dead_letters(&of_id).await?;
        let mut tenants: Vec<Tenant> = vec![tenant.cloned().unwrap_or_else(Tenant::none)];
        for letter in &letters {
            if let Some(whole) = store.dead_letter(letter.number).await? {
                traces.extend(trace_id(&whole.letter.record.headers));
                if !tenants.contains(&whole.letter.tenant) {
                    tenants.push(whole.letter.tenant);
                }
            }
        }
        for tenant in tenants {
            let receipt = store.receipt(consumer, &tenant, id).await?;
            let letters: Vec<DeadSummary> =
                letters.iter().filter(|letter| letter.tenant == tenant.as_str()).cloned().collect();
            if receipt.is_some() || !letters.is_empty() {
                found.at.push(FoundAt { consumer: consumer.clone(), tenant, receipt, letters });
            }
        }
    }
    let mut events = store.events_caused_by(id.as_str(), NEWEST_EVENTS).await?;
    events.events.retain(|entry| is_of(entry, &found.asked, consumers.is_empty(), tenant));
    traces.extend(events.events.iter().filter_map(|entry| trace_id(&entry.event.headers)));
    found.events = events;
    found.traces = traces.into_iter().collect();
    Ok(found)
}

/// Those that are named; else all that have left something in the database.
async fn asked<S: OutboxAdmin>(store: &S, consumers: &[ConsumerName]) -> StoreResult<Vec<ConsumerName>> {
    if !consumers.is_empty() {
        return Ok(consumers.to_vec());
    }
    let known = store.status(0).await?.consumers;
    Ok(known.into_iter().filter_map(|status| ConsumerName::new(status.consumer).ok()).collect())
}

/// An event without a consumer was written by an application, which may have named its cause.
fn is_of(entry: &OutboxEntry, asked: &[ConsumerName], any: bool, tenant: Option<&Tenant>) -> bool {
    let by = entry.consumer.as_deref();
    let of_consumer = any || by.is_none_or(|name| asked.iter().any(|consumer| consumer.as_str() == name));
    let of_tenant =
        tenant.is_none_or(|tenant| entry.tenant.as_deref().unwrap_or_default() == tenant.as_str());
    of_consumer && of_tenant
}

/// The trace that headers name.
#[must_use]
pub fn trace_id(headers: &Headers) -> Option<String> {
    let parent = std::str::from_utf8(headers.last(TRACE_HEADER)?).ok()?;
    let trace = parent.split('-').nth(1)?;
    let is_one = trace.len() == 32
        && trace.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        && trace.bytes().any(|byte| byte != b'0');
    is_one.then(|| trace.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn a_trace_is_read_from_its_header() {
        let of =
            |value: &'static str| trace_id(&[(TRACE_HEADER, Some(Bytes::from(value)))].into_iter().collect());
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        assert_eq!(of("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").as_deref(), Some(trace));
        for wrong in ["", "00", "00-xyz-1-1", "00-00000000000000000000000000000000-00f067aa0ba902b7-01"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
        assert_eq!(trace_id(&Headers::new()), None);
    }
}

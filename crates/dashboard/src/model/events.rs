//! The outbox.

use oncebox_core::operate::EventPage;
use oncebox_core::store::{EventFilter, EventState, OutboxEntry, ShardStatus};
use schemars::JsonSchema;
use serde::Serialize;

use super::overview::Outbox;
use super::{Bytes, Time};
use crate::backend::Look;
use crate::fields::Fields;
use crate::history::History;

/// So many stand on a page.
const PAGE: u32 = 50;

/// The states that can be asked for.
pub(crate) const STATES: [EventState; 5] =
    [EventState::Parked, EventState::Held, EventState::Delayed, EventState::Pending, EventState::Published];

/// The outbox with its shards.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct OutboxDetail {
    pub(crate) at: Time,
    #[serde(flatten)]
    pub(crate) outbox: Outbox,
    pub(crate) shards: Vec<Shard>,
}

/// Some keys, and whose they are.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Shard {
    pub(crate) shard: u16,
    /// The relay that publishes its events.
    pub(crate) owner: Option<String>,
    /// How often it changed hands.
    pub(crate) epoch: i64,
    pub(crate) expires_in_seconds: Option<f64>,
}

/// A page of events.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct EventList {
    pub(crate) events: Vec<EventRow>,
    /// Ask for this page next: the value of `after`.
    pub(crate) next: Option<i64>,
}

/// An event in a list, without its payload.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct EventRow {
    pub(crate) number: i64,
    pub(crate) id: String,
    pub(crate) topic: String,
    /// pending, delayed, held, parked or published.
    pub(crate) state: &'static str,
    /// Since when it is parked or published, or until when it is held or delayed.
    pub(crate) state_at: Option<Time>,
    pub(crate) created_at: Time,
    pub(crate) attempts: u32,
    pub(crate) error: Option<String>,
    pub(crate) shard: u16,
    /// Whose handler wrote it.
    pub(crate) consumer: Option<String>,
    /// The id of the message that caused it.
    pub(crate) caused_by: Option<String>,
    pub(crate) payload_bytes: Option<u64>,
    /// Only if it was asked for.
    pub(crate) key: Option<Bytes>,
}

impl OutboxDetail {
    pub(crate) fn of(look: &Look, history: &History) -> Self {
        let shard = |shard: &ShardStatus| Shard {
            shard: shard.shard,
            owner: shard.owner.clone(),
            epoch: shard.epoch,
            expires_in_seconds: shard.expires_in.map(|left| left.as_secs_f64()),
        };
        Self {
            at: Time(look.at_ms),
            outbox: Outbox::of(look, history),
            shards: look.status.outbox.shards.iter().map(shard).collect(),
        }
    }
}

/// What is asked for: parked events, unless another state is named.
pub(crate) fn filter(fields: &Fields) -> Result<EventFilter, String> {
    let state = match fields.maybe("state") {
        None => EventState::Parked,
        Some(word) => *STATES
            .iter()
            .find(|state| state.as_str() == word)
            .ok_or_else(|| format!("there are no events that are {word}"))?,
    };
    Ok(EventFilter {
        state: Some(state),
        topic: fields.maybe("topic"),
        key: fields.maybe("key").map(String::into_bytes),
        after: fields.number("after")?.unwrap_or_default(),
        limit: PAGE,
        ..EventFilter::default()
    })
}

impl EventList {
    /// One more than a page was asked for, if there is one.
    pub(crate) fn of(page: EventPage, limit: u32, with_keys: bool) -> Self {
        let EventPage { mut events, next } = page;
        let limit = limit as usize;
        let more = events.len() > limit;
        events.truncate(limit);
        let next = if more { events.last().map(|last| last.event.seq) } else { next };
        Self { events: events.into_iter().map(|entry| EventRow::of(entry, with_keys)).collect(), next }
    }
}

impl EventRow {
    pub(crate) fn of(entry: OutboxEntry, with_key: bool) -> Self {
        let event = entry.event;
        Self {
            number: event.seq,
            id: event.id.to_string(),
            topic: event.topic.to_string(),
            state: entry.state.as_str(),
            state_at: entry.state_at_ms.map(Time),
            created_at: Time(event.created_at_ms),
            attempts: event.attempts,
            error: entry.error,
            shard: entry.shard,
            consumer: entry.consumer,
            caused_by: event.causation_id,
            payload_bytes: event.payload.map(|payload| payload.len() as u64),
            key: event.key.filter(|_| with_key).map(|key| Bytes::of(&key)),
        }
    }
}

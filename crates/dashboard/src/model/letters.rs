//! Dead letters.

use oncebox_core::message::Headers;
use oncebox_core::store::{DeadFilter, DeadGroup, DeadSummary, StoredDeadLetter};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Bytes, Time};
use crate::fields::Fields;

/// So many stand on a page.
const PAGE: u32 = 50;
/// An API client may ask for more.
const MAX_PAGE: u32 = 500;

/// The filters that stand in the URL.
pub(crate) const FILTERS: [&str; 7] = ["consumer", "topic", "tenant", "id", "key", "error", "group"];

/// What the next page is asked for with.
pub(crate) const CURSOR: &str = "before";

/// Groups of dead letters.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct GroupList {
    pub(crate) groups: Vec<Group>,
}

/// Dead letters of one consumer whose errors read alike.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Group {
    pub(crate) group: String,
    pub(crate) consumer: String,
    /// The beginning of the newest letter's error.
    pub(crate) error: String,
    /// Counted up to 1,000.
    pub(crate) letters: u64,
    /// How many different keys they have.
    pub(crate) keys: u64,
    pub(crate) first_at: Time,
    pub(crate) last_at: Time,
}

impl GroupList {
    pub(crate) fn of(found: Vec<DeadGroup>) -> Self {
        let group = |one: DeadGroup| Group {
            group: one.group,
            consumer: one.consumer,
            error: one.error,
            letters: one.letters,
            keys: one.keys,
            first_at: Time(one.first_ms),
            last_at: Time(one.last_ms),
        };
        Self { groups: found.into_iter().map(group).collect() }
    }
}

/// A page of dead letters.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct LetterList {
    pub(crate) letters: Vec<LetterRow>,
    /// Ask for this page next: the value of `before`.
    pub(crate) next: Option<i64>,
}

/// A dead letter in a list.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct LetterRow {
    pub(crate) number: i64,
    pub(crate) consumer: String,
    pub(crate) tenant: String,
    pub(crate) message_id: Option<String>,
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) payload_bytes: Option<u64>,
    /// Its beginning.
    pub(crate) error: String,
    pub(crate) attempts: u32,
    pub(crate) failed_at: Time,
    /// Whether somebody has changed it since.
    pub(crate) edited: bool,
}

/// A dead letter, whole. Payload, key and the values of headers only if they were asked for.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Letter {
    pub(crate) number: i64,
    pub(crate) consumer: String,
    pub(crate) tenant: String,
    pub(crate) message_id: Option<String>,
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) log: Option<String>,
    pub(crate) produced_at: Option<Time>,
    pub(crate) failed_at: Time,
    pub(crate) attempts: u32,
    pub(crate) error: String,
    pub(crate) payload_bytes: Option<u64>,
    pub(crate) header_names: Vec<String>,
    /// What the message held.
    pub(crate) content: Option<Content>,
}

/// What a message holds.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Content {
    pub(crate) key: Option<Bytes>,
    /// Nothing is a tombstone.
    pub(crate) payload: Option<Bytes>,
    pub(crate) headers: Vec<Header>,
}

/// A header.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Header {
    pub(crate) name: String,
    pub(crate) value: Option<Bytes>,
}

/// What is asked for.
pub(crate) fn filter(fields: &Fields) -> Result<DeadFilter, String> {
    let limit = fields.number::<u32>("limit")?.unwrap_or(PAGE).clamp(1, MAX_PAGE);
    Ok(DeadFilter {
        consumer: fields.maybe("consumer"),
        topic: fields.maybe("topic"),
        tenant: fields.maybe("tenant"),
        message_id: fields.maybe("id"),
        key: fields.maybe("key").map(String::into_bytes),
        error: fields.maybe("error"),
        group: fields.maybe("group"),
        before: fields.number(CURSOR)?,
        newest_first: true,
        limit,
        ..DeadFilter::default()
    })
}

impl LetterList {
    /// One more than a page was asked for, if there is one.
    pub(crate) fn of(mut found: Vec<DeadSummary>, limit: u32) -> Self {
        let limit = limit as usize;
        let more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| more).map(|last| last.number);
        Self { letters: found.into_iter().map(LetterRow::of).collect(), next }
    }
}

impl LetterRow {
    fn of(letter: DeadSummary) -> Self {
        Self {
            number: letter.number,
            consumer: letter.consumer,
            tenant: letter.tenant,
            message_id: letter.message_id,
            topic: letter.topic,
            partition: letter.partition,
            offset: letter.offset,
            payload_bytes: letter.payload_bytes,
            error: letter.error,
            attempts: letter.attempts,
            failed_at: Time(letter.failed_at_ms),
            edited: letter.edited,
        }
    }
}

impl Letter {
    pub(crate) fn of(stored: &StoredDeadLetter, with_content: bool) -> Self {
        let letter = &stored.letter;
        let record = &letter.record;
        Self {
            number: stored.number,
            consumer: stored.consumer.clone(),
            tenant: letter.tenant.as_str().to_owned(),
            message_id: letter.message_id.clone(),
            topic: record.topic.to_string(),
            partition: record.partition,
            offset: record.offset,
            log: record.log.as_ref().map(|log| log.as_str().to_owned()),
            produced_at: record.timestamp_ms.map(Time),
            failed_at: Time(stored.failed_at_ms),
            attempts: letter.attempts,
            error: letter.error.clone(),
            payload_bytes: record.payload.as_ref().map(|payload| payload.len() as u64),
            header_names: record.headers.iter().map(|(name, _)| name.to_owned()).collect(),
            content: with_content
                .then(|| Content::of(record.key.as_deref(), record.payload.as_deref(), &record.headers)),
        }
    }
}

impl Content {
    pub(crate) fn of(key: Option<&[u8]>, payload: Option<&[u8]>, headers: &Headers) -> Self {
        let header = |(name, value): (&str, Option<&[u8]>)| Header {
            name: name.to_owned(),
            value: value.map(Bytes::of),
        };
        Self {
            key: key.map(Bytes::of),
            payload: payload.map(Bytes::of),
            headers: headers.iter().map(header).collect(),
        }
    }
}

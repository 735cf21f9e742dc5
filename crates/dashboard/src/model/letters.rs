//! Dead letters.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use oncebox_core::message::Headers;
use oncebox_core::operate::LetterPage;
use oncebox_core::store::{DeadFilter, DeadGroup, DeadSummary, LetterEdit, StoredDeadLetter, error_group};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Bytes, Time};
use crate::backend::Look;
use crate::fields::Fields;

/// So many stand on a page.
const PAGE: u32 = 50;
/// An API client may ask for more.
const MAX_PAGE: u32 = 500;

/// The filters that stand in the URL.
pub(crate) const FILTERS: [&str; 9] =
    ["consumer", "topic", "tenant", "id", "key", "error", "group", SINCE, UNTIL];

/// Those of them that are times.
pub(crate) const SINCE: &str = "since";
pub(crate) const UNTIL: &str = "until";

/// Letters of a group are counted up to here.
pub(crate) const GROUP_COUNT_CAP: u64 = 1_000;

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
    /// How many different keys they have: of the oldest hundred letters.
    pub(crate) keys: u64,
    /// How many of them are held back, because the consumer has `on_failure = "park-key"`.
    pub(crate) keys_held_back: u64,
    pub(crate) first_at: Time,
    pub(crate) last_at: Time,
}

impl GroupList {
    pub(crate) fn of(found: Vec<DeadGroup>, look: &Look) -> Self {
        let holds = |consumer: &str| look.configured.iter().any(|c| c.consumer == consumer && c.holds_keys);
        let group = |one: DeadGroup| Group {
            keys_held_back: if holds(&one.consumer) { one.keys } else { 0 },
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
    /// Ask for this page next: the value of `before`. There may be one though this page is not full: then it was looked so far.
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
    /// Letters of its consumer whose errors read alike.
    pub(crate) group: String,
    pub(crate) payload_bytes: Option<u64>,
    pub(crate) header_names: Vec<String>,
    /// What the message held; what it was changed to, if it was.
    pub(crate) content: Option<Content>,
    /// How often it was changed.
    pub(crate) edits: u32,
    /// Who has changed it last, and what arrived.
    pub(crate) edit: Option<Edited>,
}

/// That a dead letter was changed.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Edited {
    pub(crate) by: String,
    pub(crate) at: Time,
    /// What arrived.
    pub(crate) original: Option<Content>,
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
        failed_from_ms: time(fields, SINCE)?,
        failed_until_ms: time(fields, UNTIL)?,
        before: fields.number(CURSOR)?,
        newest_first: true,
        limit,
        ..DeadFilter::default()
    })
}

/// A time as programs write it, or as a browser does it: without a zone, which is UTC then.
fn time(fields: &Fields, name: &str) -> Result<Option<i64>, String> {
    let Some(text) = fields.maybe(name) else { return Ok(None) };
    let in_utc = || text.parse::<DateTime>().and_then(|time| time.to_zoned(TimeZone::UTC));
    let time = text.parse::<Timestamp>().or_else(|_| in_utc().map(|time| time.timestamp()));
    let time = time.map_err(|_| format!("`{name}` is not a time such as 2026-11-01T00:00:00Z"))?;
    Ok(Some(time.as_millisecond()))
}

/// A time as a browser's field wants it.
pub(crate) fn field_time(fields: &Fields, name: &str) -> Option<String> {
    let time = Timestamp::from_millisecond(time(fields, name).ok()??).ok()?;
    Some(time.to_zoned(TimeZone::UTC).datetime().strftime("%Y-%m-%dT%H:%M:%S").to_string())
}

impl LetterList {
    /// One more than a page was asked for, if there is one; fewer, if somebody would have had to look too long.
    pub(crate) fn of(mut found: LetterPage, limit: u32) -> Self {
        let limit = limit as usize;
        let more = found.letters.len() > limit;
        found.letters.truncate(limit);
        let last = found.letters.last().filter(|_| more).map(|last| last.number);
        let next = if more { last } else { found.next };
        Self { letters: found.letters.into_iter().map(LetterRow::of).collect(), next }
    }
}

impl LetterRow {
    pub(crate) fn of(letter: DeadSummary) -> Self {
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
            group: error_group(&stored.consumer, &letter.error),
            edits: stored.edit.as_ref().map_or(0, |edit| edit.times),
            edit: stored.edit.as_ref().map(|edit| Edited::of(edit, with_content)),
        }
    }
}

impl Edited {
    fn of(edit: &LetterEdit, with_content: bool) -> Self {
        let was = &edit.original;
        Self {
            by: edit.by.clone(),
            at: Time(edit.at_ms),
            original: with_content
                .then(|| Content::of(was.key.as_deref(), was.payload.as_deref(), &was.headers)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_as_programs_and_as_browsers_write_it() {
        let ms = |text: &str| {
            let fields = [("since".to_owned(), text.to_owned())].into_iter().collect();
            time(&fields, SINCE).map(|time| time.map(|ms| (ms, field_time(&fields, SINCE).unwrap())))
        };
        let midnight = Ok(Some((1_767_225_600_000, "2026-01-01T00:00:00".to_owned())));
        for text in ["2026-01-01T00:00:00Z", "2026-01-01T00:00", "2026-01-01T01:00:00+01:00", "2026-01-01"] {
            assert_eq!(ms(text), midnight, "{text}");
        }
        assert_eq!(ms(""), Ok(None));
        assert!(ms("yesterday").unwrap_err().contains("since"));
    }
}

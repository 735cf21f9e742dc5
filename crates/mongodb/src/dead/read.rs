//! Dead letters by filter, and from documents: whole, or as a line of a list.

use bytes::Bytes;
use mongodb::bson::{Bson, Document, doc};
use oncebox_core::message::Record;
use oncebox_core::names::Tenant;
use oncebox_core::source::LogId;
use oncebox_core::store::{
    DeadFilter, DeadLetter, DeadSummary, ErrorClass, LetterContent, LetterEdit, MAX_SUMMARY_BYTES,
    StoreError, StoreResult, StoredDeadLetter, headers_json,
};

use super::{binary, hash};
use crate::position::whole;
use crate::time::date;

/// The fields that [`summary`] reads. Payloads and headers stay where they are: a page of letters must not be as large as the
/// messages in it.
pub(super) fn summary_fields() -> Document {
    let most = i32::try_from(MAX_SUMMARY_BYTES).unwrap_or(i32::MAX);
    doc! {
        "consumer": 1, "tenant": 1, "message_id": 1, "topic": 1, "partition": 1, "offset": 1, "key": 1,
        "payload_bytes": { "$ifNull": ["$lengths.payload", { "$binarySize": "$payload" }] },
        "error": { "$substrCP": ["$error", 0, most] }, "attempts": 1, "failed_at": 1, "edits": 1,
    }
}

/// The letters that a filter means: the conditions that are asked for and no others.
pub(super) fn matching(filter: &DeadFilter) -> Document {
    let mut number = doc! { "$gt": filter.after };
    if !filter.numbers.is_empty() {
        number.insert("$in", &filter.numbers);
    }
    if let Some(before) = filter.before {
        number.insert("$lt", before);
    }
    let mut matching = doc! { "_id": number };
    let texts = [
        ("consumer", &filter.consumer),
        ("topic", &filter.topic),
        ("tenant", &filter.tenant),
        ("message_id", &filter.message_id),
    ];
    for (field, value) in texts {
        if let Some(value) = value {
            matching.insert(field, value);
        }
    }
    if let Some(key) = &filter.key {
        matching.insert("key_hash", binary(&hash(key)));
    }
    if let Some(group) = &filter.group {
        matching.insert("error_group", group);
    }
    if let Some(text) = &filter.error {
        let place = doc! { "$indexOfCP": ["$error", { "$literal": text }] };
        matching.insert("$expr", doc! { "$gte": [place, 0] });
    }
    let mut failed_at = Document::new();
    for (comparison, ms) in [("$gte", filter.failed_from_ms), ("$lt", filter.failed_until_ms)] {
        if let Some(ms) = ms {
            failed_at.insert(comparison, date(ms));
        }
    }
    if !failed_at.is_empty() {
        matching.insert("failed_at", failed_at);
    }
    matching
}

fn text(letter: &Document, field: &str) -> String {
    letter.get_str(field).unwrap_or_default().to_owned()
}

fn small<N: TryFrom<i64> + Default>(letter: &Document, field: &str) -> N {
    whole(letter.get(field)).and_then(|number| N::try_from(number).ok()).unwrap_or_default()
}

fn bytes(letter: &Document, field: &str) -> Option<Vec<u8>> {
    match letter.get(field) {
        Some(Bson::Binary(binary)) => Some(binary.bytes.clone()),
        _ => None,
    }
}

fn failed_at_ms(letter: &Document) -> i64 {
    letter.get_datetime("failed_at").map_or(0, |at| at.timestamp_millis())
}

/// A letter from its document.
pub(super) fn stored(number: i64, letter: &Document) -> StoreResult<StoredDeadLetter> {
    let broken =
        |what: String| StoreError::new(ErrorClass::Failed, format!("reading dead letter {number}"), what);
    let tenant = Tenant::new(text(letter, "tenant")).map_err(|e| broken(e.to_string()))?;
    let headers = headers_json::from_pairs(letter.get_str("headers").unwrap_or_default())
        .ok_or_else(|| broken("its headers are not [[name, value], …]".into()))?;
    Ok(StoredDeadLetter {
        number,
        consumer: text(letter, "consumer"),
        letter: DeadLetter {
            tenant,
            message_id: Some(text(letter, "message_id")).filter(|id| !id.is_empty()),
            record: Record {
                log: Some(text(letter, "log")).filter(|log| !log.is_empty()).map(LogId::new),
                key: bytes(letter, "key").map(Bytes::from),
                payload: bytes(letter, "payload").map(Bytes::from),
                headers,
                timestamp_ms: whole(letter.get("timestamp_ms")),
                ..Record::at(text(letter, "topic"), small(letter, "partition"), small(letter, "offset"))
            },
            error: text(letter, "error"),
            attempts: small(letter, "attempts"),
        },
        failed_at_ms: failed_at_ms(letter),
        edit: edit(letter),
    })
}

/// What somebody has changed.
fn edit(letter: &Document) -> Option<LetterEdit> {
    let original = letter.get_document("original").ok()?;
    let headers = headers_json::from_pairs(original.get_str("headers").unwrap_or_default());
    Some(LetterEdit {
        by: text(letter, "edited_by"),
        at_ms: letter.get_datetime("edited_at").map_or(0, |at| at.timestamp_millis()),
        times: small(letter, "edits"),
        original: LetterContent {
            key: bytes(original, "key").map(Bytes::from),
            payload: bytes(original, "payload").map(Bytes::from),
            headers: headers.unwrap_or_default(),
        },
    })
}

/// A line of the list from its document.
pub(super) fn summary(letter: &Document) -> DeadSummary {
    let mut key = bytes(letter, "key");
    if let Some(key) = &mut key {
        key.truncate(MAX_SUMMARY_BYTES);
    }
    DeadSummary {
        number: small(letter, "_id"),
        consumer: text(letter, "consumer"),
        tenant: text(letter, "tenant"),
        message_id: Some(text(letter, "message_id")).filter(|id| !id.is_empty()),
        topic: text(letter, "topic"),
        partition: small(letter, "partition"),
        offset: small(letter, "offset"),
        key,
        payload_bytes: whole(letter.get("payload_bytes")).map(i64::unsigned_abs),
        error: text(letter, "error"),
        attempts: small(letter, "attempts"),
        failed_at_ms: failed_at_ms(letter),
        edited: small::<u32>(letter, "edits") > 0,
    }
}

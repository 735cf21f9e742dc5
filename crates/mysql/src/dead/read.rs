//! Dead letters by filter, and from rows: whole, or as a line of a list.

use bytes::Bytes;
use oncebox_core::message::Record;
use oncebox_core::names::Tenant;
use oncebox_core::source::LogId;
use oncebox_core::store::{
    DeadFilter, DeadLetter, DeadSummary, ErrorClass, LetterContent, LetterEdit, MAX_SUMMARY_BYTES,
    StoreError, StoreResult, StoredDeadLetter, headers_json,
};
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use super::hash;
use crate::classify::Context;
use crate::quote::{push_bytes, push_text};
use crate::time::LAST_MS;

/// The columns that [`stored`] reads.
macro_rules! letter_columns {
    () => {
        concat!(
            "number, consumer, tenant, message_id, topic, `partition`, `offset`, log, `key`, payload, headers, timestamp_ms, \
             error, attempts, ",
            $crate::time::in_ms!("failed_at"),
            " AS failed_at_ms, edits, edited_by, ",
            $crate::time::in_ms!("edited_at"),
            " AS edited_at_ms, original_key, original_payload, original_headers"
        )
    };
}

/// The columns that [`summary`] reads. Payloads and headers stay where they are: a page of letters must not be as large as the
/// messages in it.
macro_rules! summary_columns {
    () => {
        concat!(
            "number, consumer, tenant, message_id, topic, `partition`, `offset`, LEFT(`key`, 256) AS `key`, \
             OCTET_LENGTH(payload) AS payload_bytes, LEFT(error, 256) AS error, attempts, ",
            $crate::time::in_ms!("failed_at"),
            " AS failed_at_ms, edits IS NOT NULL AS edited"
        )
    };
}
const _: () = assert!(MAX_SUMMARY_BYTES == 256, "as summary_columns! says");

pub(super) use {letter_columns, summary_columns};

/// The letters that a filter means, in the order of their numbers: the conditions that are asked for and no others. The first
/// comparison finds a text by its index, the second byte for byte: for the first one, blanks at the end are no difference.
pub(super) fn matching(filter: &DeadFilter) -> String {
    let mut sql = format!("WHERE number > {}", filter.after);
    if !filter.numbers.is_empty() {
        let numbers: Vec<_> = filter.numbers.iter().map(i64::to_string).collect();
        sql.push_str(&format!(" AND number IN ({})", numbers.join(",")));
    }
    let texts = [
        ("consumer", &filter.consumer),
        ("topic", &filter.topic),
        ("tenant", &filter.tenant),
        ("message_id", &filter.message_id),
    ];
    for (column, value) in texts {
        if let Some(value) = value {
            sql.push_str(&format!(" AND {column} = "));
            push_text(&mut sql, value);
            sql.push_str(&format!(" AND CAST({column} AS BINARY) = CAST("));
            push_text(&mut sql, value);
            sql.push_str(" AS BINARY)");
        }
    }
    if let Some(key) = &filter.key {
        sql.push_str(" AND key_hash = ");
        push_bytes(&mut sql, &hash(key));
    }
    // A range, so that its letters come in the order of the index that knows it; with `=`, the optimizer may take the order of the
    // numbers and look at all letters.
    if let Some(group) = &filter.group {
        for comparison in [">=", "<="] {
            sql.push_str(&format!(" AND error_group {comparison} "));
            push_text(&mut sql, group);
        }
    }
    if let Some(text) = &filter.error {
        sql.push_str(" AND LOCATE(");
        push_text(&mut sql, text);
        sql.push_str(", error) > 0");
    }
    for (comparison, ms) in [(">=", filter.failed_from_ms), ("<", filter.failed_until_ms)] {
        if let Some(ms) = ms {
            let ms = ms.clamp(0, LAST_MS);
            let time = format!("TIMESTAMP'1970-01-01 00:00:00' + INTERVAL {ms} * 1000 MICROSECOND");
            sql.push_str(&format!(" AND failed_at {comparison} {time}"));
        }
    }
    if let Some(before) = filter.before {
        sql.push_str(&format!(" AND number < {before}"));
    }
    let order = match (filter.group.is_some(), filter.newest_first) {
        (false, false) => "number",
        (false, true) => "number DESC",
        (true, false) => "error_group, number",
        (true, true) => "error_group DESC, number DESC",
    };
    sql.push_str(&format!(" ORDER BY {order} LIMIT {}", filter.limit));
    sql
}

/// A letter from its row.
pub(super) fn stored(row: &MySqlRow) -> StoreResult<StoredDeadLetter> {
    let number: i64 = row.try_get("number").context("reading a dead letter")?;
    let broken =
        |what: String| StoreError::new(ErrorClass::Failed, format!("reading dead letter {number}"), what);
    let tenant: String = row.try_get("tenant").context("reading a dead letter")?;
    let tenant = Tenant::new(tenant).map_err(|e| broken(e.to_string()))?;
    let headers: String = row.try_get("headers").context("reading a dead letter")?;
    let headers = headers_json::from_pairs(&headers)
        .ok_or_else(|| broken("its headers are not [[name, value], …]".into()))?;
    let edit = edit(row).context("reading a dead letter")?;
    let columns = || -> sqlx::Result<StoredDeadLetter> {
        let message_id: String = row.try_get("message_id")?;
        let topic: String = row.try_get("topic")?;
        let attempts: i32 = row.try_get("attempts")?;
        Ok(StoredDeadLetter {
            number,
            consumer: row.try_get("consumer")?,
            letter: DeadLetter {
                tenant,
                message_id: (!message_id.is_empty()).then_some(message_id),
                record: Record {
                    log: Some(row.try_get::<String, _>("log")?).filter(|log| !log.is_empty()).map(LogId::new),
                    key: row.try_get::<Option<Vec<u8>>, _>("key")?.map(Bytes::from),
                    payload: row.try_get::<Option<Vec<u8>>, _>("payload")?.map(Bytes::from),
                    headers,
                    timestamp_ms: row.try_get("timestamp_ms")?,
                    ..Record::at(topic, row.try_get("partition")?, row.try_get("offset")?)
                },
                error: row.try_get("error")?,
                attempts: attempts.unsigned_abs(),
            },
            failed_at_ms: row.try_get("failed_at_ms")?,
            edit,
        })
    };
    columns().context("reading a dead letter")
}

/// What somebody has changed.
fn edit(row: &MySqlRow) -> sqlx::Result<Option<LetterEdit>> {
    let Some(times) = row.try_get::<Option<i32>, _>("edits")? else { return Ok(None) };
    let headers: Option<String> = row.try_get("original_headers")?;
    Ok(Some(LetterEdit {
        by: row.try_get::<Option<String>, _>("edited_by")?.unwrap_or_default(),
        at_ms: row.try_get::<Option<i64>, _>("edited_at_ms")?.unwrap_or_default(),
        times: times.unsigned_abs(),
        original: LetterContent {
            key: row.try_get::<Option<Vec<u8>>, _>("original_key")?.map(Bytes::from),
            payload: row.try_get::<Option<Vec<u8>>, _>("original_payload")?.map(Bytes::from),
            headers: headers.and_then(|text| headers_json::from_pairs(&text)).unwrap_or_default(),
        },
    }))
}

/// A line of the list from its row.
pub(super) fn summary(row: &MySqlRow) -> sqlx::Result<DeadSummary> {
    let message_id: String = row.try_get("message_id")?;
    Ok(DeadSummary {
        number: row.try_get("number")?,
        consumer: row.try_get("consumer")?,
        tenant: row.try_get("tenant")?,
        message_id: (!message_id.is_empty()).then_some(message_id),
        topic: row.try_get("topic")?,
        partition: row.try_get("partition")?,
        offset: row.try_get("offset")?,
        key: row.try_get("key")?,
        payload_bytes: row.try_get::<Option<i64>, _>("payload_bytes")?.map(i64::unsigned_abs),
        error: row.try_get("error")?,
        attempts: row.try_get::<i32, _>("attempts")?.unsigned_abs(),
        failed_at_ms: row.try_get("failed_at_ms")?,
        edited: row.try_get("edited")?,
    })
}

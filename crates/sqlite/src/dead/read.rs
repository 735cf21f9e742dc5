//! Dead letters by filter, and from rows: whole, or as a line of a list.

use bytes::Bytes;
use oncebox_core::error::BoxError;
use oncebox_core::message::Record;
use oncebox_core::names::Tenant;
use oncebox_core::source::LogId;
use oncebox_core::store::{
    DeadFilter, DeadLetter, DeadSummary, ErrorClass, LetterContent, LetterEdit, MAX_SUMMARY_BYTES,
    StoreError, StoreResult, StoredDeadLetter, headers_json,
};
use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Row, Sqlite};

use crate::classify::Context;
use crate::time::{self, millis};

/// The columns that [`stored`] wants.
macro_rules! letter_columns {
    () => {
        concat!(
            "number, consumer, tenant, message_id, topic, partition, \"offset\", log, key, payload, headers, ",
            "timestamp_ms, error, attempts, ",
            $crate::time::millis!("failed_at"),
            " AS failed_at_ms, edits, edited_by, ",
            $crate::time::millis!("edited_at"),
            " AS edited_at_ms, original_key, original_payload, original_headers"
        )
    };
}
pub(super) use letter_columns;

/// The columns that [`summary`] wants. A payload is never read, only its length. `substr()` of an empty blob is NULL.
pub(super) fn summary_columns() -> String {
    const FAILED_AT_MS: &str = millis!("failed_at");
    format!(
        "number, consumer, tenant, message_id, topic, partition, \"offset\", attempts, {FAILED_AT_MS} AS failed_at_ms,
         substr(error, 1, {MAX_SUMMARY_BYTES}) AS error, coalesce(substr(key, 1, {MAX_SUMMARY_BYTES}), key) AS key,
         length(payload) AS payload_bytes, edits IS NOT NULL AS edited"
    )
}

/// The conditions that are asked for and no others. An id or a group is found by its index. The `+` keeps SQLite from an index for the
/// others: it would collect all letters of a consumer to sort them, where the next page is just the next rows.
pub(super) fn push_filter(query: &mut QueryBuilder<Sqlite>, filter: &DeadFilter) {
    query.push(" WHERE number > ").push_bind(filter.after);
    if !filter.numbers.is_empty() {
        let numbers = serde_json::Value::from(filter.numbers.clone()).to_string();
        query.push(" AND number IN (SELECT value FROM json_each(").push_bind(numbers).push("))");
    }
    let texts = [
        (" AND +consumer = ", &filter.consumer),
        (" AND +topic = ", &filter.topic),
        (" AND +tenant = ", &filter.tenant),
        (" AND message_id = ", &filter.message_id),
    ];
    for (condition, text) in texts {
        if let Some(text) = text {
            query.push(condition).push_bind(text.clone());
        }
    }
    if let Some(key) = &filter.key {
        query.push(" AND key = ").push_bind(key.clone());
    }
    if let Some(group) = &filter.group {
        query.push(" AND error_group = ").push_bind(group.clone());
    }
    if let Some(text) = &filter.error {
        query.push(" AND instr(error, ").push_bind(text.clone()).push(") > 0");
    }
    for (condition, ms) in
        [(" AND failed_at >= ", filter.failed_from_ms), (" AND failed_at < ", filter.failed_until_ms)]
    {
        if let Some(ms) = ms {
            query.push(condition).push_bind(time::stored(ms));
        }
    }
    if let Some(before) = filter.before {
        query.push(" AND number < ").push_bind(before);
    }
    query.push(if filter.newest_first { " ORDER BY number DESC LIMIT " } else { " ORDER BY number LIMIT " });
    query.push_bind(filter.limit);
}

/// Reads a row of [`letter_columns!`] back.
pub(super) fn stored(row: &SqliteRow) -> StoreResult<StoredDeadLetter> {
    let number: i64 = row.try_get("number").context("reading a dead letter")?;
    let doing = format!("reading dead letter {number}");
    let broken = |error: BoxError| StoreError::new(ErrorClass::Failed, doing.as_str(), error);

    let texts = read_texts(row).context(&doing)?;
    let record = Record {
        headers: headers_json::from_pairs(&texts.headers)
            .ok_or_else(|| broken("the headers are not an array of [name, value] pairs".into()))?,
        ..read_record(row).context(&doing)?
    };
    let letter = DeadLetter {
        tenant: Tenant::new(texts.tenant).map_err(|error| broken(error.into()))?,
        message_id: Some(texts.message_id).filter(|id| !id.is_empty()),
        record,
        error: texts.error,
        attempts: row.try_get("attempts").context(&doing)?,
    };
    let failed_at_ms = row.try_get("failed_at_ms").context(&doing)?;
    let edit = edit(row).context(&doing)?;
    Ok(StoredDeadLetter { number, consumer: texts.consumer, letter, failed_at_ms, edit })
}

/// What somebody has changed.
fn edit(row: &SqliteRow) -> sqlx::Result<Option<LetterEdit>> {
    let Some(times) = row.try_get::<Option<u32>, _>("edits")? else { return Ok(None) };
    let headers: Option<String> = row.try_get("original_headers")?;
    Ok(Some(LetterEdit {
        by: row.try_get::<Option<String>, _>("edited_by")?.unwrap_or_default(),
        at_ms: row.try_get::<Option<i64>, _>("edited_at_ms")?.unwrap_or_default(),
        times,
        original: LetterContent {
            key: row.try_get::<Option<Vec<u8>>, _>("original_key")?.map(Bytes::from),
            payload: row.try_get::<Option<Vec<u8>>, _>("original_payload")?.map(Bytes::from),
            headers: headers.and_then(|text| headers_json::from_pairs(&text)).unwrap_or_default(),
        },
    }))
}

struct Texts {
    consumer: String,
    tenant: String,
    message_id: String,
    headers: String,
    error: String,
}

fn read_texts(row: &SqliteRow) -> sqlx::Result<Texts> {
    Ok(Texts {
        consumer: row.try_get("consumer")?,
        tenant: row.try_get("tenant")?,
        message_id: row.try_get("message_id")?,
        headers: row.try_get("headers")?,
        error: row.try_get("error")?,
    })
}

fn read_record(row: &SqliteRow) -> sqlx::Result<Record> {
    let topic: String = row.try_get("topic")?;
    let bytes = |column: &str| row.try_get::<Option<Vec<u8>>, _>(column).map(|bytes| bytes.map(Bytes::from));
    Ok(Record {
        key: bytes("key")?,
        payload: bytes("payload")?,
        timestamp_ms: row.try_get("timestamp_ms")?,
        log: Some(row.try_get::<String, _>("log")?).filter(|log| !log.is_empty()).map(LogId::new),
        ..Record::at(topic, row.try_get("partition")?, row.try_get("offset")?)
    })
}

/// Reads a row of [`summary_columns`] back.
pub(super) fn summary(row: &SqliteRow) -> sqlx::Result<DeadSummary> {
    let payload_bytes: Option<i64> = row.try_get("payload_bytes")?;
    Ok(DeadSummary {
        number: row.try_get("number")?,
        consumer: row.try_get("consumer")?,
        tenant: row.try_get("tenant")?,
        message_id: Some(row.try_get("message_id")?).filter(|id: &String| !id.is_empty()),
        topic: row.try_get("topic")?,
        partition: row.try_get("partition")?,
        offset: row.try_get("offset")?,
        key: row.try_get("key")?,
        payload_bytes: payload_bytes.map(i64::unsigned_abs),
        error: row.try_get("error")?,
        attempts: row.try_get("attempts")?,
        failed_at_ms: row.try_get("failed_at_ms")?,
        edited: row.try_get("edited")?,
    })
}

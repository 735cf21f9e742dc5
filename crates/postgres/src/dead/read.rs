//! Dead letters by filter, and from rows.

use bytes::Bytes;
use oncebox_core::message::Record;
use oncebox_core::names::Tenant;
use oncebox_core::source::LogId;
use oncebox_core::store::{
    DeadFilter, DeadLetter, DeadSummary, ErrorClass, LetterContent, LetterEdit, MAX_SUMMARY_BYTES,
    StoreError, StoreResult, StoredDeadLetter, headers_json,
};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::classify::Context;
use crate::store::Query;

/// The letters that a filter means. For [`bound`], whose `$13` is how many. A group is a range, so that its letters come in the order of
/// the index that knows it; with `=`, the planner may take the order of the numbers and look at all letters.
macro_rules! matching {
    () => {
        "FROM oncebox_dead WHERE (cardinality($1::bigint[]) = 0 OR number = ANY ($1)) \
         AND ($2::text IS NULL OR consumer = $2) AND ($3::text IS NULL OR topic = $3) \
         AND ($4::text IS NULL OR tenant = $4) AND ($5::text IS NULL OR message_id = $5) \
         AND ($6::bytea IS NULL OR sha256(key) = sha256($6) AND key = $6) AND number > $7 AND number < $8 \
         AND ($9::text IS NULL OR error_group >= $9 AND error_group <= $9) AND ($10::text IS NULL OR position($10 IN error) > 0) \
         AND ($11::bigint IS NULL OR failed_at >= timestamptz 'epoch' + $11 * interval '1 millisecond') \
         AND ($12::bigint IS NULL OR failed_at < timestamptz 'epoch' + $12 * interval '1 millisecond')"
    };
}

/// The columns that [`stored`] reads. Named one by one: a statement that is prepared must not change with the table.
macro_rules! letter_columns {
    () => {
        "number, consumer, tenant, message_id, topic, partition, \"offset\", log, key, payload, headers::text AS header_text, \
         timestamp_ms, error, attempts, (extract(epoch FROM failed_at) * 1000)::bigint AS failed_at_ms, edits, edited_by, \
         (extract(epoch FROM edited_at) * 1000)::bigint AS edited_at_ms, original_key, original_payload, \
         original_headers::text AS original_header_text"
    };
}

/// The columns that [`summary`] reads. Payloads and headers stay where they are: a page of letters must not be as large as the
/// messages in it.
macro_rules! summary_columns {
    () => {
        "number, consumer, tenant, message_id, topic, partition, \"offset\", substring(key FROM 1 FOR 256) AS key, \
         octet_length(payload)::bigint AS payload_bytes, left(error, 256) AS error, attempts, \
         (extract(epoch FROM failed_at) * 1000)::bigint AS failed_at_ms, edits IS NOT NULL AS edited"
    };
}
const _: () = assert!(MAX_SUMMARY_BYTES == 256, "as summary_columns! says");

pub(super) use {letter_columns, matching, summary_columns};

/// A statement over [`matching!`] letters. Not prepared by name, so that the plan is made for the filters that are really there.
pub(super) fn bound<'q>(sql: &'static str, filter: &'q DeadFilter) -> Query<'q> {
    sqlx::query(sql)
        .persistent(false)
        .bind(&filter.numbers)
        .bind(&filter.consumer)
        .bind(&filter.topic)
        .bind(&filter.tenant)
        .bind(&filter.message_id)
        .bind(&filter.key)
        .bind(filter.after)
        .bind(filter.before.unwrap_or(i64::MAX))
        .bind(&filter.group)
        .bind(filter.error.as_ref().map(|text| text.replace('\0', "")))
        .bind(filter.failed_from_ms)
        .bind(filter.failed_until_ms)
        .bind(i64::from(filter.limit))
}

/// A letter from its row.
pub(super) fn stored(row: &PgRow) -> StoreResult<StoredDeadLetter> {
    let number: i64 = row.try_get("number").context("reading a dead letter")?;
    let broken =
        |what: String| StoreError::new(ErrorClass::Failed, format!("reading dead letter {number}"), what);
    let tenant: String = row.try_get("tenant").context("reading a dead letter")?;
    let tenant = Tenant::new(tenant).map_err(|e| broken(e.to_string()))?;
    let header_text: String = row.try_get("header_text").context("reading a dead letter")?;
    let headers = headers_json::from_pairs(&header_text)
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
fn edit(row: &PgRow) -> sqlx::Result<Option<LetterEdit>> {
    let Some(times) = row.try_get::<Option<i32>, _>("edits")? else { return Ok(None) };
    let headers: Option<String> = row.try_get("original_header_text")?;
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
pub(super) fn summary(row: &PgRow) -> sqlx::Result<DeadSummary> {
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

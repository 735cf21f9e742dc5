//! A dead letter as a row.

use bytes::Bytes;
use oncebox_core::{
    DeadLetter, ErrorClass, Record, StoreError, StoreResult, StoredDeadLetter, Tenant, headers_json,
};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::classify::Context;

/// The columns that [`read`] wants.
macro_rules! columns {
    () => {
        concat!(
            "number, consumer, tenant, message_id, topic, partition, \"offset\", key, payload, headers, ",
            "timestamp_ms, error, attempts, ",
            $crate::time::millis!("failed_at"),
            " AS failed_at_ms"
        )
    };
}
pub(crate) use columns;

/// Reads a row of [`columns!`] back.
pub(crate) fn read(row: &SqliteRow) -> StoreResult<StoredDeadLetter> {
    let number: i64 = row.try_get("number").context("reading a dead letter")?;
    let doing = format!("reading dead letter {number}");
    let broken = |error: oncebox_core::BoxError| StoreError::new(ErrorClass::Failed, doing.as_str(), error);

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
    Ok(StoredDeadLetter { number, consumer: texts.consumer, letter, failed_at_ms })
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
        ..Record::at(topic, row.try_get("partition")?, row.try_get("offset")?)
    })
}

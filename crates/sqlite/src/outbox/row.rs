//! An event as a row.

use bytes::Bytes;
use oncebox_core::message::Headers;
use oncebox_core::store::{ErrorClass, StoreError, StoreResult, StoredEvent, headers_json};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::classify::Context;

/// The columns that [`read`] wants, of the outbox under the name `o`.
macro_rules! columns {
    () => {
        concat!(
            "o.seq, o.id, o.topic, o.key, o.payload, o.headers, o.causation_id, o.attempts, ",
            $crate::time::millis!("o.created_at"),
            " AS created_at_ms"
        )
    };
}
pub(super) use columns;

/// An event as it lies there. Not readable if an application wrote headers by hand that cannot be read; then it has none here.
pub(super) struct ReadEvent {
    pub(super) event: StoredEvent,
    pub(super) readable: bool,
}

/// Reads a row of [`columns!`] back.
pub(super) fn read(row: &SqliteRow) -> StoreResult<ReadEvent> {
    let seq: i64 = row.try_get("seq").context("reading an event")?;
    let doing = format!("reading event {seq} of the outbox");
    let id: String = row.try_get("id").context(&doing)?;
    let id = id.parse().map_err(|error| StoreError::new(ErrorClass::Failed, doing.as_str(), error))?;
    read_rest(row, seq, id).context(&doing)
}

fn read_rest(row: &SqliteRow, seq: i64, id: uuid::Uuid) -> sqlx::Result<ReadEvent> {
    let bytes = |column: &str| row.try_get::<Option<Vec<u8>>, _>(column).map(|bytes| bytes.map(Bytes::from));
    let headers: Option<Headers> = headers_json::from_either(row.try_get("headers")?);
    let readable = headers.is_some();
    let event = StoredEvent {
        seq,
        id,
        topic: row.try_get::<&str, _>("topic")?.into(),
        key: bytes("key")?,
        payload: bytes("payload")?,
        headers: headers.unwrap_or_default(),
        created_at_ms: row.try_get::<Option<i64>, _>("created_at_ms")?.unwrap_or_default(),
        causation_id: row.try_get("causation_id")?,
        attempts: row.try_get("attempts")?,
    };
    Ok(ReadEvent { event, readable })
}

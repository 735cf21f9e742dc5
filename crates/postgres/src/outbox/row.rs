//! Events from rows.

use std::sync::Arc;

use bytes::Bytes;
use oncebox_core::store::{EventState, OutboxEntry, StoredEvent, headers_json};
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::shard;

/// The columns that [`event`] reads, by their places.
macro_rules! event_columns {
    () => {
        "o.seq, o.id, o.key, o.payload, o.headers::text AS headers, \
         (date_part('epoch', o.created_at) * 1000)::bigint AS created_at_ms, o.causation_id, o.attempts, o.shard"
    };
}
pub(super) use event_columns;

/// Why an event cannot leave the outbox: its row says what no event can say.
pub(super) type Unfit = &'static str;

const UNREADABLE: Unfit = "its headers are neither a JSON object of texts nor an array of [name, text]";

/// The event of a row.
pub(super) fn event(row: &PgRow, topic: &Arc<str>) -> sqlx::Result<(StoredEvent, Option<Unfit>)> {
    let headers = headers_json::from_either(row.try_get(4)?);
    let unfit = headers.is_none().then_some(UNREADABLE);
    let bytes =
        |at: usize| row.try_get::<Option<&[u8]>, _>(at).map(|found| found.map(Bytes::copy_from_slice));
    let event = StoredEvent {
        seq: row.try_get(0)?,
        id: row.try_get(1)?,
        topic: Arc::clone(topic),
        key: bytes(2)?,
        payload: bytes(3)?,
        headers: headers.unwrap_or_default(),
        created_at_ms: row.try_get(5)?,
        causation_id: row.try_get(6)?,
        attempts: row.try_get::<i32, _>(7)?.unsigned_abs(),
    };
    Ok((event, unfit))
}

/// The shard of the same row.
pub(super) fn shard_of(row: &PgRow) -> sqlx::Result<u16> {
    Ok(shard(row.try_get(8)?))
}

/// An event with its state. Headers that cannot be read are not shown; the error of such an event says so.
pub(super) fn entry(row: &PgRow) -> sqlx::Result<OutboxEntry> {
    let topic: Arc<str> = Arc::from(row.try_get::<&str, _>("topic")?);
    let (event, _) = event(row, &topic)?;
    let state = match row.try_get("state")? {
        "published" => EventState::Published,
        "parked" => EventState::Parked,
        "held" => EventState::Held,
        _ => EventState::Pending,
    };
    Ok(OutboxEntry {
        event,
        shard: shard_of(row)?,
        consumer: row.try_get("consumer")?,
        tenant: row.try_get("tenant")?,
        state,
        state_at_ms: row.try_get("state_at_ms")?,
        error: row.try_get("error")?,
    })
}

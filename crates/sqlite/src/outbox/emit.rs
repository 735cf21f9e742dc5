//! Events are written in somebody else's transaction.
//!
//! The bytes of many events travel as one blob and the rest as one JSON array that says where each key and payload lies in
//! it: one statement, and one trip to SQLite's thread, for many events.

use oncebox_core::error::Error;
use oncebox_core::outbox::{Emit, Event, EventRow};
use oncebox_core::store::StoreResult;
use serde_json::{Value, json};
use sqlx::SqliteConnection;
use uuid::Uuid;

use crate::classify::class_of_statement;
use crate::store::SqliteStore;
use crate::time::stored;
use crate::wording::said;

/// How many bytes and events travel together; one event always does.
const TOGETHER_BYTES: usize = 4 * 1024 * 1024;
const TOGETHER_EVENTS: usize = 1000;

// In the order of the array, which becomes the order of `seq`.
const INSERT: &str = "INSERT INTO oncebox_outbox
        (id, topic, key, payload, headers, consumer, tenant, causation_id, deliver_at)
     SELECT e.value->>0, e.value->>1, substr(?2, e.value->>'$[2][0]', e.value->>'$[2][1]'),
        substr(?2, e.value->>'$[3][0]', e.value->>'$[3][1]'), e.value->>4, e.value->>5, e.value->>6, e.value->>7,
        e.value->>8
     FROM json_each(?1) e ORDER BY e.key";

/// Events are emitted through the driver's own connection, so it works in a handler and in a transaction of your own.
///
/// ```no_run
/// use oncebox::outbox::events_committed;
/// use oncebox::{Emit, Event};
/// use sqlx::{Connection, SqliteConnection};
///
/// async fn restock(conn: &mut SqliteConnection) -> oncebox::Result {
///     let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
///     sqlx::query("UPDATE stock SET on_hand = on_hand + 2 WHERE sku = 'A-1'").execute(&mut *tx).await?;
///     tx.emit(Event::to("stock.changed").key("A-1").json("more")?).await?;
///     tx.commit().await?;
///     events_committed();
///     Ok(())
/// }
///
/// async fn in_a_handler(conn: &mut SqliteConnection) -> oncebox::Result {
///     conn.emit(Event::to("stock.changed").key("A-1").bytes("less")).await?;
///     Ok(())
/// }
/// ```
impl Emit<SqliteStore> for SqliteConnection {
    async fn emit(&mut self, event: Event) -> Result<Uuid, Error> {
        oncebox_core::outbox::emit_all::<SqliteStore>(self, std::slice::from_ref(&event)).await?;
        Ok(event.id())
    }

    async fn emit_all(&mut self, events: &[Event]) -> Result<(), Error> {
        oncebox_core::outbox::emit_all::<SqliteStore>(self, events).await
    }
}

/// Writes events in their order.
pub(super) async fn write_events(conn: &mut SqliteConnection, events: &[EventRow<'_>]) -> StoreResult<()> {
    let mut rest = events;
    while !rest.is_empty() {
        let (together, later) = rest.split_at(fitting(rest));
        // One byte in front: substr() of an empty blob is NULL.
        let mut bytes = vec![0];
        let rows: Vec<Value> = together.iter().map(|event| to_json(event, &mut bytes)).collect();
        let insert = sqlx::query(INSERT).bind(super::json(rows)).bind(bytes);
        if let Err(error) = insert.execute(&mut *conn).await {
            // The application may have a trigger on the table, which may not like an event.
            let class = class_of_statement(conn, INSERT, &error).await;
            return Err(said(class, doing(together), error));
        }
        rest = later;
    }
    Ok(())
}

fn fitting(events: &[EventRow<'_>]) -> usize {
    let mut bytes = 0;
    let size = |event: &EventRow<'_>| {
        event.key.map_or(0, <[u8]>::len) + event.payload.map_or(0, <[u8]>::len) + event.headers.len()
    };
    let fits = |event: &&EventRow<'_>| {
        bytes += size(event);
        bytes <= TOGETHER_BYTES
    };
    events.iter().take(TOGETHER_EVENTS).take_while(fits).count().max(1)
}

fn to_json(event: &EventRow<'_>, bytes: &mut Vec<u8>) -> Value {
    let mut place = |part: Option<&[u8]>| {
        part.map(|part| {
            // SQLite counts from 1.
            let start = bytes.len() + 1;
            bytes.extend_from_slice(part);
            (start, part.len())
        })
    };
    let (key, payload) = (place(event.key), place(event.payload));
    let id = event.id.to_string();
    let EventRow { topic, headers, consumer, tenant, causation_id, .. } = event;
    let deliver_at = event.deliver_at_ms.map(stored);
    json!([id, topic, key, payload, headers, consumer, tenant, causation_id, deliver_at])
}

fn doing(events: &[EventRow<'_>]) -> String {
    match events {
        [event] => format!("writing event {} to {}", event.id, event.topic),
        events => format!("writing {} events", events.len()),
    }
}

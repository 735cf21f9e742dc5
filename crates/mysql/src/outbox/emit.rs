//! Writing events into a transaction that is somebody else's.

use oncebox_core::error::Error;
use oncebox_core::outbox::{Emit, Event, EventRow, emit_all};
use oncebox_core::store::StoreResult;
use sqlx::MySqlConnection;
use uuid::Uuid;

use super::change;
use crate::classify::Context;
use crate::quote::{push_bytes, push_text};
use crate::store::MysqlStore;
use crate::time::{LAST_MS, from_ms};

impl Emit<MysqlStore> for MySqlConnection {
    async fn emit(&mut self, event: Event) -> Result<Uuid, Error> {
        emit_all::<MysqlStore>(self, std::slice::from_ref(&event)).await?;
        Ok(event.id())
    }

    async fn emit_all(&mut self, events: &[Event]) -> Result<(), Error> {
        emit_all::<MysqlStore>(self, events).await
    }
}

/// The longest message of events. One event that is longer goes alone, and not as text: digits take twice its bytes.
const MESSAGE_BYTES: usize = 512 * 1024;

const WRITE: &str = "INSERT INTO oncebox_outbox \
     (id, topic, `key`, payload, headers, consumer, tenant, causation_id, deliver_at) VALUES ";

const WRITE_LARGE: &str = concat!(
    "INSERT INTO oncebox_outbox (id, topic, `key`, payload, headers, consumer, tenant, causation_id, deliver_at) \
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ",
    from_ms!("?"),
    ")"
);

/// Writes events in their order: the numbers of the rows of one statement ascend.
pub(super) async fn write_events(conn: &mut MySqlConnection, events: &[EventRow<'_>]) -> StoreResult<()> {
    let mut message = String::new();
    for event in events {
        let bytes = text_bytes(event);
        if message.len() + bytes > MESSAGE_BYTES {
            write(conn, &mut message).await?;
        }
        if bytes > MESSAGE_BYTES {
            write_large(conn, event).await?;
        } else {
            message.push_str(if message.is_empty() { WRITE } else { ", " });
            push_row(&mut message, event);
        }
    }
    write(conn, &mut message).await
}

async fn write(conn: &mut MySqlConnection, message: &mut String) -> StoreResult<()> {
    if !message.is_empty() {
        change(conn, std::mem::take(message)).await.context_of_user("writing events")?;
    }
    Ok(())
}

async fn write_large(conn: &mut MySqlConnection, event: &EventRow<'_>) -> StoreResult<()> {
    let doing = format!("writing event {} to {}", event.id, event.topic);
    sqlx::query(WRITE_LARGE)
        .bind(event.id.to_string())
        .bind(event.topic)
        .bind(event.key)
        .bind(event.payload)
        .bind(&event.headers)
        .bind(&event.consumer)
        .bind(&event.tenant)
        .bind(&event.causation_id)
        .bind(event.deliver_at_ms)
        .execute(conn)
        .await
        .context_of_user(&doing)?;
    Ok(())
}

fn text_bytes(event: &EventRow<'_>) -> usize {
    const AROUND: usize = 350;
    let texts = [&event.consumer, &event.tenant, &event.causation_id];
    let texts: usize = texts.iter().map(|text| text.as_deref().map_or(0, str::len)).sum();
    let bytes = event.key.map_or(0, <[u8]>::len) + event.payload.map_or(0, <[u8]>::len);
    2 * (event.topic.len() + event.headers.len() + texts + bytes) + AROUND
}

fn push_row(sql: &mut String, event: &EventRow<'_>) {
    sql.push_str(&format!("('{}', ", event.id));
    push_text(sql, event.topic);
    for bytes in [event.key, event.payload] {
        sql.push_str(", ");
        match bytes {
            Some(bytes) => push_bytes(sql, bytes),
            None => sql.push_str("NULL"),
        }
    }
    sql.push_str(", ");
    push_text(sql, &event.headers);
    for text in [&event.consumer, &event.tenant, &event.causation_id] {
        sql.push_str(", ");
        match text {
            Some(text) => push_text(sql, text),
            None => sql.push_str("NULL"),
        }
    }
    sql.push_str(", ");
    match event.deliver_at_ms {
        Some(ms) => sql.push_str(&format!(from_ms!("{}"), ms.min(LAST_MS))),
        None => sql.push_str("NULL"),
    }
    sql.push(')');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_no_longer_than_it_is_counted() {
        let event = Event::to("t".repeat(249)).key([0xff; 300]).bytes(vec![0; 1000]).header("a", "\u{1F980}");
        let row = EventRow {
            consumer: Some("c".repeat(200)),
            tenant: Some(String::new()),
            causation_id: Some("m".repeat(512)),
            deliver_at_ms: Some(LAST_MS),
            ..event.row().unwrap()
        };
        let mut sql = String::new();
        push_row(&mut sql, &row);
        assert!(sql.len() <= text_bytes(&row), "{} and {}", sql.len(), text_bytes(&row));
    }
}

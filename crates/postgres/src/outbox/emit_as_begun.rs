//! Writing events for a handler that has another search path or role than its transaction began with.
//!
//! One message: it goes back to where the transaction began, writes, and returns to where the handler is. Literals and no
//! parameters, because only a message without parameters can carry several statements. In a transaction that is not ours
//! nothing says where it began, and the caller's own path and role count.

use std::fmt::Write;

use oncebox_core::outbox::EventRow;
use oncebox_core::store::{ErrorClass, StoreError, StoreResult};

use crate::quote::literal;

const GO: &str = "SELECT pg_catalog.set_config('oncebox.handlers_role', pg_catalog.current_setting('role'), true), \
     pg_catalog.set_config('oncebox.handlers_path', pg_catalog.current_setting('search_path'), true); \
     SELECT pg_catalog.set_config('role', s.role, true), pg_catalog.set_config('search_path', s.path, true) \
     FROM (SELECT pg_catalog.current_setting('oncebox.role', true) AS role, \
         pg_catalog.current_setting('oncebox.search_path', true) AS path) AS s WHERE s.path <> ''; ";

const INSERT: &str = "INSERT INTO oncebox_outbox \
     (id, topic, key, payload, headers, consumer, tenant, causation_id, deliver_at) VALUES ";

const RETURN: &str = "; SELECT pg_catalog.set_config('role', pg_catalog.current_setting('oncebox.handlers_role'), true), \
     pg_catalog.set_config('search_path', pg_catalog.current_setting('oncebox.handlers_path'), true)";

/// The message that writes these events.
pub(super) fn message(events: &[EventRow<'_>]) -> StoreResult<String> {
    let mut message = String::from(GO);
    message.push_str(INSERT);
    for (at, event) in events.iter().enumerate() {
        let separator = if at == 0 { "(" } else { ", (" };
        message.push_str(separator);
        message.push_str(&literal(&event.id.to_string()));
        let values = [
            text(Some(event.topic)),
            bytes(event.key),
            bytes(event.payload),
            text(Some(&event.headers)),
            text(event.consumer.as_deref()),
            text(event.tenant.as_deref()),
            text(event.causation_id.as_deref()),
            time(event.deliver_at_ms),
        ];
        for value in values {
            message.push_str(", ");
            message.push_str(&value);
        }
        message.push(')');
    }
    message.push_str(RETURN);
    if message.contains('\0') {
        let why = "its headers, tenant or cause contain NUL, which PostgreSQL cannot hold";
        return Err(StoreError::new(ErrorClass::Failed, "writing events", why));
    }
    Ok(message)
}

fn text(value: Option<&str>) -> String {
    value.map_or_else(|| "NULL".to_owned(), literal)
}

fn time(ms: Option<i64>) -> String {
    ms.map_or_else(
        || "NULL".to_owned(),
        |ms| format!("timestamptz 'epoch' + {ms} * interval '1 millisecond'"),
    )
}

fn bytes(value: Option<&[u8]>) -> String {
    let Some(bytes) = value else { return "NULL".to_owned() };
    let mut hex = String::with_capacity(2 + bytes.len() * 2);
    hex.push_str("\\x");
    for byte in bytes {
        // Writing to a string cannot fail.
        write!(hex, "{byte:02x}").ok();
    }
    literal(&hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_in_hex() {
        assert_eq!(bytes(Some(&[0, 255, b'\''])), r" E'\\x00ff27'");
        assert_eq!(bytes(Some(&[])), r" E'\\x'");
        assert_eq!(bytes(None), "NULL");
    }
}

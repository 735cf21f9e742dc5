//! The statements on an adopted table. Values go as hexadecimal digits, so nothing in them ends a statement.

use std::collections::BTreeSet;

use oncebox_core::names::ConsumerName;
use oncebox_core::store::{Adopt, AdoptedRow, IdKind, StoredId};

use crate::quote::{identifier, push_bytes, push_text, text};
use crate::time::now_ms;

/// What is sent to the table.
pub(super) struct Statements {
    table: String,
    id: String,
    /// The id as the bytes of what it stands for.
    id_bytes: String,
    consumer: Option<String>,
    tenant: Option<String>,
    time: Option<String>,
    /// Whether the column of the time is read in the time zone of the session.
    zoned: bool,
    /// The unique key. Named where receipts are looked for, so that its end is noticed: an insert needs none.
    pub(super) by_key: String,
    set: Vec<String>,
    consumer_in_key: bool,
    tenant_in_key: bool,
}

/// A text column as its bytes in UTF-8, whatever its character set and its collation are.
pub(super) fn bytes_of(column: &str) -> String {
    format!("CAST(CONVERT({column} USING utf8mb4) AS BINARY)")
}

/// The id of a row as bytes.
pub(super) fn id_bytes(id: IdKind, column: &str) -> String {
    match id {
        IdKind::UuidBytes | IdKind::Bytes { .. } => column.to_owned(),
        IdKind::Text { .. } | IdKind::Uuid | IdKind::UuidHex => bytes_of(column),
    }
}

impl Statements {
    pub(super) fn new(
        adopt: &Adopt,
        id: IdKind,
        (key_name, key): (&str, &[String]),
        timed: bool,
        zoned: bool,
    ) -> Self {
        let has = |column: Option<&str>| column.is_some_and(|column| key.iter().any(|one| one == column));
        let column = identifier(adopt.message_id_column());
        Self {
            table: adopt.quoted('`'),
            id_bytes: id_bytes(id, &column),
            id: column,
            consumer: adopt.consumer_column().map(identifier),
            tenant: adopt.tenant_column().map(identifier),
            time: adopt.processed_at_column().filter(|_| timed).map(identifier),
            zoned,
            by_key: format!(" FORCE INDEX ({})", identifier(key_name)),
            set: adopt.set_columns().map(|(column, _)| identifier(column)).collect(),
            consumer_in_key: has(adopt.consumer_column()),
            tenant_in_key: has(adopt.tenant_column()),
        }
    }

    /// Writes receipts. Without any clause that would hide an error: whoever is in the way, or there already, is told by 1062
    /// after the wait for it. The later of two clocks dates a receipt.
    pub(super) fn insert(&self, consumer: &ConsumerName, rows: &[&AdoptedRow<'_>]) -> String {
        let mut columns = vec![self.id.as_str()];
        columns.extend(self.consumer.as_deref());
        columns.extend(self.tenant.as_deref());
        columns.extend(self.time.as_deref());
        columns.extend(self.set.iter().map(String::as_str));
        let mut sql = format!("INSERT INTO {} ({}) VALUES ", self.table, columns.join(", "));
        let (consumer, now) = (text(consumer.as_str()), self.later_now());
        for (at, row) in rows.iter().enumerate() {
            sql.push_str(if at == 0 { "(" } else { ", (" });
            push_id(&mut sql, &row.id);
            if self.consumer.is_some() {
                sql.push_str(", ");
                sql.push_str(&consumer);
            }
            if self.tenant.is_some() {
                sql.push_str(", ");
                push_text(&mut sql, row.claim.tenant);
            }
            if self.time.is_some() {
                sql.push_str(", ");
                sql.push_str(&now);
            }
            for nth in 0..self.set.len() {
                sql.push_str(", ");
                match row.claim.set.get(nth).and_then(Option::as_deref) {
                    Some(value) => push_text(&mut sql, value),
                    None => sql.push_str("NULL"),
                }
            }
            sql.push(')');
        }
        sql
    }

    /// The receipts that are there with these ids and tenants, as bytes: id, consumer, tenant.
    pub(super) fn known(&self, consumer: &ConsumerName, rows: &[(&StoredId, &str)], lock: &str) -> String {
        let mut sql =
            format!("SELECT {} FROM {}{} WHERE {} IN (", self.names(), self.table, self.by_key, self.id);
        for (at, (id, _)) in rows.iter().enumerate() {
            if at > 0 {
                sql.push(',');
            }
            push_id(&mut sql, id);
        }
        sql.push(')');
        sql.push_str(&self.of_consumer(consumer));
        // The key may begin with it.
        if let Some(column) = self.tenant.as_ref().filter(|_| self.tenant_in_key) {
            let tenants: BTreeSet<_> = rows.iter().map(|(_, tenant)| *tenant).collect();
            let tenants: Vec<_> = tenants.into_iter().map(text).collect();
            sql.push_str(&format!(" AND {column} IN ({})", tenants.join(",")));
        }
        sql.push_str(lock);
        sql
    }

    /// The receipt that the table takes for the one of this message.
    pub(super) fn taken_for(&self, consumer: &ConsumerName, row: &AdoptedRow<'_>, lock: &str) -> String {
        let mut sql = format!(
            "SELECT {} FROM {}{} WHERE {}",
            self.names(),
            self.table,
            self.by_key,
            self.meets(consumer, row)
        );
        sql.push_str(lock);
        sql
    }

    /// The receipts that may be the one of this message, and when they were written: in a session that reads times in UTC.
    pub(super) fn dated(&self, consumer: &ConsumerName, row: &AdoptedRow<'_>) -> String {
        let time = self.time.as_deref().map_or_else(
            || "CAST(NULL AS SIGNED)".to_owned(),
            |time| format!("TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', {time}) DIV 1000"),
        );
        let (names, meets) = (self.names(), self.meets(consumer, row));
        format!("SELECT {names}, {time} FROM {}{} WHERE {meets}", self.table, self.by_key)
    }

    /// Makes the receipt of a message young, if it is exactly that one's.
    pub(super) fn renew(&self, consumer: &ConsumerName, row: &AdoptedRow<'_>) -> Option<String> {
        let (time, now) = (self.time.as_deref()?, self.later_now());
        let mut same = format!("{} = ", self.id_bytes);
        push_bytes(&mut same, &stored_bytes(&row.id));
        let consumer_name = consumer.as_str();
        for (column, none, value) in
            [(&self.consumer, consumer_name, consumer_name), (&self.tenant, "", row.claim.tenant)]
        {
            if let Some(column) = column {
                same.push_str(&format!(" AND COALESCE({}, ", bytes_of(column)));
                push_bytes(&mut same, none.as_bytes());
                same.push_str(") = ");
                push_bytes(&mut same, value.as_bytes());
            }
        }
        Some(format!(
            "UPDATE {} SET {time} = GREATEST(COALESCE({time}, {now}), {now}) WHERE {} AND {same}",
            self.table,
            self.meets(consumer, row)
        ))
    }

    /// The later of the server's clock and ours.
    fn later_now(&self) -> String {
        let now = now_ms();
        if self.zoned {
            // The session may be somebody else's, with a time zone of its own.
            return format!("FROM_UNIXTIME(GREATEST(UNIX_TIMESTAMP(), {now} / 1000))");
        }
        format!(
            "GREATEST(UTC_TIMESTAMP(6), TIMESTAMP'1970-01-01 00:00:00' + INTERVAL {now} * 1000 MICROSECOND)"
        )
    }

    fn meets(&self, consumer: &ConsumerName, row: &AdoptedRow<'_>) -> String {
        let mut sql = format!("{} = ", self.id);
        push_id(&mut sql, &row.id);
        sql.push_str(&self.of_consumer(consumer));
        if let Some(column) = self.tenant.as_ref().filter(|_| self.tenant_in_key) {
            sql.push_str(&format!(" AND {column} = {}", text(row.claim.tenant)));
        }
        sql
    }

    fn of_consumer(&self, consumer: &ConsumerName) -> String {
        self.consumer
            .as_ref()
            .filter(|_| self.consumer_in_key)
            .map_or_else(String::new, |column| format!(" AND {column} = {}", text(consumer.as_str())))
    }

    fn names(&self) -> String {
        let name = |column: &Option<String>| column.as_deref().map_or_else(|| "NULL".to_owned(), bytes_of);
        format!("{}, {}, {}", self.id_bytes, name(&self.consumer), name(&self.tenant))
    }
}

/// An id at the end of a statement that grows.
pub(super) fn push_id(sql: &mut String, id: &StoredId) {
    match id {
        StoredId::Text(id) => push_text(sql, id),
        StoredId::Uuid(id) => push_text(sql, &id.to_string()),
        StoredId::Bytes(bytes) => push_bytes(sql, bytes),
    }
}

/// An id as the bytes that [`id_bytes`] reads.
pub(super) fn stored_bytes(id: &StoredId) -> Vec<u8> {
    match id {
        StoredId::Text(id) => id.as_bytes().into(),
        StoredId::Uuid(id) => id.to_string().into_bytes(),
        StoredId::Bytes(bytes) => bytes.clone(),
    }
}

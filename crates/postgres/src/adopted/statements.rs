//! The statements on an adopted table. They are made once from its definition; values only ever travel as parameters.

use oncebox_core::store::{Adopt, IdKind};

use crate::quote::identifier;

/// The type of a column, as a cast takes it.
pub(super) struct ColumnType {
    pub(super) cast: String,
}

/// What is sent to the table.
pub(super) struct Statements {
    /// Writes receipts and returns those that were not there: `$1` ids, `$2` tenants, `$3` consumer, `$4` the time in
    /// milliseconds, `$5` and on what the further columns get.
    pub(super) insert: String,
    /// The same, but a receipt that is there becomes young again.
    pub(super) renew: String,
    /// The receipts that stand in the way, whether they are the same message's, and when they were written: `$1` ids, `$2`
    /// tenants, `$3` consumer.
    pub(super) met: String,
}

impl Statements {
    pub(super) fn new(
        adopt: &Adopt,
        id: IdKind,
        key: &[String],
        timed: bool,
        types: impl Fn(&str) -> ColumnType,
    ) -> Self {
        let table = adopt.quoted('"');
        let cast = |value: &str, column: &str| format!("{value}::{}", types(column).cast);
        let message_id = adopt.message_id_column();
        let native = native(id);
        let array = format!("{native}[]");
        let mut columns = vec![(message_id, cast("c.id", message_id))];
        if let Some(column) = adopt.consumer_column() {
            columns.push((column, cast("$3::text", column)));
        }
        if let Some(column) = adopt.tenant_column() {
            columns.push((column, cast("c.tenant", column)));
        }
        if let Some(column) = adopt.processed_at_column().filter(|_| timed) {
            // The later of two clocks dates a receipt, so that one that was set back does not make it look old.
            let now = "(SELECT GREATEST(now(), timestamptz 'epoch' + $4::bigint * interval '1 millisecond'))";
            columns.push((column, now.to_owned()));
        }
        let mut arrays = format!("$1::{array}, $2::text[]");
        let mut names = "id, tenant".to_owned();
        for (nth, (column, _)) in adopt.set_columns().enumerate() {
            arrays.push_str(&format!(", ${}::text[]", nth + 5));
            names.push_str(&format!(", set{nth}"));
            columns.push((column, cast(&format!("c.set{nth}"), column)));
        }
        let into: Vec<_> = columns.iter().map(|(column, _)| identifier(column)).collect();
        let values: Vec<_> = columns.iter().map(|(_, value)| value.as_str()).collect();
        let target: Vec<_> = key.iter().map(|column| identifier(column)).collect();
        let id_column = format!("i.{}", identifier(message_id));
        let text = |column: Option<&str>, none: &str| {
            column.map_or_else(
                || none.to_owned(),
                |column| format!("i.{}::text COLLATE \"C\"", identifier(column)),
            )
        };
        let (consumer, tenant) =
            (text(adopt.consumer_column(), "$3::text"), text(adopt.tenant_column(), "c.tenant"));
        let returned_tenant = text(adopt.tenant_column(), "''");
        // A parameter that no column needs still has to have a type.
        let insert = format!(
            "INSERT INTO {table} AS i ({}) SELECT {} FROM unnest({arrays}) WITH ORDINALITY AS c({names}, ord) \
             WHERE $3::text IS NOT NULL AND $4::bigint IS NOT NULL ORDER BY c.ord ON CONFLICT ({})",
            into.join(", "),
            values.join(", "),
            target.join(", ")
        );
        // The bytes decide, whatever the column's collation holds to be the same.
        let same_id = match id {
            IdKind::Text { .. } | IdKind::UuidHex => {
                format!("{id_column}::text COLLATE \"C\" = c.id COLLATE \"C\"")
            }
            _ => format!("{id_column}::{native} = c.id"),
        };
        // NULL is no tenant, and whose receipt it is that names no consumer the key has decided.
        let same_name = |column: Option<&str>, none: &str, value: &str| {
            column.map_or_else(String::new, |column| {
                let column = identifier(column);
                format!(" AND coalesce(i.{column}::text, {none}) COLLATE \"C\" = {value} COLLATE \"C\"")
            })
        };
        let same = format!(
            "{same_id}{}{}",
            same_name(adopt.consumer_column(), "$3::text", "$3::text"),
            same_name(adopt.tenant_column(), "''", "c.tenant")
        );
        let meets: Vec<_> = key
            .iter()
            .map(|column| {
                let value =
                    columns.iter().find(|(name, _)| name == column).map_or("NULL", |(_, value)| value);
                format!("i.{} = {value}", identifier(column))
            })
            .collect();
        let time = adopt.processed_at_column().filter(|_| timed).map_or_else(
            || "NULL::bigint".to_owned(),
            |column| format!("(extract(epoch FROM i.{}::timestamptz) * 1000)::bigint", identifier(column)),
        );
        let met = format!(
            "SELECT c.ord, {id_column}::text, {consumer}, {tenant}, ({same}) IS TRUE, {time} \
             FROM unnest($1::{array}, $2::text[]) WITH ORDINALITY AS c(id, tenant, ord) JOIN {table} i ON {} \
             WHERE $3::text IS NOT NULL",
            meets.join(" AND ")
        );
        let mine = same.replace("c.id", &format!("excluded.{}::{native}", identifier(message_id)));
        let mine = match adopt.tenant_column() {
            Some(column) => mine.replace("c.tenant", &format!("excluded.{}::text", identifier(column))),
            None => mine,
        };
        let renew = match adopt.processed_at_column().filter(|_| timed).map(identifier) {
            Some(time) => {
                format!("{insert} DO UPDATE SET {time} = GREATEST(i.{time}, excluded.{time}) WHERE {mine}")
            }
            None => format!("{insert} DO NOTHING"),
        };
        let insert = format!("{insert} DO NOTHING RETURNING {id_column}::{native}, {returned_tenant}");
        Self { insert, renew, met }
    }
}

/// The type that ids travel as.
pub(super) fn native(id: IdKind) -> &'static str {
    match id {
        IdKind::Uuid => "uuid",
        IdKind::UuidBytes | IdKind::Bytes { .. } => "bytea",
        IdKind::Text { .. } | IdKind::UuidHex => "text",
    }
}

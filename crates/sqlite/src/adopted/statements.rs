//! The statements on an adopted table. They are made once from its definition; values only ever travel as parameters.

use oncebox_core::store::{Adopt, IdKind};

use crate::time::now;

/// What is sent to the table. `?1` is a JSON array of `[id, tenant, further columns …]`, `?2` the consumer.
pub(super) struct Statements {
    /// Writes receipts and returns those that were not there.
    pub(super) insert: String,
    /// The same, but a receipt that is there becomes young again.
    pub(super) renew: String,
    /// The receipts that stand in the way, whether they are the same message's, and when they were written.
    pub(super) met: String,
}

/// How times are written.
#[derive(Clone, Copy)]
pub(super) enum TimeUnit {
    Text,
    Seconds,
    Milliseconds,
}

/// Beyond this a number is one of milliseconds: as seconds it would be in the year 5138.
const MAX_SECONDS: i64 = 100_000_000_000;

impl TimeUnit {
    /// What a number since 1970 counts.
    pub(super) fn of(number: i64) -> Self {
        if number > MAX_SECONDS { Self::Milliseconds } else { Self::Seconds }
    }

    /// As SQLite's own CURRENT_TIMESTAMP and unixepoch() write it.
    fn now(self) -> &'static str {
        match self {
            Self::Text => "strftime('%Y-%m-%d %H:%M:%f', 'now')",
            Self::Seconds => "unixepoch()",
            Self::Milliseconds => "CAST(unixepoch('subsec') * 1000 AS INTEGER)",
        }
    }
}

impl Statements {
    /// `key`: its columns, and the collation that it compares each by.
    pub(super) fn new(
        adopt: &Adopt,
        id: IdKind,
        key: &[(String, String)],
        timed: bool,
        time_unit: TimeUnit,
    ) -> Self {
        let table = quoted_table(adopt);
        let id_value = match id {
            IdKind::UuidBytes | IdKind::Bytes { .. } => "unhex(c.value->>0)",
            IdKind::Text { .. } | IdKind::Uuid | IdKind::UuidHex => "c.value->>0",
        };
        let mut columns = vec![(adopt.message_id_column(), id_value.to_owned())];
        columns.extend(adopt.consumer_column().map(|column| (column, "?2".to_owned())));
        columns.extend(adopt.tenant_column().map(|column| (column, "c.value->>1".to_owned())));
        if let Some(column) = adopt.processed_at_column().filter(|_| timed) {
            columns.push((column, time_unit.now().to_owned()));
        }
        for (nth, (column, _)) in adopt.set_columns().enumerate() {
            columns.push((column, format!("c.value->>{}", nth + 2)));
        }
        let into: Vec<_> = columns.iter().map(|(column, _)| quoted(column)).collect();
        let values: Vec<_> = columns.iter().map(|(_, value)| value.as_str()).collect();
        let target: Vec<_> = key.iter().map(|(column, _)| quoted(column)).collect();
        let insert = format!(
            "INSERT INTO {table} AS i ({}) SELECT {} FROM json_each(?1) c WHERE ?2 IS NOT NULL ON CONFLICT ({})",
            into.join(", "),
            values.join(", "),
            target.join(", ")
        );
        // The bytes decide, whatever the column's collation holds to be the same.
        let named = [Some(adopt.message_id_column()), adopt.consumer_column(), adopt.tenant_column()];
        // NULL is no tenant, and whose receipt it is that names no consumer the key has decided.
        let same = |value: &dyn Fn(&str) -> String| {
            let same = named.iter().flatten().map(|column| {
                let (own, value) = (format!("i.{}", quoted(column)), value(column));
                let own = match Some(*column) {
                    column if column == adopt.consumer_column() => format!("coalesce({own}, {value})"),
                    column if column == adopt.tenant_column() => format!("coalesce({own}, '')"),
                    _ => own,
                };
                format!("({own} COLLATE BINARY) IS ({value})")
            });
            same.collect::<Vec<_>>().join(" AND ")
        };
        let value_of = |column: &str| {
            let value = columns.iter().find(|(name, _)| *name == column);
            value.map_or_else(|| "NULL".to_owned(), |(_, value)| value.clone())
        };
        let meet = |(column, collation): &(String, String)| {
            format!("i.{} COLLATE {} = ({})", quoted(column), quoted(collation), value_of(column))
        };
        let meets: Vec<_> = key.iter().map(meet).collect();
        let time = adopt.processed_at_column().filter(|_| timed).map_or_else(
            || "NULL".to_owned(),
            |column| format!("CAST(round(unixepoch({}, 'subsec') * 1000) AS INTEGER)", iso(column)),
        );
        let met = format!(
            "SELECT c.key, CAST(i.{} AS TEXT), {}, {}, ({}), {time} FROM json_each(?1) c CROSS JOIN {table} i ON {} \
             WHERE ?2 IS NOT NULL",
            quoted(adopt.message_id_column()),
            text_of(adopt.consumer_column(), "?2"),
            text_of(adopt.tenant_column(), "''"),
            same(&value_of),
            meets.join(" AND ")
        );
        let renew = match adopt.processed_at_column().filter(|_| timed).map(quoted) {
            Some(time) => format!(
                "{insert} DO UPDATE SET {time} = excluded.{time} WHERE {}",
                same(&|column| format!("excluded.{}", quoted(column)))
            ),
            None => format!("{insert} DO NOTHING"),
        };
        let tenant = adopt
            .tenant_column()
            .map_or_else(|| "''".to_owned(), |column| format!("CAST({} AS TEXT)", quoted(column)));
        let insert = format!("{insert} DO NOTHING RETURNING {}, {tenant}", quoted(adopt.message_id_column()));
        Self { insert, renew, met }
    }
}

/// The table; there is only one schema that matters.
pub(super) fn quoted_table(adopt: &Adopt) -> String {
    quoted(adopt.table_name())
}

/// A name, as it is.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn text_of(column: Option<&str>, none: &str) -> String {
    column.map_or_else(|| none.to_owned(), |column| format!("CAST(i.{} AS TEXT)", quoted(column)))
}

/// A time of the table as ours are written; NULL if it is none. Numbers are seconds since 1970, beyond a hundred thousand
/// million milliseconds.
pub(super) fn iso(column: &str) -> String {
    let column = format!("i.{}", quoted(column));
    format!(
        "CASE typeof({column}) WHEN 'text' THEN strftime('%Y-%m-%dT%H:%M:%fZ', {column}) \
         WHEN 'integer' THEN strftime('%Y-%m-%dT%H:%M:%fZ', \
             CASE WHEN {column} > {MAX_SECONDS} THEN {column} / 1000.0 ELSE {column} END, 'unixepoch') END"
    )
}

/// Now, as ours are written.
pub(super) const NOW: &str = now!();

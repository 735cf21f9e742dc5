//! Sweeps: the rows of a query become events.
//!
//! The query stands in parentheses inside of ours. There SQLite allows nothing but reading, and ours leaves out the rows that
//! became events already.

use std::collections::HashSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use oncebox_core::error::BoxError;
use oncebox_core::outbox::{Event, check_topic, events_committed};
use oncebox_core::store::{ErrorClass, StoreError, StoreResult, Sweep};
use serde_json::{Map, Value};
use sqlx::sqlite::{SqliteColumn, SqliteRow};
use sqlx::{
    AssertSqlSafe, Column, Either, Executor, Row, SqlSafeStr, SqliteConnection, Statement as _, TypeInfo,
    ValueRef,
};

use super::{emit, json};
use crate::classify::{Context, is_plain_error};
use crate::store::SqliteStore;
use crate::time::{after, now, now_moved};

/// The header that names the sweep an event comes from.
const SWEEP_HEADER: &str = "oncebox-sweep";

/// Columns of ours in front of those of the query: the row's key and the event's key.
const OURS: usize = 2;

const REMEMBER: &str = concat!(
    "INSERT INTO oncebox_sweep (name, row_key, silent_until) SELECT ?1, value, ",
    now_moved!("?3"),
    " FROM json_each(?2) WHERE true
     ON CONFLICT (name, row_key) DO UPDATE SET silent_until = excluded.silent_until"
);

/// Runs the query and emits its rows. The transaction holds the write lock, so no two processes emit the same row.
pub(super) async fn sweep(store: &SqliteStore, sweep: &Sweep) -> StoreResult<u64> {
    let mut txn = store.begin().await?;
    let emitted = match run(&mut txn, sweep).await {
        Ok(emitted) => emitted,
        Err(error) => {
            txn.rollback().await;
            return Err(error);
        }
    };
    txn.commit(None).await?;
    if emitted > 0 {
        events_committed();
    }
    Ok(emitted)
}

/// Lets SQLite look at the query, and looks for the columns.
pub(super) async fn check_sweep(store: &SqliteStore, sweep: &Sweep) -> StoreResult<()> {
    let mut conn = store.reader().await?;
    check_query(&mut conn, sweep).await
}

/// Lets SQLite look at the query as it stands, and where it will stand: what passes both is a single statement that reads.
async fn check_query(conn: &mut SqliteConnection, sweep: &Sweep) -> StoreResult<()> {
    check_topic(&sweep.topic).map_err(|error| wrong(sweep, error))?;
    if query(sweep).is_empty() {
        return Err(wrong(sweep, "its query is empty"));
    }
    let sql = AssertSqlSafe(query(sweep).to_owned()).into_sql_str();
    let alone = conn.prepare(sql).await.context_of_user(&doing(sweep))?;
    if !matches!(alone.parameters(), Some(Either::Right(0))) {
        return Err(wrong(sweep, "its query runs for no message, so it has no parameters"));
    }
    let sql = AssertSqlSafe(format!(
        "SELECT * FROM (
{}
)",
        query(sweep)
    ))
    .into_sql_str();
    let inside = match conn.prepare(sql).await {
        Err(error) if is_plain_error(&error) => {
            let rule = "its query must begin with SELECT or WITH, and be a single statement";
            return Err(wrong(sweep, format!("{rule}: {error}")));
        }
        prepared => prepared.context_of_user(&doing(sweep))?,
    };
    check_columns(sweep, inside.columns())
}

/// The query without a `;` at its end.
fn query(sweep: &Sweep) -> &str {
    sweep.query.trim_end_matches(|c: char| c == ';' || c.is_whitespace()).trim_start()
}

fn check_columns(sweep: &Sweep, columns: &[SqliteColumn]) -> StoreResult<()> {
    let there: Vec<&str> = columns.iter().map(Column::name).collect();
    for (setting, column) in [("key", Some(&sweep.row_key)), ("emit.key", sweep.event_key.as_ref())] {
        if let Some(column) = column.filter(|column| !there.contains(&column.as_str())) {
            let there = there.join(", ");
            return Err(wrong(sweep, format!("{setting} names the column {column}, its query has {there}")));
        }
    }
    Ok(())
}

async fn run(conn: &mut SqliteConnection, sweep: &Sweep) -> StoreResult<u64> {
    check_query(conn, sweep).await?;
    let fresh = sqlx::query(AssertSqlSafe(fresh_rows(sweep))).bind(&sweep.name).bind(sweep.limit);
    let rows = fresh.persistent(false).fetch_all(&mut *conn).await.context_of_user(&doing(sweep))?;
    let (mut keys, mut events) = (HashSet::new(), Vec::new());
    for row in &rows {
        if keys.insert(row.try_get::<String, _>(0).context_of_user(&doing(sweep))?) {
            events.push(event(sweep, row)?);
        }
    }
    if events.is_empty() {
        return Ok(0);
    }
    let events_rows: Result<Vec<_>, _> = events.iter().map(Event::row).collect();
    emit::write_events(conn, &events_rows.map_err(|error| wrong(sweep, error))?).await?;
    let remember = sqlx::query(REMEMBER).bind(&sweep.name).bind(json(keys)).bind(after(sweep.window));
    remember.execute(conn).await.context(&doing(sweep))?;
    Ok(events.len() as u64)
}

/// The rows of the query that have a key, and whose key is not silent. `r."name"` is a column or an error; `"name"` alone might be a text.
fn fresh_rows(sweep: &Sweep) -> String {
    let row_key = quoted(&sweep.row_key);
    let event_key = sweep.event_key.as_deref().map_or("NULL".to_owned(), |key| format!("r.{}", quoted(key)));
    let as_text = format!(
        "CASE typeof(r.{row_key}) WHEN 'blob' THEN hex(r.{row_key}) ELSE CAST(r.{row_key} AS TEXT) END"
    );
    format!(
        "SELECT {as_text}, CAST({event_key} AS BLOB), r.* FROM (\n{}\n) AS r
         WHERE r.{row_key} IS NOT NULL AND NOT EXISTS (SELECT 1 FROM oncebox_sweep s
            WHERE s.name = ?1 AND s.row_key = {as_text} AND s.silent_until > {})
         LIMIT ?2",
        query(sweep),
        now!()
    )
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn event(sweep: &Sweep, row: &SqliteRow) -> StoreResult<Event> {
    let payload = object(row).context_of_user(&doing(sweep))?;
    let event = Event::to(&sweep.topic).header(SWEEP_HEADER, sweep.name.clone());
    let event = event.json(&payload).map_err(|error| wrong(sweep, error))?;
    let key: Option<Vec<u8>> = row.try_get(1).context_of_user(&doing(sweep))?;
    Ok(match key {
        Some(key) => event.key(key),
        None => event,
    })
}

fn object(row: &SqliteRow) -> sqlx::Result<Value> {
    let mut fields = Map::new();
    for column in &row.columns()[OURS..] {
        fields.insert(column.name().to_owned(), value(row, column.ordinal())?);
    }
    Ok(Value::Object(fields))
}

fn value(row: &SqliteRow, at: usize) -> sqlx::Result<Value> {
    let raw = row.try_get_raw(at)?;
    if raw.is_null() {
        return Ok(Value::Null);
    }
    Ok(match raw.type_info().name() {
        "INTEGER" => row.try_get_unchecked::<i64, _>(at)?.into(),
        "REAL" => row.try_get_unchecked::<f64, _>(at)?.into(),
        "BLOB" => STANDARD.encode(row.try_get_unchecked::<&[u8], _>(at)?).into(),
        _ => row.try_get_unchecked::<String, _>(at)?.into(),
    })
}

fn doing(sweep: &Sweep) -> String {
    format!("running sweep {}", sweep.name)
}

fn wrong(sweep: &Sweep, error: impl Into<BoxError>) -> StoreError {
    StoreError::new(ErrorClass::Failed, format!("sweep {}", sweep.name), error)
}

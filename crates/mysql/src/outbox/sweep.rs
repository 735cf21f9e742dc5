//! Queries whose rows become events.
//!
//! The query is a derived table inside of ours: there the server takes nothing but reading, and ours leaves out the rows that
//! became events already.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use oncebox_core::error::BoxError;
use oncebox_core::outbox::{Event, check_topic, events_committed};
use oncebox_core::store::{ErrorClass, StoreError, StoreResult, Sweep};
use serde_json::Value;
use sha2::{Digest, Sha256};
use sqlx::mysql::{MySqlColumn, MySqlRow};
use sqlx::{
    AssertSqlSafe, Column, Either, Executor, MySqlConnection, Row, SqlSafeStr, Statement, TypeInfo, ValueRef,
};

use super::waiting::behind;
use super::{change, emit, fetch};
use crate::classify::{Context, class_of_driver};
use crate::quote::{identifier, push_bytes, push_text, text};
use crate::store::MysqlStore;
use crate::time::milliseconds;

/// The header that names the sweep an event comes from.
const SWEEP_HEADER: &str = "oncebox-sweep";

/// Columns of ours in front of those of the query: the row's key and the event's key.
const OURS: usize = 2;

/// The longest message of rows to remember.
const MESSAGE_BYTES: usize = 512 * 1024;

/// Another process with the same sweep waits here until this one has committed, and then sees what it remembered.
const ONE_AT_A_TIME: &str = concat!(
    "INSERT INTO oncebox_sweep (name, row_hash, row_key, quiet_until) VALUES (?, '', '', ",
    behind!(),
    ") ON DUPLICATE KEY UPDATE quiet_until = VALUES(quiet_until)"
);

/// Runs the query and emits its rows.
pub(super) async fn sweep(store: &MysqlStore, sweep: &Sweep) -> StoreResult<u64> {
    let mut txn = store.begin_aside().await?;
    let columns = check_query(&mut txn, sweep).await?;
    store.query(ONE_AT_A_TIME).bind(&sweep.name).execute(&mut *txn).await.context(&doing(sweep))?;
    let emitted = run(&mut txn, sweep, &columns).await?;
    txn.commit_own(&doing(sweep)).await?;
    if emitted > 0 {
        events_committed();
    }
    Ok(emitted)
}

/// Lets the server look at the query, and looks for the columns.
pub(super) async fn check_sweep(store: &MysqlStore, sweep: &Sweep) -> StoreResult<()> {
    let mut txn = store.begin_aside().await?;
    check_query(&mut txn, sweep).await?;
    txn.rollback().await;
    Ok(())
}

/// Prepared, it can only be one statement. Returns the columns of the query.
async fn check_query(conn: &mut MySqlConnection, sweep: &Sweep) -> StoreResult<Vec<MySqlColumn>> {
    check_topic(&sweep.topic).map_err(|error| wrong(sweep, error))?;
    let sql = AssertSqlSafe(format!("SELECT * FROM (\n{}\n) AS q", query(sweep))).into_sql_str();
    let prepared = conn.prepare(sql).await.map_err(|error| refused(sweep, error))?;
    if !matches!(prepared.parameters(), Some(Either::Right(0))) {
        return Err(wrong(sweep, "its query runs for no message, so it has no parameters"));
    }
    let columns = prepared.columns();
    // By the names of the settings, because that is where the mistake is.
    for (setting, wanted) in [("key", Some(&sweep.row_key)), ("emit.key", sweep.event_key.as_ref())] {
        if let Some(column) = wanted.filter(|wanted| !columns.iter().any(|column| column.name() == *wanted)) {
            let there = columns.iter().map(Column::name).collect::<Vec<_>>().join(", ");
            return Err(wrong(sweep, format!("{setting} names the column {column}, its query has {there}")));
        }
    }
    Ok(columns.to_vec())
}

/// The query without a `;` at its end.
fn query(sweep: &Sweep) -> &str {
    sweep.query.trim().trim_end_matches(';')
}

async fn run(conn: &mut MySqlConnection, sweep: &Sweep, columns: &[MySqlColumn]) -> StoreResult<u64> {
    let doing = doing(sweep);
    let rows = fetch(conn, fresh_rows(sweep, columns)).await.context_of_user(&doing)?;
    let (mut keys, mut events) = (BTreeMap::new(), Vec::new());
    for row in &rows {
        let key: String = row.try_get(0).context_of_user(&doing)?;
        let hash: [u8; 32] = Sha256::digest(key.as_bytes()).into();
        if keys.insert(hash, key).is_none() {
            events.push(event(sweep, row).context_of_user(&doing)?);
        }
    }
    let written: Result<Vec<_>, _> = events.iter().map(Event::row).collect();
    emit::write_events(conn, &written.map_err(|error| wrong(sweep, error))?).await?;
    remember(conn, sweep, &keys).await.context(&doing)?;
    Ok(events.len() as u64)
}

/// The rows of the query that have a key, and whose key is not quiet.
fn fresh_rows(sweep: &Sweep, columns: &[MySqlColumn]) -> String {
    let as_text = as_text(&sweep.row_key, columns);
    let event_key =
        sweep.event_key.as_deref().map_or_else(|| "NULL".to_owned(), |key| as_bytes(key, columns));
    format!(
        "SELECT {as_text}, {event_key}, r.* FROM (\n{}\n) AS r WHERE r.{} IS NOT NULL \
         AND NOT EXISTS (SELECT 1 FROM oncebox_sweep AS s WHERE s.name = {} \
             AND s.row_hash = UNHEX(SHA2({as_text}, 256)) AND s.quiet_until > UTC_TIMESTAMP(6)) LIMIT {}",
        query(sweep),
        identifier(&sweep.row_key),
        text(&sweep.name),
        sweep.limit
    )
}

fn is_binary(name: &str, columns: &[MySqlColumn]) -> bool {
    let column = columns.iter().find(|column| column.name() == name);
    column.is_some_and(|column| is_bytes(column.type_info().name()))
}

fn is_bytes(type_name: &str) -> bool {
    type_name.ends_with("BLOB") || type_name.ends_with("BINARY") || type_name == "GEOMETRY"
}

/// Bytes as their digits, everything else as its text.
fn as_text(name: &str, columns: &[MySqlColumn]) -> String {
    let column = identifier(name);
    if is_binary(name, columns) {
        return format!("CONVERT(HEX(r.{column}) USING utf8mb4)");
    }
    format!("CAST(r.{column} AS CHAR CHARACTER SET utf8mb4)")
}

fn as_bytes(name: &str, columns: &[MySqlColumn]) -> String {
    if is_binary(name, columns) {
        return format!("r.{}", identifier(name));
    }
    format!("CAST({} AS BINARY)", as_text(name, columns))
}

fn event(sweep: &Sweep, row: &MySqlRow) -> sqlx::Result<Event> {
    let event = Event::to(&sweep.topic)
        .header("content-type", "application/json")
        .header(SWEEP_HEADER, sweep.name.clone())
        .bytes(object(row)?);
    let key: Option<Vec<u8>> = row.try_get(1)?;
    Ok(match key {
        Some(key) => event.key(key),
        None => event,
    })
}

/// The row as JSON, with the columns in their order and the numbers as the server wrote them.
fn object(row: &MySqlRow) -> sqlx::Result<String> {
    let mut fields = Vec::new();
    for column in &row.columns()[OURS..] {
        fields.push(format!("{}:{}", Value::from(column.name()), value(row, column.ordinal())?));
    }
    Ok(format!("{{{}}}", fields.join(",")))
}

fn value(row: &MySqlRow, at: usize) -> sqlx::Result<String> {
    let raw = row.try_get_raw(at)?;
    if raw.is_null() {
        return Ok("null".to_owned());
    }
    let type_info = raw.type_info();
    let type_name = type_info.name();
    if is_bytes(type_name) {
        return Ok(Value::from(STANDARD.encode(row.try_get_unchecked::<&[u8], _>(at)?)).to_string());
    }
    if type_name == "BIT" {
        let bits = row.try_get_unchecked::<&[u8], _>(at)?;
        return Ok(bits.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte)).to_string());
    }
    let written: String = row.try_get_unchecked(at)?;
    // A column that is filled up with zeros is no number of JSON.
    if is_number_or_json(type_name) && serde_json::from_str::<Value>(&written).is_ok() {
        return Ok(written);
    }
    Ok(Value::from(written).to_string())
}

fn is_number_or_json(type_name: &str) -> bool {
    let number = ["TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT", "BOOLEAN", "YEAR"]
        .contains(&type_name.trim_end_matches(" UNSIGNED"));
    number || ["DECIMAL", "FLOAT", "DOUBLE", "JSON"].contains(&type_name)
}

async fn remember(
    conn: &mut MySqlConnection,
    sweep: &Sweep,
    keys: &BTreeMap<[u8; 32], String>,
) -> sqlx::Result<()> {
    let mut message = String::new();
    for (hash, key) in keys {
        message.push_str(if message.is_empty() {
            "INSERT INTO oncebox_sweep (name, row_hash, row_key, quiet_until) VALUES ("
        } else {
            ", ("
        });
        push_text(&mut message, &sweep.name);
        message.push_str(", ");
        push_bytes(&mut message, hash);
        message.push_str(", ");
        push_text(&mut message, key);
        message.push_str(&format!(
            ", UTC_TIMESTAMP(6) + INTERVAL {} * 1000 MICROSECOND)",
            milliseconds(sweep.window)
        ));
        if message.len() > MESSAGE_BYTES {
            change(conn, remembering(std::mem::take(&mut message))).await?;
        }
    }
    if !message.is_empty() {
        change(conn, remembering(message)).await?;
    }
    Ok(())
}

fn remembering(mut message: String) -> String {
    message.push_str(" ON DUPLICATE KEY UPDATE quiet_until = VALUES(quiet_until)");
    message
}

fn doing(sweep: &Sweep) -> String {
    format!("running sweep {}", sweep.name)
}

fn wrong(sweep: &Sweep, why: impl Into<BoxError>) -> StoreError {
    StoreError::new(ErrorClass::Failed, format!("checking sweep {}", sweep.name), why)
}

fn refused(sweep: &Sweep, error: sqlx::Error) -> StoreError {
    match class_of_driver(&error) {
        // A table that is missing now may be there later.
        class @ (ErrorClass::Failed | ErrorClass::Environment) => {
            wrong(sweep, format!("the server refuses the query: {error}")).with_class(class)
        }
        class => wrong(sweep, error).with_class(class),
    }
}

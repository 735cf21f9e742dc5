//! What an adopted table looks like, from the schema.

use oncebox_core::store::{
    Adopt, AdoptedUse, ErrorClass, Finding, FindingLevel, FoundColumn, FoundTable, IdKind, StoreError,
    StoreResult, StoredId,
};
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, Row, SqliteConnection};

use super::Table;
use super::statements::{Statements, TimeUnit, quoted, quoted_table};
use crate::classify::Context;
use crate::store::SqliteStore;

const DOING: &str = "looking at the adopted table";

const TABLE: &str =
    "SELECT type, wr FROM pragma_table_list WHERE schema = 'main' AND name = ?1 COLLATE NOCASE";

const COLUMNS: &str =
    "SELECT name, upper(type) AS type, \"notnull\", dflt_value IS NOT NULL OR hidden > 1 AS filled, pk,
        hidden > 1 AS generated
    FROM pragma_table_xinfo(?1) ORDER BY cid";

/// Only what ON CONFLICT can rely on: over all rows, on plain columns. An index has collations of its own.
const KEYS: &str = "SELECT json_group_array(json_array(c.name, c.coll))
    FROM pragma_index_list(?1) i JOIN pragma_index_xinfo(i.name) c
    WHERE i.\"unique\" = 1 AND i.partial = 0 AND c.key = 1 GROUP BY i.name HAVING count(*) = count(c.name)";

/// Rows that are looked at to learn how ids and times are written.
const SAMPLE_ROWS: u32 = 300;

/// The columns of a key, and the collation that it compares each by.
type Key = Vec<(String, String)>;

/// A column and the type it was declared with.
struct Column {
    found: FoundColumn,
    declared: String,
}

/// The table as it is.
struct Looked {
    found: FoundTable,
    keys: Vec<Key>,
    has_rowid: bool,
    time_unit: TimeUnit,
}

/// What the mapping lacks.
pub(super) async fn check_adopted(
    store: &SqliteStore,
    adopt: &Adopt,
    usage: AdoptedUse,
) -> StoreResult<Vec<Finding>> {
    Ok(match look(store, adopt).await? {
        Ok(looked) => adopt.judge(&looked.found, usage, &adopt.create_key('"')),
        Err(finding) => vec![finding],
    })
}

/// The table with its statements.
///
/// # Errors
/// Of the environment, if it will not do.
pub(super) async fn table(store: &SqliteStore, adopt: &Adopt) -> StoreResult<Table> {
    let refused =
        |why: String| StoreError::new(ErrorClass::Environment, format!("using the table {adopt}"), why);
    let looked = look(store, adopt).await?.map_err(|finding| refused(finding.detail))?;
    let usage = AdoptedUse { consumers: 1, tenants: false, longest_consumer: 0 };
    let errors: Vec<_> = adopt
        .judge(&looked.found, usage, &adopt.create_key('"'))
        .into_iter()
        .filter(|finding| finding.level == FindingLevel::Error)
        .map(|finding| finding.detail)
        .collect();
    if !errors.is_empty() {
        return Err(refused(errors.join("; ")));
    }
    Ok(known(adopt, looked))
}

/// The table as one to read from, which needs no unique key.
pub(super) async fn table_to_read(store: &SqliteStore, adopt: &Adopt) -> StoreResult<Table> {
    let refused =
        |why: String| StoreError::new(ErrorClass::Failed, format!("reading the table {adopt}"), why);
    let looked = look(store, adopt).await?.map_err(|finding| refused(finding.detail))?;
    let has = |name: &str| looked.found.columns.iter().any(|column| column.name == name);
    let missing: Vec<_> = adopt.columns().filter(|name| !has(name)).collect();
    if !missing.is_empty() {
        return Err(refused(format!("it has no column {}", missing.join(", "))));
    }
    if let Err(kind) = &looked.found.id {
        return Err(refused(format!(
            "its ids are of type {kind}: text, UUID and binary columns can be copied"
        )));
    }
    Ok(known(adopt, looked))
}

fn known(adopt: &Adopt, looked: Looked) -> Table {
    let Looked { found, keys, has_rowid, time_unit } = looked;
    let id = found.id.clone().unwrap_or(IdKind::Text { max_chars: None, padded: false });
    let names = adopt.key(&found).unwrap_or_default();
    let is_chosen = |key: &Key| key.iter().map(|(name, _)| name).eq(names);
    let key = keys.into_iter().find(is_chosen).unwrap_or_default();
    let statements = Statements::new(adopt, id, &key, adopt.is_purged(&found), time_unit);
    Table { adopt: adopt.clone(), required: adopt.required(&found), id, statements, found, has_rowid }
}

async fn look(store: &SqliteStore, adopt: &Adopt) -> StoreResult<Result<Looked, Finding>> {
    let mut conn = store.reader().await?;
    look_in(&mut conn, adopt).await.context(DOING)
}

async fn look_in(conn: &mut SqliteConnection, adopt: &Adopt) -> sqlx::Result<Result<Looked, Finding>> {
    let wrong = |detail: &str| Ok(Err(Finding::error(format!("adopted table {adopt}"), detail)));
    if adopt.schema().is_some_and(|schema| !schema.eq_ignore_ascii_case("main")) {
        return wrong("only tables of the file itself can be adopted: leave the schema out");
    }
    let row = sqlx::query(TABLE).bind(adopt.table_name()).fetch_optional(&mut *conn).await?;
    let Some(row) = row else {
        return wrong("there is no such table in the file: correct [store.adopt]");
    };
    let (kind, without_rowid): (String, bool) = (row.try_get(0)?, row.try_get(1)?);
    if kind != "table" {
        return wrong("it is no table but a view or something else: name the table");
    }
    let rows = sqlx::query(COLUMNS).bind(adopt.table_name()).fetch_all(&mut *conn).await?;
    let columns: Vec<Column> = rows.iter().map(|row| column(adopt, row)).collect::<sqlx::Result<_>>()?;
    let rows = sqlx::query(KEYS).bind(adopt.table_name()).fetch_all(&mut *conn).await?;
    let keys: Vec<Key> = rows.iter().map(|row| key(adopt, row)).collect::<sqlx::Result<_>>()?;
    let named = |name: &str| columns.iter().find(|column| column.found.name == name);
    let by_type = named(adopt.message_id_column()).map_or_else(|| Err("none".to_owned()), id_kind);
    let time = adopt.processed_at_column().and_then(named);
    let is_number = time.is_some_and(|column| column.declared.contains("INT"));
    let complete = adopt.columns().all(|name| named(name).is_some());
    let sample = if complete { sample(conn, adopt, !without_rowid).await? } else { Sample::default() };
    let no_purge = time.and_then(no_time).or_else(|| {
        without_rowid
            .then(|| "the table is WITHOUT ROWID, so there is no order to walk over it in".to_owned())
    });
    let found = FoundTable {
        columns: columns.into_iter().map(|column| column.found).collect(),
        keys: keys.iter().map(|key| key.iter().map(|(name, _)| name.clone()).collect()).collect(),
        id: adopt.id_kind(by_type),
        no_purge,
        missing_rights: Vec::new(),
        sample: sample.ids,
        undated: sample.undated,
        warnings: Vec::new(),
    };
    let time_unit = match sample.latest {
        Some(latest) if is_number || !sample.texts => TimeUnit::of(latest),
        None if is_number => TimeUnit::Seconds,
        _ => TimeUnit::Text,
    };
    Ok(Ok(Looked { found, keys, has_rowid: !without_rowid, time_unit }))
}

/// What some rows hold, the latest if there is an order.
#[derive(Default)]
struct Sample {
    ids: Vec<StoredId>,
    /// Whether one has no time.
    undated: bool,
    /// Whether one has a time that is text.
    texts: bool,
    /// The highest time that is a whole number.
    latest: Option<i64>,
}

async fn sample(conn: &mut SqliteConnection, adopt: &Adopt, has_rowid: bool) -> sqlx::Result<Sample> {
    let id = quoted(adopt.message_id_column());
    let time = adopt.processed_at_column().map_or_else(|| "0".to_owned(), quoted);
    let sql = format!(
        "SELECT typeof({id}), CAST({id} AS BLOB), typeof({time}), CASE typeof({time}) WHEN 'integer' THEN {time} END \
         FROM {} WHERE {id} IS NOT NULL {} LIMIT {SAMPLE_ROWS}",
        quoted_table(adopt),
        if has_rowid { "ORDER BY rowid DESC" } else { "" }
    );
    let mut sample = Sample::default();
    for row in sqlx::query(AssertSqlSafe(sql)).persistent(false).fetch_all(conn).await? {
        let kind: String = row.try_get_unchecked(0)?;
        let bytes: Vec<u8> = row.try_get_unchecked(1)?;
        let as_text = |bytes: &[u8]| StoredId::Text(String::from_utf8_lossy(bytes).into_owned());
        sample.ids.push(if kind == "text" { as_text(&bytes) } else { StoredId::Bytes(bytes) });
        let time: String = row.try_get_unchecked(2)?;
        sample.undated |= time == "null";
        sample.texts |= time == "text";
        sample.latest = sample.latest.max(row.try_get_unchecked(3)?);
    }
    Ok(sample)
}

/// SQLite does not tell names by their case; the mapping's spelling stands for both.
fn spelled(adopt: &Adopt, name: String) -> String {
    let own = adopt.columns().find(|own| own.eq_ignore_ascii_case(&name)).map(str::to_owned);
    own.unwrap_or(name)
}

fn column(adopt: &Adopt, row: &SqliteRow) -> sqlx::Result<Column> {
    let declared: String = row.try_get("type")?;
    let (not_null, pk): (bool, i64) = (row.try_get("notnull")?, row.try_get("pk")?);
    // SQLite lets NULLs into most primary keys, but nobody means it.
    let nullable = !not_null && pk == 0;
    let is_rowid = pk > 0 && declared == "INTEGER";
    let filled = row.try_get::<bool, _>("filled")? || is_rowid;
    // By its affinity: text stays what it is in these.
    let text = declared.is_empty()
        || (!declared.contains("INT")
            && ["CHAR", "CLOB", "TEXT", "BLOB"].iter().any(|word| declared.contains(word)));
    let found = FoundColumn {
        name: spelled(adopt, row.try_get("name")?),
        nullable,
        filled,
        generated: row.try_get("generated")?,
        text,
        max_chars: None,
    };
    Ok(Column { found, declared })
}

fn key(adopt: &Adopt, row: &SqliteRow) -> sqlx::Result<Key> {
    let columns: Key = serde_json::from_str(row.try_get(0)?).unwrap_or_default();
    Ok(columns.into_iter().map(|(name, collation)| (spelled(adopt, name), collation)).collect())
}

/// By the declared type, as SQLite reads it. Lengths mean nothing to it.
fn id_kind(column: &Column) -> Result<IdKind, String> {
    let declared = column.declared.as_str();
    let has = |word: &str| declared.contains(word);
    match declared {
        "CHAR(32)" | "CHARACTER(32)" => Ok(IdKind::UuidHex),
        "BINARY(16)" => Ok(IdKind::UuidBytes),
        _ if has("INT") => Err(declared.to_owned()),
        _ if has("UUID") => Ok(IdKind::Uuid),
        "" => Ok(IdKind::Text { max_chars: None, padded: false }),
        _ if has("CHAR") || has("CLOB") || has("TEXT") => Ok(IdKind::Text { max_chars: None, padded: false }),
        _ if has("BLOB") => Ok(IdKind::Bytes { max_bytes: None }),
        // Anything else makes numbers of ids that look like some.
        _ => Err(declared.to_owned()),
    }
}

fn no_time(column: &Column) -> Option<String> {
    let declared = column.declared.as_str();
    let is_time = declared.is_empty()
        || ["INT", "TEXT", "CHAR", "DATE", "TIME"].iter().any(|word| declared.contains(word));
    (!is_time).then(|| format!("the column {} is of type {declared}, which is no time", column.found.name))
}

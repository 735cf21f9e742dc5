//! What an adopted table looks like, from the information schema.

use oncebox_core::store::{
    Adopt, AdoptedUse, ErrorClass, Finding, FindingLevel, FoundColumn, FoundTable, IdKind, StoreError,
    StoreResult, StoredId,
};
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, MySqlConnection, Row};

use super::Table;
use super::statements::{Statements, id_bytes};
use crate::check::missing_rights;
use crate::classify::{Context, number_of};
use crate::quote::identifier;
use crate::store::MysqlStore;

const DOING: &str = "looking at the adopted table";

/// The types are spelled out because the two servers differ in them.
const TABLE: &str = "SELECT CAST(t.table_type AS CHAR), CAST(COALESCE(e.transactions, 'NO') AS CHAR) \
     FROM information_schema.tables AS t LEFT JOIN information_schema.engines AS e ON e.engine = t.engine \
     WHERE t.table_schema = COALESCE(?, DATABASE()) AND t.table_name = ?";

const COLUMNS: &str = "SELECT CAST(column_name AS CHAR), CAST(is_nullable AS CHAR), \
         column_default IS NOT NULL OR LOWER(extra) LIKE '%auto_increment%' OR LOWER(extra) LIKE '%generated%' \
             OR LOWER(extra) LIKE '%virtual%' OR LOWER(extra) LIKE '%stored%', \
         CAST(LOWER(data_type) AS CHAR), CAST(character_maximum_length AS SIGNED), \
         COALESCE(generation_expression, '') <> '' \
     FROM information_schema.columns WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ? ORDER BY ordinal_position";

/// A key over the beginning of a column, or over an expression, tells no copies.
const KEYS: &str = "SELECT CAST(index_name AS CHAR), CAST(column_name AS CHAR), CAST(non_unique AS SIGNED), \
         CAST(sub_part AS SIGNED) \
     FROM information_schema.statistics WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ? \
     ORDER BY index_name, seq_in_index";

/// As far as the user may see them.
const TRIGGER: &str = "SELECT CAST(MIN(trigger_name) AS CHAR) FROM information_schema.triggers \
     WHERE event_object_schema = COALESCE(?, DATABASE()) AND event_object_table = ? AND event_manipulation = 'INSERT' \
         AND action_timing = 'BEFORE'";

/// Rows that are looked at to learn how ids are written.
const SAMPLE_ROWS: u32 = 300;
/// The user may not read the table, or a column of it.
const MAY_NOT_READ: [u16; 2] = [1142, 1143];

/// A column and its type.
struct Column {
    found: FoundColumn,
    kind: String,
    length: Option<i64>,
}

/// An index with its columns; a column is none where only its beginning, or an expression, is in it.
struct Index {
    name: String,
    unique: bool,
    columns: Vec<Option<String>>,
}

/// The table as it is.
struct Looked {
    found: FoundTable,
    /// The names of its unique keys, in the same order.
    key_names: Vec<String>,
    /// Whether the column of the time is a TIMESTAMP.
    zoned: bool,
}

/// What the mapping lacks.
pub(super) async fn check_adopted(
    store: &MysqlStore,
    adopt: &Adopt,
    usage: AdoptedUse,
) -> StoreResult<Vec<Finding>> {
    Ok(match store.patiently(DOING, look(store, adopt)).await? {
        Ok(looked) => adopt.judge(&looked.found, usage, &adopt.create_key('`')),
        Err(finding) => vec![finding],
    })
}

/// The table with its statements.
///
/// # Errors
/// Of the environment, if it will not do.
pub(super) async fn table(store: &MysqlStore, adopt: &Adopt) -> StoreResult<Table> {
    let refused =
        |why: String| StoreError::new(ErrorClass::Environment, format!("using the table {adopt}"), why);
    let looked = look(store, adopt).await?.map_err(|finding| refused(finding.detail))?;
    let usage = AdoptedUse { consumers: 1, tenants: false, longest_consumer: 0 };
    let errors: Vec<_> = adopt
        .judge(&looked.found, usage, &adopt.create_key('`'))
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
pub(super) async fn table_to_read(store: &MysqlStore, adopt: &Adopt) -> StoreResult<Table> {
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
    let Looked { found, key_names, zoned } = looked;
    let id = found.id.clone().unwrap_or(IdKind::Text { max_chars: None, padded: false });
    let key = adopt.key(&found).unwrap_or_default();
    let nth = found.keys.iter().position(|one| one == key).unwrap_or_default();
    let key = (key_names.get(nth).map_or("", String::as_str), key);
    let statements = Statements::new(adopt, id, key, adopt.is_purged(&found), zoned);
    Table { adopt: adopt.clone(), required: adopt.required(&found), id, statements, found }
}

async fn look(store: &MysqlStore, adopt: &Adopt) -> StoreResult<Result<Looked, Finding>> {
    let mut txn = store.begin_aside().await?;
    let looked = look_in(store, &mut txn, adopt).await.context(DOING);
    txn.rollback().await;
    looked
}

async fn look_in(
    store: &MysqlStore,
    conn: &mut MySqlConnection,
    adopt: &Adopt,
) -> sqlx::Result<Result<Looked, Finding>> {
    let wrong = |detail: &str| Ok(Err(Finding::error(format!("adopted table {adopt}"), detail)));
    let named = |sql: &'static str| store.query(sql).bind(adopt.schema()).bind(adopt.table_name());
    let Some(row) = named(TABLE).fetch_optional(&mut *conn).await? else {
        return wrong("there is no such table, as this user sees the database: correct [store.adopt]");
    };
    let (kind, transactions): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    if kind != "BASE TABLE" {
        return wrong("it is no table but a view or something else: name the table");
    }
    if transactions != "YES" {
        return wrong(
            "its engine knows no transactions, so a receipt would stay when its effect is undone: ALTER TABLE … ENGINE = InnoDB",
        );
    }
    let rows = named(COLUMNS).fetch_all(&mut *conn).await?;
    let columns: Vec<Column> = rows.iter().map(|row| column(adopt, row)).collect::<sqlx::Result<_>>()?;
    let indexes = indexes(adopt, &named(KEYS).fetch_all(&mut *conn).await?)?;
    let column_of = |name: &str| columns.iter().find(|column| column.found.name == name);
    let by_type = column_of(adopt.message_id_column()).map_or_else(|| Err("none".to_owned()), id_kind);
    let zoned =
        adopt.processed_at_column().and_then(column_of).is_some_and(|column| column.kind == "timestamp");
    let complete = adopt.columns().all(|name| column_of(name).is_some());
    let (sample, undated) = match &by_type {
        Ok(kind) if complete => sample(conn, adopt, *kind).await?,
        _ => (Vec::new(), false),
    };
    let no_purge = adopt
        .processed_at_column()
        .and_then(column_of)
        .and_then(no_time)
        .or_else(|| no_order(adopt, &indexes));
    let keys = indexes.into_iter().filter(|index| index.unique).filter_map(|index| {
        let columns: Option<Vec<String>> = index.columns.into_iter().collect();
        Some((index.name, columns?))
    });
    let (key_names, keys) = keys.unzip();
    let trigger: Option<String> = named(TRIGGER).fetch_one(&mut *conn).await?.try_get(0)?;
    let warnings = trigger.map(|name| {
        format!(
            "its trigger {name} runs before each insert: if it changes ids, consumers or tenants, copies are not recognised"
        )
    });
    let found = FoundTable {
        keys,
        columns: columns.into_iter().map(|column| column.found).collect(),
        id: adopt.id_kind(by_type),
        no_purge,
        missing_rights: missing_rights(conn, adopt).await?,
        sample,
        undated,
        warnings: warnings.into_iter().collect(),
    };
    Ok(Ok(Looked { found, key_names, zoned }))
}

/// Ids of some rows, and whether one of them has no time. Nothing if they may not be read, which is told elsewhere.
async fn sample(
    conn: &mut MySqlConnection,
    adopt: &Adopt,
    kind: IdKind,
) -> sqlx::Result<(Vec<StoredId>, bool)> {
    let id = identifier(adopt.message_id_column());
    let undated = adopt
        .processed_at_column()
        .map_or_else(|| "FALSE".to_owned(), |column| format!("{} IS NULL", identifier(column)));
    let sql = format!(
        "SELECT {}, {undated} FROM {} WHERE {id} IS NOT NULL LIMIT {SAMPLE_ROWS}",
        id_bytes(kind, &id),
        adopt.quoted('`')
    );
    let rows = match sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(conn).await {
        Err(error) if number_of(&error).is_some_and(|number| MAY_NOT_READ.contains(&number)) => Vec::new(),
        rows => rows?,
    };
    let (mut ids, mut any_undated) = (Vec::with_capacity(rows.len()), false);
    for row in &rows {
        let bytes: Vec<u8> = row.try_get_unchecked(0)?;
        ids.push(match kind {
            IdKind::UuidBytes | IdKind::Bytes { .. } => StoredId::Bytes(bytes),
            _ => StoredId::Text(String::from_utf8_lossy(&bytes).into_owned()),
        });
        any_undated |= row.try_get_unchecked::<bool, _>(1)?;
    }
    Ok((ids, any_undated))
}

/// The servers do not tell names of columns by their case; the mapping's spelling stands for both.
fn spelled(adopt: &Adopt, name: String) -> String {
    let own = adopt.columns().find(|own| own.eq_ignore_ascii_case(&name)).map(str::to_owned);
    own.unwrap_or(name)
}

fn column(adopt: &Adopt, row: &MySqlRow) -> sqlx::Result<Column> {
    let nullable: String = row.try_get(1)?;
    let (kind, length): (String, Option<i64>) = (row.try_get(3)?, row.try_get(4)?);
    let text = ["char", "text", "binary", "blob", "enum"].iter().any(|word| kind.contains(word));
    let found = FoundColumn {
        name: spelled(adopt, row.try_get(0)?),
        nullable: nullable == "YES",
        filled: row.try_get(2)?,
        generated: row.try_get(5)?,
        text,
        max_chars: length.and_then(|length| u32::try_from(length).ok()).filter(|_| text),
    };
    Ok(Column { found, kind, length })
}

fn indexes(adopt: &Adopt, rows: &[MySqlRow]) -> sqlx::Result<Vec<Index>> {
    let mut indexes: Vec<Index> = Vec::new();
    for row in rows {
        let name: String = row.try_get(0)?;
        let column: Option<String> = row.try_get(1)?;
        let (non_unique, part): (i64, Option<i64>) = (row.try_get(2)?, row.try_get(3)?);
        let column = column.filter(|_| part.is_none()).map(|column| spelled(adopt, column));
        match indexes.last_mut().filter(|index| index.name == name) {
            Some(index) => index.columns.push(column),
            None => indexes.push(Index { name, unique: non_unique == 0, columns: vec![column] }),
        }
    }
    Ok(indexes)
}

fn id_kind(column: &Column) -> Result<IdKind, String> {
    let length = column.length.and_then(|length| u32::try_from(length).ok());
    match (column.kind.as_str(), length) {
        // What Django writes.
        ("char", Some(32)) => Ok(IdKind::UuidHex),
        ("char", max_chars) => Ok(IdKind::Text { max_chars, padded: true }),
        ("varchar", max_chars) => Ok(IdKind::Text { max_chars, padded: false }),
        ("uuid", _) => Ok(IdKind::Uuid),
        ("binary", Some(16)) => Ok(IdKind::UuidBytes),
        ("varbinary", max_bytes) => Ok(IdKind::Bytes { max_bytes }),
        // Others cannot have a unique key over all of them, or fill ids up with zeros.
        (kind, _) => Err(kind.to_owned()),
    }
}

fn no_time(column: &Column) -> Option<String> {
    let is_time = matches!(column.kind.as_str(), "datetime" | "timestamp");
    (!is_time)
        .then(|| format!("the column {} is of type {}, which is no time", column.found.name, column.kind))
}

fn no_order(adopt: &Adopt, indexes: &[Index]) -> Option<String> {
    let id = adopt.message_id_column();
    let leads = |index: &Index| index.columns.first().is_some_and(|first| first.as_deref() == Some(id));
    let none = adopt.processed_at_column().is_some() && !indexes.iter().any(leads);
    none.then(|| {
        format!("no index begins with {id}, so there is no order to walk over the table in: create one")
    })
}

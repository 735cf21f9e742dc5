//! What an adopted table looks like, from the catalogue.

use oncebox_core::store::{
    Adopt, AdoptedUse, ErrorClass, Finding, FindingLevel, FoundColumn, FoundTable, IdKind, StoreError,
    StoreResult, StoredId,
};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Row};

use super::Table;
use super::claim::stored_id;
use super::statements::{ColumnType, Statements, native};
use crate::classify::Context;
use crate::quote::identifier;
use crate::store::PgStore;
use crate::txn::PgTxn;

const DOING: &str = "looking at the adopted table";

const RELATION: &str = "SELECT c.oid::bigint, c.relkind::text, has_table_privilege(c.oid, 'SELECT'), \
         has_table_privilege(c.oid, 'INSERT'), has_table_privilege(c.oid, 'UPDATE'), has_table_privilege(c.oid, 'DELETE'), \
         c.relkind <> 'p' AND EXISTS (SELECT FROM pg_inherits h WHERE h.inhparent = c.oid), \
         EXISTS (SELECT FROM pg_rewrite r WHERE r.ev_class = c.oid AND r.ev_type IN ('2', '3') AND r.ev_enabled <> 'D'), \
         (SELECT min(t.tgname::text) FROM pg_trigger t \
          WHERE t.tgrelid = c.oid AND t.tgtype & 7 = 7 AND NOT t.tgisinternal AND t.tgenabled <> 'D') \
     FROM pg_class c WHERE c.oid = to_regclass($1)";

/// The type without its modifier, as a cast takes it; and for a domain what it is made of.
const COLUMNS: &str = "SELECT a.attname::text, NOT (a.attnotnull OR t.typnotnull), \
         a.atthasdef OR a.attidentity <> '' OR t.typdefault IS NOT NULL, format_type(a.atttypid, -1), \
         CASE t.typtype WHEN 'd' THEN format_type(t.typbasetype, -1) ELSE format_type(a.atttypid, -1) END, \
         CASE t.typtype WHEN 'd' THEN t.typtypmod ELSE a.atttypmod END, \
         a.attgenerated <> '' OR a.attidentity = 'a' \
     FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid \
     WHERE a.attrelid = $1::bigint::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";

/// Rows that are looked at to learn how ids are written.
const SAMPLE_ROWS: u32 = 300;

/// Only what ON CONFLICT can rely on: over all rows, at once, on plain columns; and equal where the column holds two ids to be
/// equal.
const KEYS: &str = "SELECT array_agg(a.attname::text ORDER BY k.nth) \
     FROM pg_index x CROSS JOIN LATERAL unnest(x.indkey::int2[]) WITH ORDINALITY AS k(attnum, nth) \
     JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = k.attnum \
     WHERE x.indrelid = $1::bigint::oid AND x.indisunique AND x.indimmediate AND x.indisvalid AND x.indisready \
         AND x.indpred IS NULL AND x.indexprs IS NULL AND k.nth <= x.indnkeyatts \
     GROUP BY x.indexrelid \
     HAVING bool_and(x.indcollation[(k.nth - 1)::int] = a.attcollation OR NOT EXISTS (SELECT FROM pg_collation o \
         WHERE o.oid IN (x.indcollation[(k.nth - 1)::int], a.attcollation) AND NOT o.collisdeterministic))";

/// A column of the mapping, with its type.
struct Column {
    found: FoundColumn,
    cast: String,
    base: String,
    modifier: i32,
}

/// The table as it is.
struct Looked {
    found: FoundTable,
    columns: Vec<Column>,
}

/// What the mapping lacks.
pub(super) async fn check_adopted(
    store: &PgStore,
    adopt: &Adopt,
    usage: AdoptedUse,
) -> StoreResult<Vec<Finding>> {
    Ok(match store.patiently(DOING, look(store, adopt)).await? {
        Ok(looked) => adopt.judge(&looked.found, usage, &adopt.create_key('"')),
        Err(finding) => vec![finding],
    })
}

/// The table with its statements.
///
/// # Errors
/// Of the environment, if it will not do.
pub(super) async fn table(store: &PgStore, adopt: &Adopt) -> StoreResult<Table> {
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

/// The table as one to read from, which needs no unique key and no right to write.
pub(super) async fn table_to_read(store: &PgStore, adopt: &Adopt) -> StoreResult<Table> {
    let refused =
        |why: String| StoreError::new(ErrorClass::Failed, format!("reading the table {adopt}"), why);
    let looked = look(store, adopt).await?.map_err(|finding| refused(finding.detail))?;
    let missing: Vec<_> = adopt
        .columns()
        .filter(|name| looked.columns.iter().all(|column| column.found.name != *name))
        .collect();
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
    let Looked { found, columns } = looked;
    let id = found.id.clone().unwrap_or(IdKind::Text { max_chars: None, padded: false });
    let types = |name: &str| {
        let column = columns.iter().find(|column| column.found.name == name);
        ColumnType { cast: column.map_or_else(|| "text".to_owned(), |column| column.cast.clone()) }
    };
    let key = adopt.key(&found).unwrap_or_default();
    let statements = Statements::new(adopt, id, key, adopt.is_purged(&found), types);
    Table { adopt: adopt.clone(), required: adopt.required(&found), id, statements, found }
}

async fn look(store: &PgStore, adopt: &Adopt) -> StoreResult<Result<Looked, Finding>> {
    let mut txn = store.begin_aside().await?;
    let looked = look_in(store, &mut txn, adopt).await;
    txn.rollback().await;
    looked
}

async fn look_in(store: &PgStore, txn: &mut PgTxn, adopt: &Adopt) -> StoreResult<Result<Looked, Finding>> {
    let wrong = |detail: String| Ok(Err(Finding::error(format!("adopted table {adopt}"), detail)));
    let relation =
        store.query(RELATION).bind(adopt.quoted('"')).fetch_optional(&mut **txn).await.context(DOING)?;
    let Some(relation) = relation else {
        return wrong(
            "there is no such table, as this role sees the database. Names are taken as they are written, also in \
             their case: correct [store.adopt]"
                .to_owned(),
        );
    };
    let oid: i64 = relation.try_get(0).context(DOING)?;
    let kind: String = relation.try_get(1).context(DOING)?;
    if !matches!(kind.as_str(), "r" | "p") {
        return wrong(
            "it is no table but a view, a foreign table or something else: name the table".to_owned(),
        );
    }
    if relation.try_get(6).context(DOING)? {
        return wrong(
            "other tables inherit from it, and its unique key does not hold in them: name a table without children"
                .to_owned(),
        );
    }
    if relation.try_get(7).context(DOING)? {
        return wrong(
            "a rule rewrites what is written to it, and ON CONFLICT does not go with rules: drop the rule, or name the table that \
             it writes to"
                .to_owned(),
        );
    }
    let rows = store.query(COLUMNS).bind(oid).fetch_all(&mut **txn).await.context(DOING)?;
    let columns: Vec<Column> = rows.iter().map(column).collect::<sqlx::Result<_>>().context(DOING)?;
    let rows = store.query(KEYS).bind(oid).fetch_all(&mut **txn).await.context(DOING)?;
    let keys = rows.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<_>>().context(DOING)?;
    let named = |name: &str| columns.iter().find(|column| column.found.name == name);
    let by_type = named(adopt.message_id_column()).map_or_else(|| Err("none".to_owned()), id_kind);
    let no_purge = adopt.processed_at_column().and_then(named).and_then(no_time);
    let missing_rights = missing_rights(&relation, adopt).context(DOING)?;
    let complete = adopt.columns().all(|name| named(name).is_some());
    let (sample, undated) = match &by_type {
        Ok(kind) if complete && relation.try_get(2).context(DOING)? => {
            sample(store, txn, adopt, *kind).await.context(DOING)?
        }
        _ => (Vec::new(), false),
    };
    let trigger: Option<String> = relation.try_get(8).context(DOING)?;
    let warnings = trigger.map(|name| {
        format!(
            "its trigger {name} runs before each row: if it drops or changes receipts, the lanes stand still"
        )
    });
    let found = FoundTable {
        columns: columns.iter().map(|column| column.found.clone()).collect(),
        keys,
        id: adopt.id_kind(by_type),
        no_purge,
        missing_rights,
        sample,
        undated,
        warnings: warnings.into_iter().collect(),
    };
    Ok(Ok(Looked { found, columns }))
}

/// Ids of some rows, and whether one of them has no time.
async fn sample(
    store: &PgStore,
    txn: &mut PgTxn,
    adopt: &Adopt,
    kind: IdKind,
) -> sqlx::Result<(Vec<StoredId>, bool)> {
    let id = identifier(adopt.message_id_column());
    let undated = adopt
        .processed_at_column()
        .map_or_else(|| "false".to_owned(), |column| format!("{} IS NULL", identifier(column)));
    let sql = format!(
        "SELECT {id}::{}, {undated} FROM {} WHERE {id} IS NOT NULL LIMIT {SAMPLE_ROWS}",
        native(kind),
        adopt.quoted('"')
    );
    let rows = store.query(AssertSqlSafe(sql)).persistent(false).fetch_all(&mut **txn).await?;
    let ids = rows.iter().map(|row| stored_id(kind, row)).collect::<sqlx::Result<_>>()?;
    let undated: Vec<bool> = rows.iter().map(|row| row.try_get(1)).collect::<sqlx::Result<_>>()?;
    Ok((ids, undated.contains(&true)))
}

fn column(row: &PgRow) -> sqlx::Result<Column> {
    let (base, modifier): (String, i32) = (row.try_get(4)?, row.try_get(5)?);
    let text = matches!(base_name(&base), "text" | "citext" | "character varying" | "bpchar" | "name");
    let found = FoundColumn {
        name: row.try_get(0)?,
        nullable: row.try_get(1)?,
        filled: row.try_get(2)?,
        generated: row.try_get(6)?,
        text,
        max_chars: max_chars(modifier).filter(|_| text),
    };
    Ok(Column { found, cast: row.try_get(3)?, base, modifier })
}

/// An extension's type is named with its schema where that is not in the search path.
fn base_name(base: &str) -> &str {
    base.rsplit('.').next().unwrap_or_default()
}

/// The modifier of a text type is its length and four.
fn max_chars(modifier: i32) -> Option<u32> {
    u32::try_from(modifier - 4).ok().filter(|most| *most > 0)
}

fn id_kind(column: &Column) -> Result<IdKind, String> {
    let max_chars = max_chars(column.modifier);
    match base_name(&column.base) {
        "text" | "citext" => Ok(IdKind::Text { max_chars: None, padded: false }),
        "character varying" => Ok(IdKind::Text { max_chars, padded: false }),
        "bpchar" => Ok(IdKind::Text { max_chars, padded: true }),
        "uuid" => Ok(IdKind::Uuid),
        "bytea" => Ok(IdKind::Bytes { max_bytes: None }),
        _ => Err(column.cast.clone()),
    }
}

fn no_time(column: &Column) -> Option<String> {
    let is_time = matches!(column.base.as_str(), "timestamp with time zone" | "timestamp without time zone");
    (!is_time)
        .then(|| format!("the column {} is of type {}, which is no time", column.found.name, column.cast))
}

/// UPDATE is for replays, which make the receipt of a dead letter young again.
fn missing_rights(relation: &PgRow, adopt: &Adopt) -> sqlx::Result<Vec<String>> {
    let timed = adopt.processed_at_column().is_some();
    let mut missing = Vec::new();
    for (nth, right, needed) in
        [(2, "SELECT", true), (3, "INSERT", true), (4, "UPDATE", timed), (5, "DELETE", timed)]
    {
        if needed && !relation.try_get::<bool, _>(nth)? {
            missing.push(right.to_owned());
        }
    }
    Ok(missing)
}

//! Our tables, versioned. A step is never changed once it is released; a new one is added.

use oncebox_core::store::{Migration, StoreResult};
use sqlx::{AssertSqlSafe, Executor, Row, SqliteConnection};

use crate::classify::Context;
use crate::store::SqliteStore;

const STEPS: [(&str, &str); 3] = [
    ("tables", include_str!("migrations/001_tables.sql")),
    ("outbox", include_str!("migrations/002_outbox.sql")),
    ("logs", include_str!("migrations/003_logs.sql")),
];

const CREATE_LEDGER: &str = "CREATE TABLE IF NOT EXISTS oncebox_migrations (
        version    INTEGER NOT NULL PRIMARY KEY,
        name       TEXT    NOT NULL,
        applied_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
    )";

/// All steps, with whether the database has them.
pub(crate) async fn migrations(store: &SqliteStore) -> StoreResult<Vec<Migration>> {
    let mut conn = store.reader().await?;
    list(&mut conn).await
}

/// Applies what is missing. The transaction holds the write lock from the start, so whoever comes second waits, looks
/// again and finds nothing left to do.
pub(crate) async fn migrate(store: &SqliteStore) -> StoreResult<Vec<Migration>> {
    let missing = |steps: Vec<Migration>| steps.into_iter().filter(|m| !m.applied).collect::<Vec<_>>();
    if missing(migrations(store).await?).is_empty() {
        return Ok(Vec::new());
    }
    let mut txn = store.writer.begin().await?;
    sqlx::query(CREATE_LEDGER).execute(&mut *txn).await.context("creating oncebox_migrations")?;
    let mut applied = missing(list(&mut txn).await?);
    for step in &mut applied {
        let doing = format!("applying migration {} ({})", step.version, step.name);
        // Our own text, from this crate.
        txn.execute(sqlx::raw_sql(AssertSqlSafe(step.sql.clone()))).await.context(&doing)?;
        step.applied = true;
    }
    txn.commit(None).await?;
    Ok(applied)
}

async fn list(conn: &mut SqliteConnection) -> StoreResult<Vec<Migration>> {
    let applied = applied_versions(conn).await.context("reading oncebox_migrations")?;
    let steps = (1..).zip(STEPS).map(|(version, (name, sql))| Migration {
        version,
        name,
        sql: by_hand(version, name, sql),
        applied: applied.contains(&version),
    });
    Ok(steps.collect())
}

/// The statements of a step, complete with its line in the ledger.
fn by_hand(version: u32, name: &str, statements: &str) -> String {
    let ledger = if version == 1 { format!("{CREATE_LEDGER};\n") } else { String::new() };
    let done = format!("INSERT INTO oncebox_migrations (version, name) VALUES ({version}, '{name}');");
    format!("{ledger}{}\n{done}\n", statements.trim_end())
}

/// The versions a database has, also those of a newer program.
pub(crate) async fn applied_versions(conn: &mut SqliteConnection) -> sqlx::Result<Vec<u32>> {
    let ledger = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'oncebox_migrations'";
    if sqlx::query(ledger).fetch_optional(&mut *conn).await?.is_none() {
        return Ok(Vec::new());
    }
    let rows = sqlx::query("SELECT version FROM oncebox_migrations ORDER BY version").fetch_all(conn).await?;
    rows.iter().map(|row| row.try_get(0)).collect()
}

/// The newest version this program knows.
pub(crate) fn newest_version() -> u32 {
    u32::try_from(STEPS.len()).unwrap_or(u32::MAX)
}

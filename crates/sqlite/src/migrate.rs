//! The schema, step by step.

use oncebox_core::error::Error;
use oncebox_core::store::{Migrate, Migration, StoreResult, refuse_newer};
use sqlx::{AssertSqlSafe, Executor, Row, SqliteConnection};

use crate::classify::Context;
use crate::store::SqliteStore;

/// Version, name and statements, ascending. A step that was released never changes.
const STEPS: [(u32, &str, &str); 8] = [
    (1, "tables", include_str!("../migrations/0001_tables.sql")),
    (2, "outbox", include_str!("../migrations/0002_outbox.sql")),
    (3, "logs", include_str!("../migrations/0003_logs.sql")),
    (4, "delays", include_str!("../migrations/0004_delays.sql")),
    (5, "fingerprints", include_str!("../migrations/0005_fingerprints.sql")),
    (6, "paused", include_str!("../migrations/0006_paused.sql")),
    (7, "operate", include_str!("../migrations/0007_operate.sql")),
    (8, "causes", include_str!("../migrations/0008_causes.sql")),
];

/// The newest version this program knows.
pub(crate) const NEWEST_VERSION: u32 = STEPS[STEPS.len() - 1].0;

const LEDGER: &str = "CREATE TABLE IF NOT EXISTS oncebox_migrations (
        version    INTEGER NOT NULL PRIMARY KEY,
        name       TEXT    NOT NULL,
        applied_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
    )";

impl SqliteStore {
    /// Creates the tables of oncebox, or brings them up to date; safe to run from several processes at once. Returns what
    /// was applied.
    pub async fn migrate(&self) -> Result<Vec<Migration>, Error> {
        Ok(Migrate::migrate(self).await?)
    }
}

impl Migrate for SqliteStore {
    async fn migrations(&self) -> StoreResult<Vec<Migration>> {
        let mut conn = self.reader().await?;
        list(&mut conn).await
    }

    /// The transaction holds the write lock from the start, so whoever comes second waits, looks again and finds nothing
    /// left to do.
    async fn migrate(&self) -> StoreResult<Vec<Migration>> {
        let missing = |steps: Vec<Migration>| steps.into_iter().filter(|m| !m.applied).collect::<Vec<_>>();
        if missing(self.migrations().await?).is_empty() {
            return Ok(Vec::new());
        }
        let doing = "migrating the schema";
        let mut txn = self.begin().await?;
        sqlx::query(LEDGER).execute(&mut *txn).await.context(doing)?;
        let mut applied = missing(list(&mut txn).await?);
        for step in &mut applied {
            let doing = format!("applying migration {} ({})", step.version, step.name);
            // Our own text, from this crate.
            txn.execute(sqlx::raw_sql(AssertSqlSafe(step.script.clone()))).await.context(&doing)?;
            step.applied = true;
        }
        txn.commit_own(doing).await?;
        Ok(applied)
    }
}

async fn list(conn: &mut SqliteConnection) -> StoreResult<Vec<Migration>> {
    let applied = applied_versions(conn).await.context("reading oncebox_migrations")?;
    refuse_newer(applied.iter().copied(), NEWEST_VERSION)?;
    let steps = STEPS.map(|(version, name, sql)| Migration {
        version,
        name,
        script: by_hand(version, name, sql),
        applied: applied.contains(&version),
    });
    Ok(steps.into())
}

/// The statements of a step, complete with its line in the ledger.
fn by_hand(version: u32, name: &str, statements: &str) -> String {
    let ledger = if version == 1 { format!("{LEDGER};\n") } else { String::new() };
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

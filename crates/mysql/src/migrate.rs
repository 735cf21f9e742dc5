//! The schema, step by step.
//!
//! Tables and routines commit by themselves here, so a step that was interrupted is half there. Each statement of a step can
//! be run again, and a step is written down when all of it is done.

use std::collections::HashSet;

use oncebox_core::error::Error;
use oncebox_core::store::{ErrorClass, Migrate, Migration, StoreError, StoreResult, refuse_newer};
use sqlx::{AssertSqlSafe, Row};

use crate::classify::Context;
use crate::store::MysqlStore;
use crate::txn::MysqlTxn;

/// Version, name and statements, ascending. A step that was released never changes.
const STEPS: [(u32, &str, &str); 8] = [
    (1, "tables", include_str!("../migrations/0001_tables.sql")),
    (2, "procedures", include_str!("../migrations/0002_procedures.sql")),
    (3, "outbox", include_str!("../migrations/0003_outbox.sql")),
    (4, "delays", include_str!("../migrations/0004_delays.sql")),
    (5, "fingerprints", include_str!("../migrations/0005_fingerprints.sql")),
    (6, "paused", include_str!("../migrations/0006_paused.sql")),
    (7, "operate", include_str!("../migrations/0007_operate.sql")),
    (8, "causes", include_str!("../migrations/0008_causes.sql")),
];

/// The newest version this program knows.
pub(crate) const NEWEST_VERSION: u32 = STEPS[STEPS.len() - 1].0;

const LEDGER: &str = "CREATE TABLE IF NOT EXISTS oncebox_migrations (
    version INT NOT NULL PRIMARY KEY,
    name VARCHAR(200) NOT NULL,
    applied_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin";

const DOING: &str = "migrating the schema";

impl MysqlStore {
    /// Creates the tables of oncebox, or brings them up to date; safe to run from several processes at once. Returns what
    /// was applied.
    pub async fn migrate(&self) -> Result<Vec<Migration>, Error> {
        Ok(Migrate::migrate(self).await?)
    }
}

impl Migrate for MysqlStore {
    async fn migrations(&self) -> StoreResult<Vec<Migration>> {
        let doing = "reading the schema's version";
        self.patiently(doing, async {
            let mut txn = self.begin_aside().await?;
            let exists: i64 = self
                .query(
                    "SELECT COUNT(*) FROM information_schema.tables \
                     WHERE table_schema = DATABASE() AND table_name = 'oncebox_migrations'",
                )
                .fetch_one(&mut *txn)
                .await
                .and_then(|row| row.try_get(0))
                .context(doing)?;
            let applied = if exists > 0 { applied_versions(self, &mut txn).await? } else { HashSet::new() };
            txn.rollback().await;
            refuse_newer(applied.iter().copied(), NEWEST_VERSION)?;
            Ok(STEPS.iter().map(|step| migration(step, applied.contains(&step.0))).collect())
        })
        .await
    }

    async fn migrate(&self) -> StoreResult<Vec<Migration>> {
        // A user who may not create tables can still find that there is nothing to do.
        let missing = self.migrations().await?.iter().any(|step| !step.applied);
        if missing { apply_missing(self).await } else { Ok(Vec::new()) }
    }
}

/// One migrating process at a time, per database. The lock belongs to the connection, which is closed at the end. Routines keep
/// the mode that they were made in, so it is one that reads them as they are written; and making tables may take long.
const LOCK: &str = "SET SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION', lock_wait_timeout = 60 \
     /*M!, max_statement_time = 0 */; \
     SELECT GET_LOCK(CONCAT('oncebox.migrate.', LEFT(SHA2(DATABASE(), 256), 32)), 60)";

async fn apply_missing(store: &MysqlStore) -> StoreResult<Vec<Migration>> {
    // Dropped at the end, and so closed: nobody inherits the lock or the mode.
    let mut txn = store.begin_aside().await?;
    let locked: Option<i64> = sqlx::raw_sql(LOCK)
        .fetch_one(&mut *txn)
        .await
        .and_then(|row| row.try_get(0))
        .context_of_ddl(DOING)?;
    if locked != Some(1) {
        return Err(StoreError::new(
            ErrorClass::Transient,
            DOING,
            "another process has been at it for a minute: look what it waits for, and try again",
        ));
    }
    sqlx::raw_sql(LEDGER).execute(&mut *txn).await.context_of_ddl(DOING)?;
    let applied = applied_versions(store, &mut txn).await?;
    let mut done = Vec::new();
    for step in STEPS.iter().filter(|step| !applied.contains(&step.0)) {
        let step = migration(step, true);
        for statement in statements(&step.script) {
            // Our own text, from this crate.
            let statement = sqlx::raw_sql(AssertSqlSafe(statement));
            statement.execute(&mut *txn).await.context_of_ddl(DOING)?;
        }
        sqlx::raw_sql("COMMIT").execute(&mut *txn).await.context_of_ddl(DOING)?;
        done.push(step);
    }
    Ok(done)
}

/// The statements of a script as the command-line client reads it: each ends at the end of a line, with a semicolon or with
/// whatever DELIMITER says.
fn statements(script: &str) -> Vec<String> {
    let (mut statements, mut current, mut delimiter) = (Vec::new(), String::new(), ";");
    for line in script.lines().filter(|line| !line.trim().is_empty() && !line.starts_with("--")) {
        if let Some(next) = line.strip_prefix("DELIMITER ") {
            delimiter = next.trim();
        } else if let Some(last) = line.trim_end().strip_suffix(delimiter) {
            current.push_str(last);
            statements.push(std::mem::take(&mut current));
        } else {
            current.push_str(line);
            current.push('\n');
        }
    }
    statements
}

async fn applied_versions(store: &MysqlStore, txn: &mut MysqlTxn) -> StoreResult<HashSet<u32>> {
    let rows = store
        .query("SELECT version FROM oncebox_migrations")
        .fetch_all(&mut **txn)
        .await
        .context("reading the schema's version")?;
    rows.iter()
        .map(|row| row.try_get::<i32, _>(0).map(i32::cast_unsigned))
        .collect::<sqlx::Result<_>>()
        .context("reading the schema's version")
}

/// The highest version this database has; 0 if it has none.
pub(crate) async fn schema_version(store: &MysqlStore) -> StoreResult<u32> {
    let known = store.migrations().await?;
    Ok(known.iter().filter(|step| step.applied).map(|step| step.version).max().unwrap_or(0))
}

fn migration(step: &(u32, &'static str, &'static str), applied: bool) -> Migration {
    let (version, name, statements) = *step;
    let ledger = if version == 1 { format!("{LEDGER};\n") } else { String::new() };
    let script = format!(
        "{ledger}{}\nINSERT INTO oncebox_migrations (version, name) VALUES ({version}, '{name}');\n",
        statements.trim_end()
    );
    Migration { version, name, script, applied }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_cut_where_the_client_would_cut_it() {
        let script = "-- why\nCREATE TABLE t (\n    a INT\n);\nDELIMITER //\nCREATE PROCEDURE p()\nBEGIN\n    DO 0;\nEND //\n\
             DELIMITER ;\nDO 1;\n";
        assert_eq!(
            statements(script),
            ["CREATE TABLE t (\n    a INT\n)", "CREATE PROCEDURE p()\nBEGIN\n    DO 0;\nEND ", "DO 1"]
        );
    }

    #[test]
    fn no_step_ends_in_the_middle() {
        for (version, name, script) in STEPS {
            let last = script.trim_end().lines().last().unwrap_or_default();
            assert!(last.ends_with(';'), "{version} {name}: {last}");
        }
    }
}

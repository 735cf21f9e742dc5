//! The schema, step by step.

use std::collections::HashSet;

use oncebox_core::error::Error;
use oncebox_core::store::{Migrate, Migration, StoreResult, refuse_newer};
use sqlx::{AssertSqlSafe, Row};

use crate::classify::Context;
use crate::store::PgStore;
use crate::txn::PgTxn;

/// Version, name and statements, ascending. A step that was released never changes.
const STEPS: [(u32, &str, &str); 9] = [
    (1, "tables", include_str!("../migrations/0001_tables.sql")),
    (2, "functions", include_str!("../migrations/0002_functions.sql")),
    (3, "outbox", include_str!("../migrations/0003_outbox.sql")),
    (4, "logs", include_str!("../migrations/0004_logs.sql")),
    (5, "delays", include_str!("../migrations/0005_delays.sql")),
    (6, "fingerprints", include_str!("../migrations/0006_fingerprints.sql")),
    (7, "paused", include_str!("../migrations/0007_paused.sql")),
    (8, "operate", include_str!("../migrations/0008_operate.sql")),
    (9, "causes", include_str!("../migrations/0009_causes.sql")),
];

/// The newest version this program knows.
pub(crate) const NEWEST_VERSION: u32 = STEPS[STEPS.len() - 1].0;

const LEDGER: &str = "CREATE TABLE IF NOT EXISTS oncebox_migrations (
    version integer PRIMARY KEY,
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)";

impl PgStore {
    /// Creates the tables of oncebox, or brings them up to date; safe to run from several processes at once. Returns what
    /// was applied.
    pub async fn migrate(&self) -> Result<Vec<Migration>, Error> {
        Ok(Migrate::migrate(self).await?)
    }
}

impl Migrate for PgStore {
    async fn migrations(&self) -> StoreResult<Vec<Migration>> {
        let doing = "reading the schema's version";
        self.patiently(doing, async {
            let mut txn = self.begin_aside().await?;
            let exists: bool = self
                .query("SELECT to_regclass('oncebox_migrations') IS NOT NULL")
                .fetch_one(&mut *txn)
                .await
                .and_then(|row| row.try_get(0))
                .context(doing)?;
            let applied = if exists { applied_versions(self, &mut txn).await? } else { HashSet::new() };
            txn.rollback().await;
            refuse_newer(applied.iter().copied(), NEWEST_VERSION)?;
            Ok(STEPS.iter().map(|step| migration(step, applied.contains(&step.0))).collect())
        })
        .await
    }

    async fn migrate(&self) -> StoreResult<Vec<Migration>> {
        // A role that may not create tables can still find that there is nothing to do.
        let missing = self.migrations().await?.iter().any(|step| !step.applied);
        let done = if missing { apply_missing(self).await? } else { Vec::new() };
        if self.by_day() {
            self.partition_receipts().await?;
        }
        Ok(done)
    }
}

/// One migrating process at a time, per schema. It is taken before anything is looked at.
const LOCK: &str = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = '120s'; \
     SELECT pg_advisory_xact_lock(1868391012, hashtext(current_schema()::text))";

async fn apply_missing(store: &PgStore) -> StoreResult<Vec<Migration>> {
    let doing = "migrating the schema";
    let mut txn = store.begin_aside().await?;
    for prepare in [LOCK, LEDGER] {
        sqlx::raw_sql(prepare).execute(&mut *txn).await.context_of_ddl(doing)?;
    }
    let applied = applied_versions(store, &mut txn).await?;
    let mut done = Vec::new();
    for step in STEPS.iter().filter(|step| !applied.contains(&step.0)) {
        let step = migration(step, true);
        // Our own text, from this crate.
        let statements = sqlx::raw_sql(AssertSqlSafe(step.script.clone()));
        statements.execute(&mut *txn).await.context_of_ddl(doing)?;
        done.push(step);
    }
    txn.commit_ddl(doing).await?;
    Ok(done)
}

async fn applied_versions(store: &PgStore, txn: &mut PgTxn) -> StoreResult<HashSet<u32>> {
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
pub(crate) async fn schema_version(store: &PgStore) -> StoreResult<u32> {
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

//! Receipts in partitions by day.
//!
//! The partition of a receipt comes from its key, and the key from the message: an id that is a UUIDv7 puts its own time
//! into the leading bits. So two copies of a message always meet in the same partition, whenever they come. All other keys
//! have the top bit set and share one partition; times outside of the known days fall into the default partition.

mod convert;
mod drop;

pub(crate) use drop::{days_before, drop_day};

use oncebox_core::store::StoreResult;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Row};

use crate::classify::Context;
use crate::store::PgStore;
use crate::txn::PgTxn;

/// What [`PgStore::partition_receipts`] did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Partitioned {
    /// Whether the table was a plain one until now.
    pub converted: bool,
    /// Day partitions created.
    pub created: u64,
    /// Receipts moved from the plain table or from the default partition.
    pub moved: u64,
}

/// One process at a time changes the schema. Waiting for that may take a while; waiting for a table may not, because
/// everybody else waits behind us.
const LOCK: &str = "SET LOCAL lock_timeout = '120s'; \
     SELECT pg_advisory_xact_lock(1868391012, hashtext(current_schema()::text)); SET LOCAL lock_timeout = '1s'";

/// What the table of receipts is: 'r' plain, 'p' partitioned.
const KIND: &str = "SELECT relkind::text FROM pg_class WHERE oid = to_regclass('oncebox_inbox')";

/// Partitions cannot inherit these from their parent.
const STORAGE: &str = "autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1, \
     autovacuum_analyze_scale_factor = 0.05";

impl PgStore {
    /// Makes sure that receipts are kept in partitions by day, from yesterday to a week ahead. Turns a plain table into a
    /// partitioned one the first time. Purge calls it when the store was built with
    /// [`partition_receipts`](crate::PgStoreBuilder::partition_receipts), so the days never run out.
    ///
    /// # Errors
    /// If the plain table holds too many receipts to be moved while consumers wait; the error says what to do.
    pub async fn partition_receipts(&self) -> StoreResult<Partitioned> {
        let mut done = convert::convert_once(self).await?;
        while let Some(moved) = self.patiently("adding a day of receipts", add_missing_day(self)).await? {
            done.created += 1;
            done.moved += moved;
        }
        Ok(done)
    }
}

/// Adds the days that are missing, if the receipts are in partitions or should be.
pub(crate) async fn keep_days_ahead(store: &PgStore) -> StoreResult<()> {
    let doing = "looking at the receipts";
    let mut txn = store.begin_aside().await?;
    let kind = store.query(KIND).fetch_optional(&mut *txn).await.context(doing)?;
    txn.rollback().await;
    let kind: Option<String> = kind.map(|row| row.try_get(0)).transpose().context(doing)?;
    if store.by_day() || kind.as_deref() == Some("p") {
        store.partition_receipts().await?;
    }
    Ok(())
}

/// The days around today, by the server's clock and in UTC, that have no partition yet, and the first keys of that day and
/// the next.
const MISSING_DAYS: &str = "SELECT to_char(d, 'YYYYMMDD'), \
         lpad(to_hex((extract(epoch FROM d) * 1000)::bigint), 12, '0') || repeat('0', 20), \
         lpad(to_hex((extract(epoch FROM d) * 1000)::bigint + 86400000), 12, '0') || repeat('0', 20) \
     FROM generate_series(date_trunc('day', now() AT TIME ZONE 'UTC') - interval '1 day', \
         date_trunc('day', now() AT TIME ZONE 'UTC') + interval '7 days', interval '1 day') AS g(d) \
     WHERE to_regclass('oncebox_inbox_' || to_char(d, 'YYYYMMDD')) IS NULL ORDER BY d";

/// Adds one day that is missing; returns how many receipts it took over from the default partition.
async fn add_missing_day(store: &PgStore) -> StoreResult<Option<u64>> {
    let doing = "adding a day of receipts";
    let mut txn = store.begin_aside().await?;
    sqlx::raw_sql(LOCK).execute(&mut *txn).await.context_of_ddl(doing)?;
    let missing = store.query(MISSING_DAYS).fetch_optional(&mut *txn).await.context_of_ddl(doing)?;
    let Some(day) = missing else {
        txn.rollback().await;
        return Ok(None);
    };
    let moved = create_day(&mut txn, &day).await.context_of_ddl(doing)?;
    txn.commit_ddl(doing).await?;
    Ok(Some(moved))
}

/// The default partition is locked first. It is small, so that takes no time; but nobody can put a receipt of that day
/// there between the moving and the attaching.
async fn create_day(txn: &mut PgTxn, day: &PgRow) -> sqlx::Result<u64> {
    let name: String = day.try_get(0)?;
    let (from, to): (String, String) = (day.try_get(1)?, day.try_get(2)?);
    let create = format!(
        "LOCK TABLE oncebox_inbox_default IN ACCESS EXCLUSIVE MODE; \
         CREATE TABLE oncebox_inbox_{name} (LIKE oncebox_inbox INCLUDING DEFAULTS, PRIMARY KEY (key)) WITH ({STORAGE})"
    );
    sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut **txn).await?;
    let moved = format!(
        "WITH moved AS (DELETE FROM oncebox_inbox_default WHERE key >= '{from}' AND key < '{to}' RETURNING *) \
         INSERT INTO oncebox_inbox_{name} SELECT * FROM moved"
    );
    let moved = sqlx::raw_sql(AssertSqlSafe(moved)).execute(&mut **txn).await?.rows_affected();
    let attach = format!(
        "ALTER TABLE oncebox_inbox ATTACH PARTITION oncebox_inbox_{name} FOR VALUES FROM ('{from}') TO ('{to}')"
    );
    sqlx::raw_sql(AssertSqlSafe(attach)).execute(&mut **txn).await?;
    Ok(moved)
}

//! Transactions that hold back vacuum, whoever has opened them.

use std::time::Duration;

use oncebox_core::store::StoreResult;
use sqlx::Row;

use crate::classify::Context;
use crate::store::PgStore;

/// At most so many are named.
const MAX_NAMED: i64 = 5;

/// Sessions with a snapshot or an id of a transaction, and prepared transactions. Vacuum itself holds nobody back. Of other roles a role without `pg_read_all_stats` sees no times, and so says nothing of them.
const OLD: &str = "SELECT what, seconds FROM ( \
       SELECT format('session %s of %s%s, %s', pid, coalesce(usename::text, '?'), \
                     CASE WHEN application_name = '' THEN '' ELSE format(' (%s)', application_name) END, \
                     coalesce(state, 'active')) AS what, \
              extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds \
         FROM pg_stat_activity \
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type <> 'autovacuum worker' \
          AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) \
       UNION ALL \
       SELECT format('prepared transaction %s of %s', gid, owner), \
              extract(epoch FROM clock_timestamp() - prepared)::float8 \
         FROM pg_prepared_xacts WHERE database = current_database()) AS open \
     WHERE seconds > $1 ORDER BY seconds DESC LIMIT $2";

/// Each with how long it has been open.
pub(super) async fn old_transactions(
    store: &PgStore,
    older_than: Duration,
) -> StoreResult<Vec<(String, Duration)>> {
    let doing = "looking for old transactions";
    let mut txn = store.begin_aside().await?;
    let rows = store
        .query(OLD)
        .bind(older_than.as_secs_f64())
        .bind(MAX_NAMED)
        .fetch_all(&mut *txn)
        .await
        .context(doing)?;
    txn.rollback().await;
    rows.iter()
        .map(|row| Ok((row.try_get(0)?, Duration::from_secs_f64(row.try_get::<f64, _>(1)?.max(0.0)))))
        .collect::<sqlx::Result<_>>()
        .context(doing)
}

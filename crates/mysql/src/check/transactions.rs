//! Transactions that hold back InnoDB's purge, whoever has opened them.

use std::time::Duration;

use oncebox_core::store::StoreResult;
use sqlx::Row;

use crate::classify::{Context, number_of};
use crate::store::MysqlStore;

/// At most so many are named.
const MAX_NAMED: i64 = 5;
/// The user may not see transactions of others: it lacks PROCESS.
const DENIED: u16 = 1227;

const OLD: &str = "SELECT CAST(trx_mysql_thread_id AS UNSIGNED), \
            CAST(TIMESTAMPDIFF(SECOND, trx_started, NOW()) AS SIGNED) AS seconds \
       FROM information_schema.innodb_trx \
      WHERE trx_mysql_thread_id <> CONNECTION_ID() AND trx_started < NOW() - INTERVAL ? SECOND \
      ORDER BY trx_started LIMIT ?";

/// Each with how long it has been open. They count for all databases of the server.
pub(super) async fn old_transactions(
    store: &MysqlStore,
    older_than: Duration,
) -> StoreResult<Vec<(String, Duration)>> {
    let doing = "looking for old transactions";
    let mut txn = store.begin_aside().await?;
    let found = store
        .query(OLD)
        .bind(i64::try_from(older_than.as_secs()).unwrap_or(i64::MAX))
        .bind(MAX_NAMED)
        .fetch_all(&mut *txn)
        .await;
    let rows = match found {
        Err(error) if number_of(&error) == Some(DENIED) => Vec::new(),
        other => other.context(doing)?,
    };
    txn.rollback().await;
    rows.iter()
        .map(|row| {
            let (connection, seconds): (u64, i64) = (row.try_get(0)?, row.try_get(1)?);
            Ok((format!("connection {connection}"), Duration::from_secs(seconds.max(0).unsigned_abs())))
        })
        .collect::<sqlx::Result<_>>()
        .context(doing)
}

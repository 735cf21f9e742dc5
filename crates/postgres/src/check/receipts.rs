//! Whether the receipts are kept as they should be.

use oncebox_core::store::{Finding, StoreResult};
use sqlx::Row;

use crate::classify::Context;
use crate::store::PgStore;

/// Purge adds a week; fewer days than this say that it does not run.
const FEWEST_DAYS: i64 = 3;

const DAYS_AHEAD: &str = "SELECT count(*) FILTER (WHERE p.relname ~ '^oncebox_inbox_[0-9]{8}$' \
         AND right(p.relname, 8) > to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')) \
     FROM pg_class c LEFT JOIN pg_inherits i ON i.inhparent = c.oid LEFT JOIN pg_class p ON p.oid = i.inhrelid \
     WHERE c.oid = to_regclass('oncebox_inbox') AND c.relkind = 'p' GROUP BY c.oid";

/// The index of the receipts, or the largest of them, against the memory it should fit into.
const INDEX: &str = "SELECT max(pg_relation_size(x.indexrelid)), pg_size_bytes(current_setting('shared_buffers')) \
     FROM pg_index x WHERE x.indrelid = to_regclass('oncebox_inbox') \
         OR x.indrelid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = to_regclass('oncebox_inbox'))";

/// Ids without a time in them fall anywhere in the index.
pub(super) async fn index(store: &PgStore) -> StoreResult<Option<Finding>> {
    let doing = "checking the receipts";
    let mut txn = store.begin_aside().await?;
    let row = store.query(INDEX).fetch_one(&mut *txn).await.context(doing)?;
    txn.rollback().await;
    let index: Option<i64> = row.try_get(0).context(doing)?;
    let memory: i64 = row.try_get(1).context(doing)?;
    let mib = |bytes: i64| bytes / (1024 * 1024);
    Ok(index.filter(|index| *index > memory).map(|index| {
        Finding::warning(
            "receipt index",
            format!(
                "{} MiB, more than shared_buffers ({} MiB): messages whose ids are not UUIDv7 slow down as it \
                 grows. Raise shared_buffers and max_wal_size, use UUIDv7 ids, or keep receipts for less long",
                mib(index),
                mib(memory),
            ),
        )
    }))
}

/// Nothing if the receipts are in one table.
pub(super) async fn partitions(store: &PgStore) -> StoreResult<Vec<Finding>> {
    let doing = "checking the partitions";
    let mut txn = store.begin_aside().await?;
    let ahead = store.query(DAYS_AHEAD).fetch_optional(&mut *txn).await.context(doing)?;
    let Some(ahead) = ahead else {
        txn.rollback().await;
        return Ok(Vec::new());
    };
    let ahead: i64 = ahead.try_get(0).context(doing)?;
    let outside: bool = store
        .query("SELECT EXISTS (SELECT FROM oncebox_inbox_default)")
        .fetch_one(&mut *txn)
        .await
        .and_then(|row| row.try_get(0))
        .context(doing)?;
    txn.rollback().await;
    let mut findings = vec![if ahead < FEWEST_DAYS {
        Finding::warning(
            "receipt partitions",
            format!("only {ahead} days ahead: does purge run? It adds the next days"),
        )
    } else {
        Finding::ok("receipt partitions", format!("{ahead} days ahead"))
    }];
    if outside {
        findings.push(Finding::warning(
            "receipt partitions",
            "some receipts lie outside of the known days, because the time in their ids is long past or far ahead; \
             they are purged one by one. Look at the clocks of the producers if there are many",
        ));
    }
    Ok(findings)
}

//! Dead letters whose errors read alike.

use oncebox_core::store::{DeadGroup, MAX_KEYED_LETTERS, StoreResult, error_group, group_prefix};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::classify::Context;
use crate::store::PgStore;

const DOING: &str = "grouping dead letters";

/// A list that takes longer is not worth its load. Statistics may not know of many new letters; the index does.
const LIMIT: &str = "SET LOCAL statement_timeout = '5s'; SET LOCAL enable_seqscan = off; SET LOCAL jit = off";

/// From one group to the next along the index: a million letters of one group cost one step, and what is counted of it. A group is asked
/// for as a range and in the order of the index: with `=` the planner may walk all letters in the order of their numbers, and look for
/// those of the group.
const GROUPS: &str = "WITH RECURSIVE walk AS ( \
         (SELECT error_group FROM oncebox_dead WHERE error_group >= $1 AND error_group <= $2 ORDER BY error_group LIMIT 1) \
         UNION ALL \
         SELECT (SELECT d.error_group FROM oncebox_dead d WHERE d.error_group > w.error_group AND d.error_group <= $2 \
             ORDER BY d.error_group LIMIT 1) \
         FROM walk w WHERE w.error_group IS NOT NULL), \
     named AS (SELECT error_group FROM walk WHERE error_group IS NOT NULL LIMIT $3) \
     SELECT g.error_group, newest.number, newest.consumer, newest.error, newest.failed_at_ms, oldest.failed_at_ms, \
         counted.letters, keyed.keys \
     FROM named g \
     CROSS JOIN LATERAL (SELECT number, consumer, left(error, 256) AS error, \
             (extract(epoch FROM failed_at) * 1000)::bigint AS failed_at_ms \
         FROM oncebox_dead d WHERE d.error_group >= g.error_group AND d.error_group <= g.error_group \
         ORDER BY error_group DESC, number DESC LIMIT 1) AS newest \
     CROSS JOIN LATERAL (SELECT (extract(epoch FROM failed_at) * 1000)::bigint AS failed_at_ms \
         FROM oncebox_dead d WHERE d.error_group >= g.error_group AND d.error_group <= g.error_group \
         ORDER BY error_group, number LIMIT 1) AS oldest \
     CROSS JOIN LATERAL (SELECT count(*) AS letters FROM (SELECT FROM oncebox_dead d \
             WHERE d.error_group >= g.error_group AND d.error_group <= g.error_group ORDER BY error_group, number LIMIT $4) AS capped) AS counted \
     CROSS JOIN LATERAL (SELECT count(DISTINCT sha256(convert_to(topic || '/' || partition || '/', 'UTF8') || key)) \
             FILTER (WHERE key IS NOT NULL) AS keys \
         FROM (SELECT topic, partition, key FROM oncebox_dead d \
             WHERE d.error_group >= g.error_group AND d.error_group <= g.error_group ORDER BY error_group, number LIMIT $5) AS capped) AS keyed";

/// The groups of a consumer, or of all.
pub(super) async fn dead_groups(
    store: &PgStore,
    consumer: Option<&str>,
    limit: u32,
    count_cap: u64,
) -> StoreResult<Vec<DeadGroup>> {
    let first = consumer.map(group_prefix).unwrap_or_default();
    let mut txn = store.begin_aside().await?;
    sqlx::raw_sql(LIMIT).execute(&mut *txn).await.context(DOING)?;
    let rows = store
        .query(GROUPS)
        .bind(&first)
        .bind(format!("{first}~"))
        .bind(i64::from(limit))
        .bind(i64::try_from(count_cap).unwrap_or(i64::MAX))
        .bind(i64::try_from(count_cap.min(MAX_KEYED_LETTERS)).unwrap_or(i64::MAX))
        .fetch_all(&mut *txn)
        .await
        .context(DOING)?;
    txn.rollback().await;
    let mut groups: Vec<DeadGroup> = rows.iter().map(group).collect::<sqlx::Result<_>>().context(DOING)?;
    // Two consumers may share the beginning of their groups.
    groups.retain(|group| consumer.is_none_or(|consumer| consumer == group.consumer));
    Ok(groups)
}

fn group(row: &PgRow) -> sqlx::Result<DeadGroup> {
    Ok(DeadGroup {
        group: row.try_get(0)?,
        newest: row.try_get(1)?,
        consumer: row.try_get(2)?,
        error: row.try_get(3)?,
        last_ms: row.try_get(4)?,
        first_ms: row.try_get(5)?,
        letters: row.try_get::<i64, _>(6)?.unsigned_abs(),
        keys: row.try_get::<i64, _>(7)?.unsigned_abs(),
    })
}

/// One that is just being replayed is left for the next time.
const WITHOUT_GROUP: &str = "SELECT number, consumer, left(error, 256) FROM oncebox_dead WHERE error_group IS NULL \
     ORDER BY number LIMIT $1 FOR UPDATE SKIP LOCKED";

const NAME: &str = "UPDATE oncebox_dead d SET error_group = g.name FROM unnest($1::bigint[], $2::text[]) AS g(number, name) \
     WHERE d.number = g.number";

/// Gives letters their group that have none.
pub(super) async fn group_letters(store: &PgStore, limit: u32) -> StoreResult<u64> {
    let mut txn = store.begin_aside().await?;
    let found =
        store.query(WITHOUT_GROUP).bind(i64::from(limit)).fetch_all(&mut *txn).await.context(DOING)?;
    if found.is_empty() {
        txn.rollback().await;
        return Ok(0);
    }
    let named = |row: &PgRow| -> sqlx::Result<(i64, String)> {
        let (consumer, error): (String, String) = (row.try_get(1)?, row.try_get(2)?);
        Ok((row.try_get(0)?, error_group(&consumer, &error)))
    };
    let (numbers, names): (Vec<i64>, Vec<String>) =
        found.iter().map(named).collect::<sqlx::Result<Vec<_>>>().context(DOING)?.into_iter().unzip();
    let done = store.query(NAME).bind(numbers).bind(names).execute(&mut *txn).await.context(DOING)?;
    txn.commit_own(DOING).await?;
    Ok(done.rows_affected())
}

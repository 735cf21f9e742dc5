//! Dead letters whose errors read alike.

use oncebox_core::store::{DeadGroup, MAX_KEYED_LETTERS, StoreResult, error_group, group_prefix};
use sqlx::mysql::MySqlRow;
use sqlx::{MySqlConnection, Row};

use crate::classify::Context;
use crate::store::MysqlStore;
use crate::time::in_ms;

const DOING: &str = "grouping dead letters";

const NEXT: &str = "SELECT /*+ MAX_EXECUTION_TIME(5000) */ MIN(error_group) FROM oncebox_dead \
     WHERE error_group > ? AND error_group <= ?";

/// Without a word about the index, the optimizer may walk all letters in the order of their numbers.
const NEWEST: &str = concat!(
    "SELECT /*+ MAX_EXECUTION_TIME(5000) */ number, consumer, LEFT(error, 256) AS error, ",
    in_ms!("failed_at"),
    " AS failed_at_ms FROM oncebox_dead FORCE INDEX (oncebox_dead_by_group) WHERE error_group = ? ORDER BY number DESC LIMIT 1"
);

const OLDEST: &str = concat!(
    "SELECT /*+ MAX_EXECUTION_TIME(5000) */ ",
    in_ms!("failed_at"),
    " AS failed_at_ms FROM oncebox_dead FORCE INDEX (oncebox_dead_by_group) WHERE error_group = ? ORDER BY number LIMIT 1"
);

const COUNTED: &str = "SELECT /*+ MAX_EXECUTION_TIME(5000) */ COUNT(*) \
     FROM (SELECT 1 FROM oncebox_dead FORCE INDEX (oncebox_dead_by_group) WHERE error_group = ? LIMIT ?) AS counted";

/// A letter without a key has no hash, and is not counted.
const KEYS: &str = "SELECT /*+ MAX_EXECUTION_TIME(5000) */ COUNT(DISTINCT topic, `partition`, key_hash) \
     FROM (SELECT topic, `partition`, key_hash FROM oncebox_dead FORCE INDEX (oncebox_dead_by_group) WHERE error_group = ? ORDER BY number LIMIT ?) AS counted";

/// The groups of a consumer, or of all: from one to the next along the index.
pub(super) async fn dead_groups(
    store: &MysqlStore,
    consumer: Option<&str>,
    limit: u32,
    count_cap: u64,
) -> StoreResult<Vec<DeadGroup>> {
    let mut last = consumer.map(group_prefix).unwrap_or_default();
    let end = format!("{last}~");
    let bound = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let caps = (bound(count_cap), bound(count_cap.min(MAX_KEYED_LETTERS)));
    let mut txn = store.begin_aside().await?;
    let mut groups = Vec::new();
    for _ in 0..limit {
        let next = store.query(NEXT).bind(&last).bind(&end).fetch_one(&mut *txn).await.context(DOING)?;
        let Some(name) = next.try_get::<Option<String>, _>(0).context(DOING)? else { break };
        // Somebody may have taken the last letter of it.
        if let Some(group) = group(store, &mut txn, &name, caps).await.context(DOING)?
            // Two consumers may share the beginning of their groups.
            && consumer.is_none_or(|consumer| consumer == group.consumer)
        {
            groups.push(group);
        }
        last = name;
    }
    txn.rollback().await;
    Ok(groups)
}

async fn group(
    store: &MysqlStore,
    conn: &mut MySqlConnection,
    name: &str,
    (cap, keyed): (i64, i64),
) -> sqlx::Result<Option<DeadGroup>> {
    let newest = store.query(NEWEST).bind(name).fetch_optional(&mut *conn).await?;
    let oldest = store.query(OLDEST).bind(name).fetch_optional(&mut *conn).await?;
    let counted = store.query(COUNTED).bind(name).bind(cap).fetch_one(&mut *conn).await?;
    let keys = store.query(KEYS).bind(name).bind(keyed).fetch_one(conn).await?;
    let (Some(newest), Some(oldest)) = (newest, oldest) else { return Ok(None) };
    Ok(Some(DeadGroup {
        group: name.to_owned(),
        newest: newest.try_get("number")?,
        consumer: newest.try_get("consumer")?,
        error: newest.try_get("error")?,
        last_ms: newest.try_get("failed_at_ms")?,
        first_ms: oldest.try_get("failed_at_ms")?,
        letters: counted.try_get::<i64, _>(0)?.unsigned_abs(),
        keys: keys.try_get::<i64, _>(0)?.unsigned_abs(),
    }))
}

const WITHOUT_GROUP: &str = "SELECT number, consumer, LEFT(error, 256) AS error FROM oncebox_dead \
     WHERE error_group IS NULL ORDER BY number LIMIT ?";

const NAME: &str = "UPDATE oncebox_dead SET error_group = ? WHERE number = ? AND error_group IS NULL";

/// Gives letters their group that have none.
pub(super) async fn group_letters(store: &MysqlStore, limit: u32) -> StoreResult<u64> {
    let mut txn = store.begin_aside().await?;
    let found = store.query(WITHOUT_GROUP).bind(limit).fetch_all(&mut *txn).await.context(DOING)?;
    let mut named = 0;
    for row in &found {
        let (number, consumer, error) = without_group(row).context(DOING)?;
        let name = store.query(NAME).bind(error_group(&consumer, &error)).bind(number);
        named += name.execute(&mut *txn).await.context(DOING)?.rows_affected();
    }
    txn.commit_own(DOING).await?;
    Ok(named)
}

fn without_group(row: &MySqlRow) -> sqlx::Result<(i64, String, String)> {
    Ok((row.try_get("number")?, row.try_get("consumer")?, row.try_get("error")?))
}

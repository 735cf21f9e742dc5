//! Dead letters whose errors read alike.

use oncebox_core::store::{DeadGroup, MAX_KEYED_LETTERS, StoreResult, error_group, group_prefix};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::classify::Context;
use crate::store::SqliteStore;
use crate::time::millis;

const DOING: &str = "grouping dead letters";

/// The next group behind `?1`, not behind `?2`: its newest letter, its oldest, and how many there are, up to `?3`, and how many keys
/// the oldest `?4` have.
const NEXT: &str = concat!(
    "SELECT n.error_group, n.number, n.consumer, substr(n.error, 1, 256), ",
    millis!("n.failed_at"),
    ", (SELECT ",
    millis!("o.failed_at"),
    "   FROM oncebox_dead o WHERE o.error_group = n.error_group ORDER BY o.number LIMIT 1),
        (SELECT count(*) FROM (SELECT 1 FROM oncebox_dead c WHERE c.error_group = n.error_group LIMIT ?3)),
        (SELECT count(*) FROM (SELECT DISTINCT topic, partition, key FROM (
            SELECT topic, partition, key FROM oncebox_dead c WHERE c.error_group = n.error_group ORDER BY c.number LIMIT ?4)
            WHERE key IS NOT NULL))
     FROM oncebox_dead n
     WHERE n.error_group = (SELECT min(error_group) FROM oncebox_dead WHERE error_group > ?1 AND error_group <= ?2)
     ORDER BY n.number DESC LIMIT 1"
);

/// The groups of a consumer, or of all: from one to the next along the index.
pub(super) async fn dead_groups(
    store: &SqliteStore,
    consumer: Option<&str>,
    limit: u32,
    count_cap: u64,
) -> StoreResult<Vec<DeadGroup>> {
    let mut last = consumer.map(group_prefix).unwrap_or_default();
    let end = format!("{last}~");
    let bound = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let (cap, keyed) = (bound(count_cap), bound(count_cap.min(MAX_KEYED_LETTERS)));
    let mut conn = store.reader().await?;
    let mut groups = Vec::new();
    for _ in 0..limit {
        let next =
            sqlx::query(NEXT).bind(&last).bind(&end).bind(cap).bind(keyed).fetch_optional(&mut *conn).await;
        let Some(row) = next.context(DOING)? else { break };
        let group = group(&row).context(DOING)?;
        last.clone_from(&group.group);
        // Two consumers may share the beginning of their groups.
        if consumer.is_none_or(|consumer| consumer == group.consumer) {
            groups.push(group);
        }
    }
    Ok(groups)
}

fn group(row: &SqliteRow) -> sqlx::Result<DeadGroup> {
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

const WITHOUT_GROUP: &str =
    "SELECT number, consumer, substr(error, 1, 256) FROM oncebox_dead WHERE error_group IS NULL
    ORDER BY number LIMIT ?1";

const NAME: &str = "UPDATE oncebox_dead SET error_group = ?2 WHERE number = ?1";

/// Gives letters their group that have none.
pub(super) async fn group_letters(store: &SqliteStore, limit: u32) -> StoreResult<u64> {
    // Most of the time there are none, and then nobody has to wait for it.
    let mut conn = store.reader().await?;
    let found = sqlx::query(WITHOUT_GROUP).bind(limit).fetch_all(&mut *conn).await.context(DOING)?;
    drop(conn);
    if found.is_empty() {
        return Ok(0);
    }
    let mut txn = store.begin().await?;
    let mut named = 0;
    for row in &found {
        let (number, consumer, error) = without_group(row).context(DOING)?;
        let name = sqlx::query(NAME).bind(number).bind(error_group(&consumer, &error));
        named += name.execute(&mut *txn).await.context(DOING)?.rows_affected();
    }
    txn.commit_own(DOING).await?;
    Ok(named)
}

fn without_group(row: &SqliteRow) -> sqlx::Result<(i64, String, String)> {
    Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))
}

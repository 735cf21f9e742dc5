//! Retention: removes receipts that are older than their consumer's horizon, a small piece at a time.

use std::time::{Duration, Instant};

use oncebox_core::{ConsumerName, Purged, Retention, StoreResult};
use sqlx::{Row, SqliteConnection};

use crate::classify::Context;
use crate::store::SqliteStore;
use crate::time::{millis, now};
use crate::txn::SqliteTxn;

const DOING: &str = "purging receipts";

/// Receipts that one step looks at. A step holds the write lock for a few milliseconds.
const STEP: i64 = 2000;

/// After a step that deleted, the pass rests this many times as long as the step took: the writer is there for the lanes.
const REST: u32 = 9;

const PURGED_BEFORE: &str =
    concat!("SELECT ", millis!("purged_before"), " FROM oncebox_horizon WHERE consumer = ?1");

// A time that lies before the year 0 is NULL: such a consumer keeps everything.
const HORIZONS: &str = concat!(
    "SELECT json_group_array(json_array(consumer, before)) FROM (
        SELECT value->>0 AS consumer,
            strftime('%Y-%m-%dT%H:%M:%fZ',
                (SELECT min(coalesce(max(p.updated_at), ",
    now!(),
    "), ",
    now!(),
    ") FROM oncebox_position p WHERE p.consumer = value->>0),
                printf('-%.3f seconds', value->>1)) AS before
        FROM json_each(?1))
     WHERE before IS NOT NULL"
);

macro_rules! expired {
    () => {
        "horizon AS MATERIALIZED (SELECT value->>0 AS consumer, value->>1 AS before FROM json_each(?3)),
         expired AS (
            SELECT i.key, i.consumer, h.before
            FROM oncebox_inbox i JOIN horizon h ON h.consumer = i.consumer AND i.processed_at < h.before
            WHERE i.key > ?1 AND i.key <= ?2
                AND NOT EXISTS (SELECT 1 FROM oncebox_dead d
                    WHERE d.consumer = i.consumer AND d.tenant = i.tenant AND d.message_id = i.message_id))"
    };
}

const STEP_END: &str =
    "SELECT max(key) FROM (SELECT key FROM oncebox_inbox WHERE key > ?1 ORDER BY key LIMIT ?2)";

const COUNT: &str = concat!("WITH ", expired!(), " SELECT count(*) FROM expired");

// In the transaction that deletes: whoever sees a receipt missing sees the horizon as well.
const RAISE_HORIZON: &str = concat!(
    "WITH ",
    expired!(),
    " INSERT INTO oncebox_horizon AS mine (consumer, purged_before, purged)
      SELECT consumer, max(before), count(*) FROM expired GROUP BY consumer
      ON CONFLICT (consumer) DO UPDATE
      SET purged_before = max(mine.purged_before, excluded.purged_before), purged = mine.purged + excluded.purged"
);

const DELETE: &str =
    concat!("WITH ", expired!(), " DELETE FROM oncebox_inbox WHERE key IN (SELECT key FROM expired)");

/// Receipts older than this may be gone.
pub(crate) async fn purged_before(txn: &mut SqliteTxn, consumer: &ConsumerName) -> StoreResult<Option<i64>> {
    let query = sqlx::query(PURGED_BEFORE).bind(consumer.as_str());
    let row = query.fetch_optional(&mut **txn).await.context("reading the horizon")?;
    row.map(|row| row.try_get(0)).transpose().context("reading the horizon")
}

/// One pass over all receipts, in the order of their keys.
pub(crate) async fn purge(
    store: &SqliteStore,
    retention: &[Retention],
    dry_run: bool,
) -> StoreResult<Purged> {
    let horizons = horizons(store, retention).await?;
    let mut purged = Purged::default();
    let mut after = Vec::new();
    while let Some(step) = next_step(store, after, &horizons).await? {
        if dry_run {
            purged.receipts += step.expired;
        } else if step.expired > 0 {
            purged.receipts += delete(store, &step, &horizons).await?;
        }
        after = step.up_to;
    }
    if purged.receipts > 0 && !dry_run {
        give_space_back(store).await?;
    }
    Ok(purged)
}

/// The horizon of each consumer as JSON `[[consumer, time], …]`, fixed for the pass.
async fn horizons(store: &SqliteStore, retention: &[Retention]) -> StoreResult<String> {
    let keep = retention.iter().map(|r| serde_json::json!([r.consumer.as_str(), r.keep.as_secs_f64()]));
    let keep = serde_json::Value::from_iter(keep).to_string();
    let mut conn = store.reader().await?;
    let row = sqlx::query(HORIZONS).bind(keep).fetch_one(&mut *conn).await.context(DOING)?;
    row.try_get(0).context(DOING)
}

/// The keys that one step covers, and how many of them may go.
struct Step {
    after: Vec<u8>,
    up_to: Vec<u8>,
    expired: u64,
}

/// Looks for work with a reading connection, so that a step with nothing to delete never takes the write lock.
async fn next_step(store: &SqliteStore, after: Vec<u8>, horizons: &str) -> StoreResult<Option<Step>> {
    let mut conn = store.reader().await?;
    let end =
        sqlx::query(STEP_END).bind(after.as_slice()).bind(STEP).fetch_one(&mut *conn).await.context(DOING)?;
    let Some(up_to) = end.try_get::<Option<Vec<u8>>, _>(0).context(DOING)? else { return Ok(None) };
    let mut step = Step { after, up_to, expired: 0 };
    let row = on(COUNT, &step, horizons).fetch_one(&mut *conn).await.context(DOING)?;
    step.expired = u64::try_from(row.try_get::<i64, _>(0).context(DOING)?).unwrap_or_default();
    Ok(Some(step))
}

async fn delete(store: &SqliteStore, step: &Step, horizons: &str) -> StoreResult<u64> {
    let mut txn = store.writer.begin().await?;
    let held = Instant::now();
    let deleted = delete_in(&mut txn, step, horizons).await.context(DOING)?;
    txn.commit(None).await?;
    tokio::time::sleep(held.elapsed() * REST).await;
    Ok(deleted)
}

async fn delete_in(conn: &mut SqliteConnection, step: &Step, horizons: &str) -> sqlx::Result<u64> {
    on(RAISE_HORIZON, step, horizons).execute(&mut *conn).await?;
    Ok(on(DELETE, step, horizons).execute(conn).await?.rows_affected())
}

fn on(
    sql: &'static str,
    step: &Step,
    horizons: &str,
) -> sqlx::query::Query<'static, sqlx::Sqlite, sqlx::sqlite::SqliteArguments> {
    sqlx::query(sql).bind(step.after.as_slice()).bind(step.up_to.as_slice()).bind(horizons)
}

/// Shrinks the file when more than a quarter of it is empty, in steps that let others write in between. New receipts take
/// the rest. Does nothing for a file that was created without `auto_vacuum`.
async fn give_space_back(store: &SqliteStore) -> StoreResult<()> {
    const FREE: &str = "SELECT freelist_count, page_count, auto_vacuum
        FROM pragma_freelist_count, pragma_page_count, pragma_auto_vacuum";
    const INCREMENTAL: i64 = 2;
    let mut last_free = i64::MAX;
    loop {
        let mut conn = store.reader().await?;
        let row = sqlx::query(FREE).fetch_one(&mut *conn).await.context(DOING)?;
        let [free, pages, mode]: [i64; 3] =
            [row.try_get(0).context(DOING)?, row.try_get(1).context(DOING)?, row.try_get(2).context(DOING)?];
        // It must get less with each round: a long reader elsewhere can keep pages from being cut off.
        if mode != INCREMENTAL || free * 4 <= pages || free >= last_free {
            return Ok(());
        }
        last_free = free;
        let started = Instant::now();
        store.writer.run("PRAGMA incremental_vacuum(500)").await?;
        tokio::time::sleep((started.elapsed() * REST).min(Duration::from_secs(1))).await;
    }
}

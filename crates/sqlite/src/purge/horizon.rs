//! Up to when receipts may go, per consumer.

use oncebox_core::names::ConsumerName;
use oncebox_core::store::{PurgePass, StoreResult};
use sqlx::Row;

use super::DOING;
use crate::classify::Context;
use crate::store::SqliteStore;
use crate::time::{millis, now, stored};
use crate::txn::SqliteTxn;

const PURGED_BEFORE: &str =
    concat!("SELECT ", millis!("purged_before"), " FROM oncebox_horizon WHERE consumer = ?1");

/// Receipts older than this may be gone.
pub(super) async fn purged_before(txn: &mut SqliteTxn, consumer: &ConsumerName) -> StoreResult<Option<i64>> {
    let query = sqlx::query(PURGED_BEFORE).bind(consumer.as_str());
    let row = query.fetch_optional(&mut **txn).await.context("reading the horizon")?;
    row.map(|row| row.try_get(0)).transpose().context("reading the horizon")
}

// By the slowest partition: one that stands still may yet read copies of what is settled, and of one that was never caught up
// nobody knows. A retired one does not count. A consumer without positions claims in a loop of its own, so time counts. The
// earlier clock is right: one that jumps ahead must not empty the table. A consumer whose horizon is NULL, also because it
// lies before the year 0, keeps everything.
const HORIZONS: &str = concat!(
    "SELECT json_group_array(json_array(consumer, before)) FROM (
        SELECT r.value->>0 AS consumer,
            strftime('%Y-%m-%dT%H:%M:%fZ',
                (SELECT CASE
                    WHEN count(*) = 0 THEN min(?2, ",
    now!(),
    ")
                    WHEN count(*) = count(p.caught_up_at) THEN min(min(p.caught_up_at), ?2, ",
    now!(),
    ") END
                 FROM oncebox_position p WHERE p.consumer = r.value->>0 AND p.retired_at IS NULL),
                printf('-%.3f seconds', r.value->>1)) AS before
        FROM json_each(?1) r)
     WHERE before IS NOT NULL"
);

/// The horizon of each consumer as JSON `[[consumer, time], …]`, fixed for the pass.
pub(super) async fn horizons(store: &SqliteStore, pass: &PurgePass<'_>) -> StoreResult<String> {
    let keep = pass.retention.iter().map(|r| serde_json::json!([r.consumer.as_str(), r.keep.as_secs_f64()]));
    let keep = serde_json::Value::from_iter(keep).to_string();
    let mut conn = store.reader().await?;
    let query = sqlx::query(HORIZONS).bind(keep).bind(stored(pass.now_ms));
    query.fetch_one(&mut *conn).await.and_then(|row| row.try_get(0)).context(DOING)
}

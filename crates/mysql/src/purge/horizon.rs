//! Up to when receipts may go, per consumer.

use std::collections::BTreeMap;

use oncebox_core::names::ConsumerName;
use oncebox_core::store::{PurgePass, Retention, StoreResult};
use sqlx::Row;

use super::DOING;
use crate::classify::Context;
use crate::quote::text;
use crate::store::MysqlStore;
use crate::time::{LAST_MS, from_ms, in_ms};
use crate::txn::MysqlTxn;

/// Consumers, and the time before which their receipts may go, in microseconds since 1970.
pub(super) type Horizons = BTreeMap<String, i64>;

const PURGED_BEFORE: &str =
    concat!("SELECT ", in_ms!("purged_before"), " FROM oncebox_horizon WHERE consumer = ?");

/// Receipts older than this may be gone.
pub(super) async fn purged_before(
    store: &MysqlStore,
    txn: &mut MysqlTxn,
    consumer: &ConsumerName,
) -> StoreResult<Option<i64>> {
    let doing = "reading the horizon";
    let query = store.query(PURGED_BEFORE).bind(consumer.as_str());
    let row = query.fetch_optional(&mut **txn).await.context(doing)?;
    row.map(|row| row.try_get(0)).transpose().context(doing)
}

/// How far all partitions of a consumer are caught up. One that stands still, or was never caught up, holds the receipts that
/// its next messages may need, unless an operator has retired it. The earlier of two clocks counts, so that no single one that
/// jumps empties the table. A consumer without positions claims in a loop of its own; nobody knows its progress, so time counts.
const CAUGHT_UP: &str = concat!(
    "SELECT COUNT(*) = COUNT(caught_up_at), TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', \
         LEAST(COALESCE(MIN(caught_up_at), UTC_TIMESTAMP(6)), UTC_TIMESTAMP(6), ",
    from_ms!("?"),
    ")) FROM oncebox_position WHERE consumer = ? AND retired_at IS NULL"
);

/// The horizon of each consumer, fixed for the pass. One that would lie before 1970 has none, and keeps everything.
pub(super) async fn horizons(store: &MysqlStore, pass: &PurgePass<'_>) -> StoreResult<Horizons> {
    store
        .patiently(DOING, async {
            let mut txn = store.begin_aside().await?;
            let mut horizons = Horizons::new();
            for retention in pass.retention {
                let horizon = horizon(store, &mut txn, retention, pass.now_ms).await.context(DOING)?;
                horizons.extend(horizon.map(|micros| (retention.consumer.as_str().to_owned(), micros)));
            }
            txn.rollback().await;
            Ok(horizons)
        })
        .await
}

async fn horizon(
    store: &MysqlStore,
    txn: &mut MysqlTxn,
    retention: &Retention,
    now_ms: i64,
) -> sqlx::Result<Option<i64>> {
    let query = store.query(CAUGHT_UP).bind(now_ms.clamp(0, LAST_MS)).bind(retention.consumer.as_str());
    let row = query.fetch_one(&mut **txn).await?;
    let (known, caught_up): (bool, i64) = (row.try_get(0)?, row.try_get(1)?);
    let keep = i64::try_from(retention.keep.as_micros()).unwrap_or(i64::MAX);
    Ok(caught_up.checked_sub(keep).filter(|horizon| known && *horizon > 0))
}

/// The statement that writes down up to when receipts of a consumer may be gone. In the transaction that deletes them, and
/// before: whoever sees a receipt missing sees the horizon as well.
pub(super) fn write(consumer: &str, micros: i64) -> String {
    let before = before(micros);
    format!(
        "INSERT INTO oncebox_horizon (consumer, purged_before) VALUES ({}, {before}) \
         ON DUPLICATE KEY UPDATE purged_before = GREATEST(purged_before, {before})",
        text(consumer)
    )
}

/// The time of a horizon.
pub(super) fn before(micros: i64) -> String {
    format!("TIMESTAMP'1970-01-01 00:00:00' + INTERVAL {micros} MICROSECOND")
}

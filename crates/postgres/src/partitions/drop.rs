//! Dropping a whole day of receipts.

use std::time::Duration;

use oncebox_core::store::StoreResult;
use sqlx::{AssertSqlSafe, Row};

use crate::classify::Context;
use crate::purge::{Horizons, Lease, Pass, RELATION};
use crate::store::PgStore;
use crate::txn::PgTxn;

/// A day that cannot be locked within this time is left for the next pass. Everybody waits behind this lock.
const LOCK_WAIT: &str = "SET LOCAL lock_timeout = '200ms'";
const LOCK_TRIES: u32 = 5;
const LOCK_PAUSE: Duration = Duration::from_millis(500);

/// The days that ended before the earliest horizon.
const DAYS: &str = "SELECT c.oid::regclass::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid \
     WHERE i.inhparent = to_regclass('oncebox_inbox') AND c.relkind = 'r' AND c.relname ~ '^oncebox_inbox_[0-9]{8}$' \
     AND to_date(right(c.relname, 8), 'YYYYMMDD')::timestamp AT TIME ZONE 'UTC' + interval '1 day' \
         < timestamptz 'epoch' + $1 * interval '1 microsecond' \
     ORDER BY c.relname";

pub(crate) async fn days_before(store: &PgStore, horizons: &Horizons) -> StoreResult<Vec<String>> {
    let Some(earliest) = horizons.earliest() else { return Ok(Vec::new()) };
    let mut txn = store.begin_aside().await?;
    let rows =
        store.query(DAYS).bind(earliest).fetch_all(&mut *txn).await.context("listing days of receipts")?;
    txn.rollback().await;
    rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>().context("listing days of receipts")
}

/// Drops a day if nothing in it has to stay; returns how many receipts it held. Without a lease it only counts.
pub(crate) async fn drop_day(
    store: &PgStore,
    day: &str,
    horizons: &Horizons,
    pass: &Pass<'_>,
) -> StoreResult<Option<u64>> {
    // Looked at without a lock first: one receipt that stays is the end of it.
    let look = look_at_day(store, day, horizons, pass.lease.as_ref());
    let Some(found) = store.patiently("looking at a day of receipts", look).await? else {
        return Ok(None);
    };
    let Some(lease) = &pass.lease else { return Ok(Some(found.receipts)) };
    for _ in 0..LOCK_TRIES {
        let attempt = try_drop(store, day, horizons, lease);
        match store.patiently("dropping a day of receipts", attempt).await? {
            Attempt::Locked => pass.pause(LOCK_PAUSE).await,
            Attempt::Stays => return Ok(None),
            Attempt::Dropped(receipts) => return Ok(Some(receipts)),
        }
        if pass.is_stopped() {
            return Ok(None);
        }
    }
    tracing::warn!(day, "a day of receipts is in use; the next pass tries to drop it again");
    Ok(None)
}

async fn look_at_day(
    store: &PgStore,
    day: &str,
    horizons: &Horizons,
    lease: Option<&Lease>,
) -> StoreResult<Option<Found>> {
    let context = "looking at a day of receipts";
    let mut txn = store.begin_aside().await?;
    let found = receipts_of_day(&mut txn, day, horizons).await?;
    match lease {
        Some(lease) => {
            lease.renew(store, &mut txn, None).await?;
            txn.commit_own(context).await?;
        }
        None => txn.rollback().await,
    }
    Ok(found)
}

async fn try_drop(store: &PgStore, day: &str, horizons: &Horizons, lease: &Lease) -> StoreResult<Attempt> {
    let doing = "dropping a day of receipts";
    let mut txn = store.begin_aside().await?;
    // A late message of that day may come any time. While we look, it waits.
    let share = format!("{LOCK_WAIT}; LOCK TABLE ONLY {day} IN SHARE MODE");
    if !got_lock(sqlx::raw_sql(AssertSqlSafe(share)).execute(&mut *txn).await)? {
        txn.rollback().await;
        return Ok(Attempt::Locked);
    }
    let Some(found) = receipts_of_day(&mut txn, day, horizons).await? else {
        txn.rollback().await;
        return Ok(Attempt::Stays);
    };
    horizons.write(store, &mut txn, &found.consumers).await?;
    lease.renew(store, &mut txn, None).await?;
    let drop = format!("DROP TABLE {day}");
    if !got_lock(sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut *txn).await)? {
        txn.rollback().await;
        return Ok(Attempt::Locked);
    }
    txn.commit_own(doing).await?;
    Ok(Attempt::Dropped(found.receipts))
}

/// `None` if a receipt of that day has to stay.
async fn receipts_of_day(txn: &mut PgTxn, day: &str, horizons: &Horizons) -> StoreResult<Option<Found>> {
    let doing = "looking at a day of receipts";
    let stays = format!(
        "SELECT EXISTS (SELECT FROM ONLY {day} i LEFT JOIN {RELATION} h USING (consumer) \
         WHERE h.consumer IS NULL OR i.processed_at >= h.before OR EXISTS (SELECT FROM oncebox_dead d \
         WHERE d.consumer = i.consumer AND d.message_id = i.message_id AND d.tenant = i.tenant))"
    );
    let stays: bool = horizons
        .bind(sqlx::query(AssertSqlSafe(stays)).persistent(false))
        .fetch_one(&mut **txn)
        .await
        .and_then(|row| row.try_get(0))
        .context(doing)?;
    if stays {
        return Ok(None);
    }
    let count = format!("SELECT count(*), COALESCE(array_agg(DISTINCT consumer), '{{}}') FROM ONLY {day}");
    let row =
        sqlx::query(AssertSqlSafe(count)).persistent(false).fetch_one(&mut **txn).await.context(doing)?;
    let receipts: i64 = row.try_get(0).context(doing)?;
    let consumers = row.try_get(1).context(doing)?;
    Ok(Some(Found { receipts: receipts.unsigned_abs(), consumers }))
}

/// A day of which nothing has to stay.
struct Found {
    receipts: u64,
    consumers: Vec<String>,
}

enum Attempt {
    Locked,
    Stays,
    Dropped(u64),
}

fn got_lock<T>(outcome: sqlx::Result<T>) -> StoreResult<bool> {
    match outcome {
        Ok(_) => Ok(true),
        Err(sqlx::Error::Database(error)) if matches!(error.code().as_deref(), Some("55P03" | "40P01")) => {
            Ok(false)
        }
        Err(error) => Err(error).context("locking a day of receipts"),
    }
}

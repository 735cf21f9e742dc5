//! What `oncebox status` shows.

use oncebox_core::store::{ConsumerStatus, Duplicates, PositionStatus, Status, StoreResult, StoreStatus};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};

use crate::adopted;
use crate::classify::Context;
use crate::outbox;
use crate::store::SqliteStore;
use crate::time::millis;

impl Status for SqliteStore {
    async fn status(&self, count_cap: u64) -> StoreResult<StoreStatus> {
        let doing = "reading the status";
        // In a box, because whoever waits for something by its status carries the call along.
        Box::pin(async {
            let mut conn = self.reader().await?;
            let mut snapshot = sqlx::Connection::begin(&mut *conn).await.context(doing)?;
            let mut status = read(&mut snapshot, count_cap).await.context(doing)?;
            status.receipts_estimate = receipts_estimate(self, &mut snapshot, count_cap).await?;
            snapshot.rollback().await.context(doing)?;
            Ok(status)
        })
        .await
    }
}

const POSITIONS: &str = concat!(
    "SELECT consumer, topic, partition, next_offset, log, retired_at IS NOT NULL AS retired, epoch, starts,
        applied, duplicates, redelivered, rewound, published_twice, ",
    millis!("caught_up_at"),
    " AS caught_up_ms, ",
    millis!("updated_at"),
    " AS updated_at_ms FROM oncebox_position ORDER BY consumer, topic, partition"
);

const CONSUMERS: &str = concat!(
    "WITH RECURSIVE
     -- From one consumer to the next along the index, instead of over all letters.
     with_letters(consumer) AS (
        SELECT min(consumer) FROM oncebox_dead
        UNION ALL
        SELECT (SELECT min(d.consumer) FROM oncebox_dead d WHERE d.consumer > l.consumer)
        FROM with_letters l WHERE l.consumer IS NOT NULL),
     names AS (
        SELECT consumer FROM oncebox_position UNION SELECT consumer FROM oncebox_horizon
        UNION SELECT consumer FROM oncebox_replayed
        UNION SELECT consumer FROM with_letters WHERE consumer IS NOT NULL)
     SELECT n.consumer,
        (SELECT count(*) FROM (SELECT 1 FROM oncebox_dead d WHERE d.consumer = n.consumer LIMIT ?1)) AS dead_letters,
        (SELECT ",
    millis!("h.purged_before"),
    "    FROM oncebox_horizon h WHERE h.consumer = n.consumer) AS purged_before_ms,
        coalesce((SELECT r.replayed FROM oncebox_replayed r WHERE r.consumer = n.consumer), 0) AS replayed
     FROM names n ORDER BY n.consumer"
);

async fn read(conn: &mut SqliteConnection, count_cap: u64) -> sqlx::Result<StoreStatus> {
    let cap = i64::try_from(count_cap).unwrap_or(i64::MAX);
    let positions = sqlx::query(POSITIONS).fetch_all(&mut *conn).await?;
    let consumers = sqlx::query(CONSUMERS).bind(cap).fetch_all(&mut *conn).await?;
    Ok(StoreStatus {
        positions: positions.iter().map(position).collect::<sqlx::Result<_>>()?,
        consumers: consumers.iter().map(consumer).collect::<sqlx::Result<_>>()?,
        receipts_estimate: 0,
        outbox: outbox::status::status(conn, cap).await?,
    })
}

// SQLite keeps no row count, and counting a large table reads all of it. Up to the cap the number is counted; beyond, it
// is what the positions have applied, less what purge has removed.
const RECEIPTS: &str = "SELECT CASE WHEN counted < ?1 THEN counted ELSE max(counted, applied - purged) END
    FROM (SELECT count(*) AS counted FROM (SELECT 1 FROM oncebox_inbox LIMIT ?1)),
         (SELECT coalesce(sum(applied), 0) AS applied FROM oncebox_position),
         (SELECT coalesce(sum(purged), 0) AS purged FROM oncebox_horizon)";

/// How many receipts there are: counted up to the cap, an estimate beyond.
pub(crate) async fn receipts_estimate(
    store: &SqliteStore,
    conn: &mut SqliteConnection,
    count_cap: u64,
) -> StoreResult<u64> {
    let doing = "counting receipts";
    let cap = i64::try_from(count_cap).unwrap_or(i64::MAX);
    match adopted::receipts_estimate(store, conn, cap).await? {
        Some(counted) => counted.context(doing),
        None => {
            let counted = sqlx::query(RECEIPTS).bind(cap).fetch_one(conn).await;
            counted.and_then(|row| count(&row, 0)).context(doing)
        }
    }
}

fn position(row: &SqliteRow) -> sqlx::Result<PositionStatus> {
    Ok(PositionStatus {
        consumer: row.try_get("consumer")?,
        topic: row.try_get("topic")?,
        partition: row.try_get("partition")?,
        next_offset: row.try_get("next_offset")?,
        log: row.try_get("log")?,
        caught_up_ms: row.try_get("caught_up_ms")?,
        retired: row.try_get("retired")?,
        epoch: row.try_get("epoch")?,
        starts: row.try_get("starts")?,
        applied: count(row, "applied")?,
        duplicates: Duplicates::stored(
            count(row, "duplicates")?,
            count(row, "redelivered")?,
            count(row, "rewound")?,
            count(row, "published_twice")?,
        ),
        updated_at_ms: row.try_get("updated_at_ms")?,
    })
}

fn consumer(row: &SqliteRow) -> sqlx::Result<ConsumerStatus> {
    Ok(ConsumerStatus {
        consumer: row.try_get("consumer")?,
        dead_letters: count(row, "dead_letters")?,
        purged_before_ms: row.try_get("purged_before_ms")?,
        replayed: count(row, "replayed")?,
    })
}

fn count<I: sqlx::ColumnIndex<SqliteRow>>(row: &SqliteRow, column: I) -> sqlx::Result<u64> {
    Ok(u64::try_from(row.try_get::<i64, _>(column)?).unwrap_or_default())
}

//! How the outbox is.

use std::time::Duration;

use oncebox_core::store::{OutboxStatus, ShardStatus};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};

use super::read::{is_held, is_ready, topics};

/// From now to a time, or back, in milliseconds.
macro_rules! millis_between {
    ($earlier:literal, $later:literal) => {
        concat!(
            "CAST(round((unixepoch(",
            $later,
            ", 'subsec') - unixepoch(",
            $earlier,
            ", 'subsec')) * 1000) AS INTEGER)"
        )
    };
}

const COUNTS: &str = concat!(
    "SELECT
        (SELECT count(*) FROM (SELECT 1 FROM oncebox_outbox INDEXED BY oncebox_outbox_ready WHERE ",
    is_ready!(),
    " LIMIT ?1)),
        (SELECT count(*) FROM (SELECT 1 FROM oncebox_outbox INDEXED BY oncebox_outbox_due WHERE ",
    is_held!(),
    " LIMIT ?1)),
        (SELECT count(*) FROM (SELECT 1 FROM oncebox_outbox INDEXED BY oncebox_outbox_parked
            WHERE parked_at IS NOT NULL LIMIT ?1))"
);

// The first of each topic and shard: a few looks into the index, however many are ready.
const OLDEST: &str = concat!(
    "WITH RECURSIVE t AS (",
    topics!("oncebox_outbox_ready", is_ready!()),
    "),
     first(seq) AS (
        SELECT (SELECT o.seq FROM oncebox_outbox o INDEXED BY oncebox_outbox_ready
            WHERE o.topic = t.topic AND o.shard = s.shard AND ",
    is_ready!(),
    " ORDER BY o.seq LIMIT 1) FROM t CROSS JOIN oncebox_shard s WHERE t.topic IS NOT NULL
        UNION ALL
        SELECT min(seq) FROM (SELECT seq FROM oncebox_outbox INDEXED BY oncebox_outbox_due WHERE ",
    is_held!(),
    " LIMIT ?1))
     SELECT ",
    millis_between!("min(created_at)", "'now'"),
    " FROM oncebox_outbox WHERE seq IN (SELECT seq FROM first)"
);

const SHARDS: &str = concat!(
    "SELECT s.shard, s.epoch, coalesce(r.name, s.relay) AS owner, ",
    millis_between!("'now'", "s.leased_until"),
    " AS left_ms FROM oncebox_shard s
     LEFT JOIN oncebox_relay r ON r.relay = s.relay ORDER BY s.shard"
);

/// Counts, ages and owners.
pub(crate) async fn status(conn: &mut SqliteConnection, cap: i64) -> sqlx::Result<OutboxStatus> {
    let counts = sqlx::query(COUNTS).bind(cap).fetch_one(&mut *conn).await?;
    let [ready, held, parked] = [0, 1, 2].map(|at| counts.try_get::<i64, _>(at));
    let (ready, held, parked) = (ready?, held?, parked?);
    let oldest = sqlx::query(OLDEST).bind(cap).fetch_one(&mut *conn).await?;
    let shards = sqlx::query(SHARDS).fetch_all(conn).await?;
    Ok(OutboxStatus {
        pending: ready.saturating_add(held).min(cap).unsigned_abs(),
        oldest: oldest.try_get::<Option<i64>, _>(0)?.map(milliseconds),
        held: held.unsigned_abs(),
        parked: parked.unsigned_abs(),
        shards: shards.iter().map(shard).collect::<sqlx::Result<_>>()?,
    })
}

fn shard(row: &SqliteRow) -> sqlx::Result<ShardStatus> {
    let left = row.try_get::<Option<i64>, _>("left_ms")?.filter(|left| *left > 0);
    let owner: Option<String> = row.try_get("owner")?;
    Ok(ShardStatus {
        shard: row.try_get("shard")?,
        owner: owner.filter(|_| left.is_some()),
        epoch: row.try_get("epoch")?,
        expires_in: left.map(milliseconds),
    })
}

fn milliseconds(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or_default())
}

//! How the outbox is.

use std::time::Duration;

use oncebox_core::store::{OutboxStatus, ShardStatus};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};

use super::read::{is_held, is_ready, topics};
use super::waiting::behind;
use crate::time::now;

/// How long ago a time was that is counted in seconds since 1970, in milliseconds.
macro_rules! age {
    ($since:expr) => {
        concat!("CAST(round((unixepoch('now', 'subsec') - ", $since, ") * 1000) AS INTEGER)")
    };
}

/// The conditions of the index `oncebox_outbox_since`, and what it is ordered by.
macro_rules! has_time {
    () => {
        concat!("published_at IS NULL AND parked_at IS NULL AND held_until < ", behind!())
    };
}
macro_rules! since {
    () => {
        "max(unixepoch(coalesce(deliver_at, created_at), 'subsec'), unixepoch(created_at, 'subsec'))"
    };
}

const COUNTS: &str = concat!(
    "SELECT
        (SELECT count(*) FROM (SELECT 1 FROM oncebox_outbox INDEXED BY oncebox_outbox_ready WHERE ",
    is_ready!(),
    " LIMIT ?1)) AS ready,
        (SELECT count(*) FROM (SELECT 1 FROM oncebox_outbox INDEXED BY oncebox_outbox_due WHERE ",
    is_held!(),
    " LIMIT ?1)) AS held,
        (SELECT count(*) FROM (SELECT 1 FROM oncebox_outbox INDEXED BY oncebox_outbox_since WHERE ",
    has_time!(),
    " AND ",
    since!(),
    " > unixepoch('now', 'subsec') LIMIT ?1)) AS delayed,
        (SELECT count(*) FROM (SELECT 1 FROM oncebox_outbox INDEXED BY oncebox_outbox_since WHERE ",
    has_time!(),
    " AND ",
    since!(),
    " <= unixepoch('now', 'subsec') AND held_until > ",
    now!(),
    " LIMIT ?1)) AS failed,
        (SELECT count(*) FROM (SELECT held_until FROM oncebox_outbox INDEXED BY oncebox_outbox_due WHERE ",
    is_held!(),
    " LIMIT ?1) WHERE held_until = ",
    behind!(),
    ") AS behind,
        (SELECT count(*) FROM (SELECT 1 FROM oncebox_outbox INDEXED BY oncebox_outbox_parked
            WHERE parked_at IS NOT NULL LIMIT ?1)) AS parked"
);

// The first of each topic and shard: a few looks into the index, however many are ready. One that is early and not held yet
// counts from when it was written: that nobody has looked at it is what this is about.
const OLDEST_READY: &str = concat!(
    "WITH RECURSIVE t AS (",
    topics!("oncebox_outbox_ready", is_ready!()),
    "),
     first(seq) AS (
        SELECT (SELECT o.seq FROM oncebox_outbox o INDEXED BY oncebox_outbox_ready
            WHERE o.topic = t.topic AND o.shard = s.shard AND ",
    is_ready!(),
    " ORDER BY o.seq LIMIT 1) FROM t CROSS JOIN oncebox_shard s WHERE t.topic IS NOT NULL)
     SELECT max(",
    age!(concat!(
        "CASE WHEN unixepoch(deliver_at, 'subsec') <= unixepoch('now', 'subsec') THEN ",
        since!(),
        " ELSE unixepoch(created_at, 'subsec') END"
    )),
    ") FROM oncebox_outbox WHERE seq IN (SELECT seq FROM first)"
);

const OLDEST_HELD: &str = concat!(
    "SELECT ",
    age!(since!()),
    " FROM oncebox_outbox INDEXED BY oncebox_outbox_since WHERE ",
    has_time!(),
    " AND ",
    since!(),
    " <= unixepoch('now', 'subsec') ORDER BY ",
    since!(),
    " LIMIT 1"
);

const SHARDS: &str = concat!(
    "SELECT s.shard, s.epoch, coalesce(r.name, s.relay) AS owner, -",
    age!("unixepoch(s.leased_until, 'subsec')"),
    " AS left_ms FROM oncebox_shard s
     LEFT JOIN oncebox_relay r ON r.relay = s.relay ORDER BY s.shard"
);

/// Counts, ages and owners.
pub(crate) async fn status(conn: &mut SqliteConnection, cap: i64) -> sqlx::Result<OutboxStatus> {
    let counts = sqlx::query(COUNTS).bind(cap).fetch_one(&mut *conn).await?;
    let count = |name: &str| counts.try_get::<i64, _>(name);
    let oldest = oldest(conn).await?;
    let shards = sqlx::query(SHARDS).fetch_all(conn).await?;
    Ok(OutboxStatus {
        pending: count("ready")?.saturating_add(count("held")?).min(cap).unsigned_abs(),
        oldest,
        delayed: count("delayed")?.unsigned_abs(),
        held: count("failed")?.saturating_add(count("behind")?).min(cap).unsigned_abs(),
        parked: count("parked")?.unsigned_abs(),
        shards: shards.iter().map(shard).collect::<sqlx::Result<_>>()?,
    })
}

/// How long the oldest event waits.
async fn oldest(conn: &mut SqliteConnection) -> sqlx::Result<Option<Duration>> {
    let mut oldest: Option<i64> = None;
    for sql in [OLDEST_READY, OLDEST_HELD] {
        if let Some(row) = sqlx::query(sql).fetch_optional(&mut *conn).await? {
            oldest = oldest.max(row.try_get(0)?);
        }
    }
    Ok(oldest.map(milliseconds))
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

//! How the outbox is.

use std::time::Duration;

use oncebox_core::store::{OutboxStatus, ShardStatus};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use crate::store::PgStore;

/// The oldest event is the oldest of those that come first: in each topic and shard by a loose walk over the index, and of the
/// held ones by an index of its own. A ready one that is early counts from when it was written: that no relay has looked at it
/// is what this is about.
const COUNTS: &str = "WITH RECURSIVE firsts AS ( \
         (SELECT topic, shard, created_at, deliver_at FROM oncebox_outbox \
          WHERE published_at IS NULL AND parked_at IS NULL AND held_until IS NULL ORDER BY topic, shard, seq LIMIT 1) \
         UNION ALL \
         SELECT n.topic, n.shard, n.created_at, n.deliver_at FROM firsts f CROSS JOIN LATERAL ( \
             SELECT o.topic, o.shard, o.created_at, o.deliver_at FROM oncebox_outbox o \
             WHERE o.published_at IS NULL AND o.parked_at IS NULL AND o.held_until IS NULL \
                 AND (o.topic, o.shard) > (f.topic, f.shard) ORDER BY o.topic, o.shard, o.seq LIMIT 1) n), \
     held AS MATERIALIZED (SELECT held_until FROM oncebox_outbox WHERE held_until IS NOT NULL LIMIT $1), \
     delayed AS MATERIALIZED (SELECT FROM oncebox_outbox \
         WHERE held_until < 'infinity' AND GREATEST(created_at, deliver_at) > statement_timestamp() LIMIT $1), \
     failed AS MATERIALIZED (SELECT FROM oncebox_outbox \
         WHERE held_until < 'infinity' AND GREATEST(created_at, deliver_at) <= statement_timestamp() \
             AND held_until > statement_timestamp() LIMIT $1) \
     SELECT LEAST($1, (SELECT count(*) FROM held) + (SELECT count(*) FROM (SELECT FROM oncebox_outbox \
             WHERE published_at IS NULL AND parked_at IS NULL AND held_until IS NULL LIMIT $1) f)), \
         (SELECT count(*) FROM delayed), \
         LEAST($1, (SELECT count(*) FROM failed) + (SELECT count(*) FROM held WHERE held_until = 'infinity')), \
         (SELECT count(*) FROM (SELECT FROM oncebox_outbox WHERE parked_at IS NOT NULL LIMIT $1) p), \
         (date_part('epoch', statement_timestamp() - LEAST( \
             (SELECT GREATEST(created_at, deliver_at) FROM oncebox_outbox \
              WHERE held_until < 'infinity' AND GREATEST(created_at, deliver_at) <= statement_timestamp() \
              ORDER BY GREATEST(created_at, deliver_at) LIMIT 1), \
             (SELECT min(CASE WHEN deliver_at <= statement_timestamp() THEN GREATEST(created_at, deliver_at) \
                 ELSE created_at END) FROM (SELECT * FROM firsts LIMIT 16384) f))) * 1000)::bigint";

const SHARDS: &str = "SELECT s.shard, r.name, s.epoch, \
         (date_part('epoch', s.leased_until - clock_timestamp()) * 1000)::bigint \
     FROM oncebox_shard s LEFT JOIN oncebox_relay r ON r.relay = s.relay ORDER BY s.shard";

/// Counts, ages and owners.
pub(crate) async fn status(store: &PgStore, conn: &mut PgConnection, cap: i64) -> sqlx::Result<OutboxStatus> {
    let counts = store.query(COUNTS).bind(cap).fetch_one(&mut *conn).await?;
    let shards = store.query(SHARDS).fetch_all(conn).await?;
    let count = |at: usize| counts.try_get::<i64, _>(at).map(i64::unsigned_abs);
    let oldest: Option<i64> = counts.try_get(4)?;
    Ok(OutboxStatus {
        pending: count(0)?,
        delayed: count(1)?,
        held: count(2)?,
        parked: count(3)?,
        // An event may carry the time of a clock that was set back since.
        oldest: oldest.map(|ms| Duration::from_millis(ms.max(0).unsigned_abs())),
        shards: shards.iter().map(shard).collect::<sqlx::Result<_>>()?,
    })
}

fn shard(row: &PgRow) -> sqlx::Result<ShardStatus> {
    let left: Option<i64> = row.try_get(3)?;
    let expires_in = left.filter(|ms| *ms > 0).map(|ms| Duration::from_millis(ms.unsigned_abs()));
    Ok(ShardStatus {
        shard: super::shard(row.try_get(0)?),
        owner: row.try_get::<Option<String>, _>(1)?.filter(|_| expires_in.is_some()),
        epoch: row.try_get(2)?,
        expires_in,
    })
}

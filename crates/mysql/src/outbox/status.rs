//! How the outbox is.

use std::time::Duration;

use oncebox_core::store::{OutboxStatus, READY_TOPICS, SHARDS, ShardStatus};
use sqlx::mysql::MySqlRow;
use sqlx::{MySqlConnection, Row};

use super::read::{self, At};
use super::waiting::behind;
use super::{STATEMENT_PARTS, fetch};
use crate::quote::text;
use crate::store::MysqlStore;

const COUNTS: &str = concat!(
    "SELECT \
     (SELECT COUNT(*) FROM (SELECT 1 FROM oncebox_outbox FORCE INDEX (oncebox_outbox_ready) \
         WHERE ready_shard IS NOT NULL LIMIT ?) AS r), \
     (SELECT COUNT(*) FROM (SELECT 1 FROM oncebox_outbox FORCE INDEX (oncebox_outbox_due) \
         WHERE held_shard IS NOT NULL LIMIT ?) AS h), \
     (SELECT COUNT(*) FROM (SELECT 1 FROM oncebox_outbox FORCE INDEX (oncebox_outbox_since) \
         WHERE waiting_since > UTC_TIMESTAMP(6) LIMIT ?) AS d), \
     (SELECT COUNT(*) FROM (SELECT 1 FROM oncebox_outbox FORCE INDEX (oncebox_outbox_since) \
         WHERE waiting_since <= UTC_TIMESTAMP(6) AND held_until > UTC_TIMESTAMP(6) LIMIT ?) AS f), \
     (SELECT COUNT(*) FROM (SELECT held_until FROM oncebox_outbox FORCE INDEX (oncebox_outbox_due) \
         WHERE held_shard IS NOT NULL LIMIT ?) AS b WHERE b.held_until = ",
    behind!(),
    "), \
     (SELECT COUNT(*) FROM (SELECT 1 FROM oncebox_outbox FORCE INDEX (oncebox_outbox_parked) \
         WHERE parked_at IS NOT NULL LIMIT ?) AS p), \
     (SELECT TIMESTAMPDIFF(MICROSECOND, waiting_since, UTC_TIMESTAMP(6)) DIV 1000 \
         FROM oncebox_outbox FORCE INDEX (oncebox_outbox_since) WHERE waiting_since <= UTC_TIMESTAMP(6) \
         ORDER BY waiting_since LIMIT 1)"
);

const OWNERS: &str = "SELECT s.shard, r.name, s.epoch, \
         TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), s.leased_until) DIV 1000 \
     FROM oncebox_shard s LEFT JOIN oncebox_relay r ON r.relay = s.relay ORDER BY s.shard";

/// Counts, ages and owners.
pub(crate) async fn status(
    store: &MysqlStore,
    conn: &mut MySqlConnection,
    cap: i64,
) -> sqlx::Result<OutboxStatus> {
    let cap = cap.max(0);
    let mut counts = store.query(COUNTS);
    for _ in 0..6 {
        counts = counts.bind(cap);
    }
    let counts = counts.fetch_one(&mut *conn).await?;
    let count = |at: usize| counts.try_get::<i64, _>(at);
    let oldest = oldest_ready(conn).await?.max(counts.try_get(6)?);
    let shards = store.query(OWNERS).fetch_all(conn).await?;
    Ok(OutboxStatus {
        pending: count(0)?.saturating_add(count(1)?).min(cap).unsigned_abs(),
        delayed: count(2)?.unsigned_abs(),
        held: count(3)?.saturating_add(count(4)?).min(cap).unsigned_abs(),
        parked: count(5)?.unsigned_abs(),
        // An event may carry the time of a clock that was set back since.
        oldest: oldest.map(|ms| Duration::from_millis(ms.max(0).unsigned_abs())),
        shards: shards.iter().map(shard).collect::<sqlx::Result<_>>()?,
    })
}

/// The age of the oldest of those that come first in their topic and shard.
async fn oldest_ready(conn: &mut MySqlConnection) -> sqlx::Result<Option<i64>> {
    let all: Vec<u16> = (0..SHARDS).collect();
    let (places, _) = read::topics(conn, &all, "", READY_TOPICS, read::next_ready).await?;
    let mut oldest = None;
    for part in places.chunks(STATEMENT_PARTS) {
        let firsts: Vec<String> = part.iter().map(age_of_first).collect();
        for row in fetch(conn, firsts.join(" UNION ALL ")).await? {
            oldest = oldest.max(row.try_get(0)?);
        }
    }
    Ok(oldest)
}

/// One that is early counts from when it was written: that no relay has looked at it is what this is about.
fn age_of_first(at: &At) -> String {
    format!(
        "(SELECT TIMESTAMPDIFF(MICROSECOND, \
             IF(deliver_at <= UTC_TIMESTAMP(6), GREATEST(deliver_at, created_at), created_at), UTC_TIMESTAMP(6)) DIV 1000 \
         FROM oncebox_outbox FORCE INDEX (oncebox_outbox_ready) \
         WHERE ready_shard = {} AND topic = {} ORDER BY seq LIMIT 1)",
        at.shard,
        text(&at.topic)
    )
}

fn shard(row: &MySqlRow) -> sqlx::Result<ShardStatus> {
    let left: Option<i64> = row.try_get(3)?;
    let expires_in = left.filter(|ms| *ms > 0).map(|ms| Duration::from_millis(ms.unsigned_abs()));
    Ok(ShardStatus {
        shard: super::shard(row.try_get(0)?),
        owner: row.try_get::<Option<String>, _>(1)?.filter(|_| expires_in.is_some()),
        epoch: row.try_get(2)?,
        expires_in,
    })
}

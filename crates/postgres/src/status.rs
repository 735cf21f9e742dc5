//! What `oncebox status` and the dashboard read. Its cost does not grow with the tables.

use oncebox_core::store::{ConsumerStatus, Duplicates, PositionStatus, Status, StoreResult, StoreStatus};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use crate::adopted;
use crate::classify::Context;
use crate::outbox;
use crate::store::PgStore;

impl Status for PgStore {
    async fn status(&self, count_cap: u64) -> StoreResult<StoreStatus> {
        let doing = "reading the status";
        let cap = i64::try_from(count_cap).unwrap_or(i64::MAX);
        self.patiently(doing, async {
            let mut txn = self.begin_aside().await?;
            let status = read(self, &mut txn, cap).await.context(doing)?;
            txn.rollback().await;
            Ok(status)
        })
        .await
    }
}

/// A status that takes longer is not worth its load. Statistics do not follow the outbox; its indexes are always right.
const LIMIT: &str = "SET LOCAL statement_timeout = '5s'; SET LOCAL enable_seqscan = off; SET LOCAL jit = off";

/// More positions than this are not shown.
const POSITIONS: &str = "SELECT consumer, topic, partition, next_offset, epoch, starts, applied, duplicates, \
         (extract(epoch FROM updated_at) * 1000)::bigint, log, (extract(epoch FROM caught_up_at) * 1000)::bigint, \
         retired_at IS NOT NULL, redelivered, rewound, published_twice \
     FROM oncebox_position ORDER BY consumer, topic, partition LIMIT 10000";

/// The consumers of dead letters by a loose walk over the index, so that a million letters of one consumer cost one step.
const CONSUMERS: &str = "WITH RECURSIVE with_letters AS ( \
         (SELECT consumer FROM oncebox_dead ORDER BY consumer LIMIT 1) \
         UNION ALL \
         SELECT (SELECT d.consumer FROM oncebox_dead d WHERE d.consumer > w.consumer ORDER BY d.consumer LIMIT 1) \
         FROM with_letters w WHERE w.consumer IS NOT NULL), \
     known AS (SELECT consumer FROM oncebox_position UNION SELECT consumer FROM oncebox_horizon \
         UNION SELECT consumer FROM oncebox_replayed UNION SELECT consumer FROM with_letters WHERE consumer IS NOT NULL) \
     SELECT k.consumer, \
         (SELECT count(*) FROM (SELECT FROM oncebox_dead d WHERE d.consumer = k.consumer LIMIT $1) capped), \
         (SELECT (extract(epoch FROM purged_before) * 1000)::bigint FROM oncebox_horizon h WHERE h.consumer = k.consumer), \
         (SELECT replayed FROM oncebox_replayed r WHERE r.consumer = k.consumer) \
     FROM known k ORDER BY k.consumer";

/// Never analysed is -1.
const RECEIPTS: &str = "SELECT COALESCE(sum(GREATEST(c.reltuples, 0)), 0)::bigint FROM pg_class c \
     WHERE c.relkind = 'r' AND (c.oid = to_regclass($1) \
         OR c.oid IN (SELECT relid FROM pg_partition_tree(to_regclass($1))))";

async fn read(store: &PgStore, conn: &mut PgConnection, cap: i64) -> sqlx::Result<StoreStatus> {
    sqlx::raw_sql(LIMIT).execute(&mut *conn).await?;
    let positions = store.query(POSITIONS).fetch_all(&mut *conn).await?;
    let consumers = store.query(CONSUMERS).bind(cap).fetch_all(&mut *conn).await?;
    let table = adopted::adopted(store).map_or_else(|| "oncebox_inbox".to_owned(), |adopt| adopt.quoted('"'));
    let receipts = store.query(RECEIPTS).bind(table).fetch_one(&mut *conn).await?;
    Ok(StoreStatus {
        positions: positions.iter().map(position).collect::<sqlx::Result<_>>()?,
        consumers: consumers.iter().map(consumer).collect::<sqlx::Result<_>>()?,
        receipts_estimate: receipts.try_get::<i64, _>(0)?.unsigned_abs(),
        outbox: outbox::status::status(store, conn, cap).await?,
    })
}

fn position(row: &PgRow) -> sqlx::Result<PositionStatus> {
    let count = |at: usize| Ok::<_, sqlx::Error>(row.try_get::<i64, _>(at)?.unsigned_abs());
    Ok(PositionStatus {
        consumer: row.try_get(0)?,
        topic: row.try_get(1)?,
        partition: row.try_get(2)?,
        next_offset: row.try_get(3)?,
        epoch: row.try_get(4)?,
        starts: row.try_get::<i32, _>(5)?.unsigned_abs(),
        applied: count(6)?,
        duplicates: Duplicates::stored(count(7)?, count(12)?, count(13)?, count(14)?),
        updated_at_ms: row.try_get(8)?,
        log: row.try_get(9)?,
        caught_up_ms: row.try_get(10)?,
        retired: row.try_get(11)?,
    })
}

fn consumer(row: &PgRow) -> sqlx::Result<ConsumerStatus> {
    Ok(ConsumerStatus {
        consumer: row.try_get(0)?,
        dead_letters: row.try_get::<i64, _>(1)?.unsigned_abs(),
        purged_before_ms: row.try_get(2)?,
        replayed: row.try_get::<Option<i64>, _>(3)?.unwrap_or_default().unsigned_abs(),
    })
}

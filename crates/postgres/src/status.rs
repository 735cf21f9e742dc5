//! What `oncebox status` and the dashboard read. Its cost does not grow with the tables.

mod outbox;

use oncebox_core::store::{ConsumerStatus, PositionStatus, StoreResult, StoreStatus};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::classify::own;
use crate::store::PgStore;

/// A status that takes longer is not worth its load. Statistics do not follow the outbox; its indexes are always right.
const LIMIT: &str = "SET LOCAL statement_timeout = '5s'; SET LOCAL enable_seqscan = off; SET LOCAL jit = off";

/// More positions than this are not shown.
const POSITIONS: &str = "SELECT consumer, topic, partition, next_offset, epoch, starts, applied, duplicates, \
         (extract(epoch FROM updated_at) * 1000)::bigint, log, (extract(epoch FROM caught_up_at) * 1000)::bigint, \
         retired_at IS NOT NULL \
     FROM oncebox_position ORDER BY consumer, topic, partition LIMIT 10000";

/// The consumers of dead letters by a loose walk over the index, so that a million letters of one consumer cost one step.
const CONSUMERS: &str = "WITH RECURSIVE with_letters AS ( \
         (SELECT consumer FROM oncebox_dead ORDER BY consumer LIMIT 1) \
         UNION ALL \
         SELECT (SELECT d.consumer FROM oncebox_dead d WHERE d.consumer > w.consumer ORDER BY d.consumer LIMIT 1) \
         FROM with_letters w WHERE w.consumer IS NOT NULL), \
     known AS (SELECT consumer FROM oncebox_position UNION SELECT consumer FROM oncebox_horizon \
         UNION SELECT consumer FROM with_letters WHERE consumer IS NOT NULL) \
     SELECT k.consumer, \
         (SELECT count(*) FROM (SELECT FROM oncebox_dead d WHERE d.consumer = k.consumer LIMIT $1) capped), \
         (SELECT (extract(epoch FROM purged_before) * 1000)::bigint FROM oncebox_horizon h WHERE h.consumer = k.consumer) \
     FROM known k ORDER BY k.consumer";

/// Never analysed is -1.
const RECEIPTS: &str = "SELECT COALESCE(sum(GREATEST(c.reltuples, 0)), 0)::bigint FROM pg_class c \
     WHERE c.relkind = 'r' AND (c.oid = to_regclass('oncebox_inbox') \
         OR c.oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = to_regclass('oncebox_inbox')))";

impl PgStore {
    pub(crate) async fn read_status(&self, count_cap: u64) -> StoreResult<StoreStatus> {
        let failed = || own("reading the status");
        let cap = i64::try_from(count_cap).unwrap_or(i64::MAX);
        let mut txn = self.begin_aside().await?;
        sqlx::raw_sql(LIMIT).execute(&mut *txn).await.map_err(failed())?;
        let positions = self.query(POSITIONS).fetch_all(&mut *txn).await.map_err(failed())?;
        let consumers = self.query(CONSUMERS).bind(cap).fetch_all(&mut *txn).await.map_err(failed())?;
        let receipts = self.query(RECEIPTS).fetch_one(&mut *txn).await.map_err(failed())?;
        let counts = self.query(outbox::COUNTS).bind(cap).fetch_one(&mut *txn).await.map_err(failed())?;
        let shards = self.query(outbox::SHARDS).fetch_all(&mut *txn).await.map_err(failed())?;
        txn.rollback().await;
        let read = || -> Result<StoreStatus, sqlx::Error> {
            Ok(StoreStatus {
                positions: positions.iter().map(position).collect::<Result<_, _>>()?,
                consumers: consumers.iter().map(consumer).collect::<Result<_, _>>()?,
                receipts_estimate: receipts.try_get::<i64, _>(0)?.unsigned_abs(),
                outbox: outbox::read(&counts, &shards)?,
            })
        };
        read().map_err(failed())
    }
}

fn position(row: &PgRow) -> Result<PositionStatus, sqlx::Error> {
    Ok(PositionStatus {
        consumer: row.try_get(0)?,
        topic: row.try_get(1)?,
        partition: row.try_get(2)?,
        next_offset: row.try_get(3)?,
        epoch: row.try_get(4)?,
        starts: row.try_get::<i32, _>(5)?.unsigned_abs(),
        applied: row.try_get::<i64, _>(6)?.unsigned_abs(),
        duplicates: row.try_get::<i64, _>(7)?.unsigned_abs(),
        updated_at_ms: row.try_get(8)?,
        log: row.try_get(9)?,
        caught_up_ms: row.try_get(10)?,
        retired: row.try_get(11)?,
    })
}

fn consumer(row: &PgRow) -> Result<ConsumerStatus, sqlx::Error> {
    Ok(ConsumerStatus {
        consumer: row.try_get(0)?,
        dead_letters: row.try_get::<i64, _>(1)?.unsigned_abs(),
        purged_before_ms: row.try_get(2)?,
    })
}

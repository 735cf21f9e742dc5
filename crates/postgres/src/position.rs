//! Who may advance a position, and from where.

use oncebox_core::{Ownership, PositionKey, StoreError, StoreResult};
use sqlx::Row;

use crate::classify::own;
use crate::store::PgStore;

/// What ends a transaction that has no position of its own to advance.
const PLAIN_COMMIT: &str = "SELECT oncebox_still_open()";

const ACQUIRE: &str = "INSERT INTO oncebox_position AS p (consumer, topic, partition, epoch, starts) \
     VALUES ($1, $2, $3, 1, 1) \
     ON CONFLICT (consumer, topic, partition) DO UPDATE SET epoch = p.epoch + 1, starts = p.starts + 1 \
     RETURNING p.next_offset, p.epoch, p.starts, EXISTS (SELECT FROM oncebox_attempt a \
         WHERE a.consumer = p.consumer AND a.topic = p.topic AND a.partition = p.partition)";

const BEGIN_AT: &str = "UPDATE oncebox_position SET next_offset = GREATEST(next_offset, $5) \
     WHERE consumer = $1 AND topic = $2 AND partition = $3 AND epoch = $4";

const RELEASE: &str = "UPDATE oncebox_position SET starts = 0 \
     WHERE consumer = $1 AND topic = $2 AND partition = $3 AND epoch = $4";

/// Locks the position: an attempt must not be written by an owner that has just been replaced.
const RECORD_ATTEMPT: &str = "WITH mine AS (SELECT consumer, topic, partition FROM oncebox_position \
         WHERE consumer = $1 AND topic = $2 AND partition = $3 AND epoch = $4 FOR UPDATE) \
     INSERT INTO oncebox_attempt AS a (consumer, topic, partition, \"offset\", attempts) \
     SELECT consumer, topic, partition, $5, 1 FROM mine \
     ON CONFLICT (consumer, topic, partition, \"offset\") DO UPDATE SET attempts = a.attempts + 1 \
     RETURNING a.attempts";

impl PgStore {
    pub(crate) async fn acquire_position(&self, key: &PositionKey) -> StoreResult<Ownership> {
        let mut txn = self.begin().await?;
        let row = self
            .query(ACQUIRE)
            .bind(key.consumer.as_str())
            .bind(&*key.topic)
            .bind(key.partition)
            .fetch_one(&mut *txn)
            .await
            .map_err(own("acquiring a position"))?;
        let read = || -> Result<Ownership, sqlx::Error> {
            Ok(Ownership {
                key: key.clone(),
                next_offset: row.try_get(0)?,
                epoch: row.try_get(1)?,
                starts: row.try_get::<i32, _>(2)?.unsigned_abs(),
                attempts_recorded: row.try_get(3)?,
            })
        };
        let ownership = read().map_err(own("reading a position"))?;
        txn.commit(PLAIN_COMMIT).await.map_err(own("acquiring a position"))?;
        Ok(ownership)
    }

    pub(crate) async fn begin_position_at(&self, owner: &Ownership, next_offset: i64) -> StoreResult<()> {
        if self.update_owned(BEGIN_AT, owner, Some(next_offset)).await? == 0 {
            return Err(StoreError::fenced("writing the first position"));
        }
        Ok(())
    }

    pub(crate) async fn release_position(&self, owner: &Ownership) -> StoreResult<()> {
        self.update_owned(RELEASE, owner, None).await.map(drop)
    }

    async fn update_owned(
        &self,
        sql: &'static str,
        owner: &Ownership,
        extra: Option<i64>,
    ) -> StoreResult<u64> {
        let mut txn = self.begin().await?;
        let mut query = self
            .query(sql)
            .bind(owner.key.consumer.as_str())
            .bind(&*owner.key.topic)
            .bind(owner.key.partition)
            .bind(owner.epoch);
        if let Some(extra) = extra {
            query = query.bind(extra);
        }
        let changed = query.execute(&mut *txn).await.map_err(own("updating a position"))?.rows_affected();
        txn.commit(PLAIN_COMMIT).await.map_err(own("updating a position"))?;
        Ok(changed)
    }

    pub(crate) async fn record_one_attempt(&self, owner: &Ownership, offset: i64) -> StoreResult<u32> {
        let mut txn = self.begin().await?;
        let row = self
            .query(RECORD_ATTEMPT)
            .bind(owner.key.consumer.as_str())
            .bind(&*owner.key.topic)
            .bind(owner.key.partition)
            .bind(owner.epoch)
            .bind(offset)
            .fetch_optional(&mut *txn)
            .await
            .map_err(own("recording an attempt"))?;
        let Some(row) = row else {
            txn.rollback().await;
            return Err(StoreError::fenced("recording an attempt"));
        };
        let attempts: i32 = row.try_get(0).map_err(own("recording an attempt"))?;
        txn.commit(PLAIN_COMMIT).await.map_err(own("recording an attempt"))?;
        Ok(attempts.unsigned_abs())
    }
}

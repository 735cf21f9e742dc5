//! Who may advance a position, from where, and how operators move it.

use oncebox_core::names::ConsumerName;
use oncebox_core::source::{LogId, LogMark};
use oncebox_core::store::{ErrorClass, Ownership, PositionKey, Progress, StoreError, StoreResult};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Postgres, Row};

use crate::classify::own;
use crate::quote::literal;
use crate::store::PgStore;
use crate::txn::STILL_OPEN;

/// Makes the position if there is none, and locks it.
const LOCK: &str = "INSERT INTO oncebox_position AS p (consumer, topic, partition, epoch) VALUES ($1, $2, $3, 0) \
     ON CONFLICT (consumer, topic, partition) DO UPDATE SET epoch = p.epoch RETURNING p.retired_at IS NOT NULL";

const ACQUIRE: &str = "WITH passed AS (DELETE FROM oncebox_attempt a USING oncebox_position p \
         WHERE p.consumer = $1 AND p.topic = $2 AND p.partition = $3 AND a.consumer = $1 AND a.topic = $2 \
             AND a.partition = $3 AND a.\"offset\" < p.next_offset) \
     UPDATE oncebox_position p SET epoch = epoch + 1, starts = starts + 1, retired_at = NULL \
     WHERE consumer = $1 AND topic = $2 AND partition = $3 \
     RETURNING next_offset, epoch, starts, log, mark_offset, mark_digest, floor, commits, EXISTS (SELECT FROM oncebox_attempt a \
         WHERE a.consumer = p.consumer AND a.topic = p.topic AND a.partition = p.partition \
             AND (p.next_offset IS NULL OR a.\"offset\" >= p.next_offset))";

const RELEASE: &str = "WITH mine AS (UPDATE oncebox_position SET starts = 0 \
         WHERE consumer = $1 AND topic = $2 AND partition = $3 AND epoch = $4 RETURNING consumer, topic, partition) \
     DELETE FROM oncebox_attempt a USING mine m \
     WHERE a.consumer = m.consumer AND a.topic = m.topic AND a.partition = m.partition";

/// Locks the position: an attempt must not be written by an owner that has just been replaced.
const RECORD_ATTEMPT: &str = "WITH mine AS (SELECT consumer, topic, partition FROM oncebox_position \
         WHERE consumer = $1 AND topic = $2 AND partition = $3 AND epoch = $4 FOR UPDATE) \
     INSERT INTO oncebox_attempt AS a (consumer, topic, partition, \"offset\", attempts) \
     SELECT consumer, topic, partition, $5, 1 FROM mine \
     ON CONFLICT (consumer, topic, partition, \"offset\") DO UPDATE SET attempts = a.attempts + 1 \
     RETURNING a.attempts";

/// The last one goes with its row.
const WITHDRAW_ATTEMPT: &str = "WITH mine AS (SELECT consumer, topic, partition FROM oncebox_position \
         WHERE consumer = $1 AND topic = $2 AND partition = $3 AND epoch = $4 FOR UPDATE), \
     last AS (DELETE FROM oncebox_attempt a USING mine m WHERE a.consumer = m.consumer AND a.topic = m.topic \
         AND a.partition = m.partition AND a.\"offset\" = $5 AND a.attempts <= 1) \
     UPDATE oncebox_attempt a SET attempts = a.attempts - 1 FROM mine m WHERE a.consumer = m.consumer \
         AND a.topic = m.topic AND a.partition = m.partition AND a.\"offset\" = $5 AND a.attempts > 1";

const MOVE: &str = "WITH forgotten AS (DELETE FROM oncebox_attempt \
         WHERE consumer = $1 AND topic = $2 AND partition = $3) \
     INSERT INTO oncebox_position AS p (consumer, topic, partition, epoch, next_offset, floor, log) \
     VALUES ($1, $2, $3, 1, $4, $4, $5) \
     ON CONFLICT (consumer, topic, partition) DO UPDATE SET epoch = p.epoch + 1, starts = 0, next_offset = $4, \
         floor = $4, log = $5, mark_offset = NULL, mark_digest = NULL, caught_up_at = NULL, retired_at = NULL";

const RETIRE: &str = "WITH retired AS (UPDATE oncebox_position SET retired_at = clock_timestamp() \
         WHERE consumer = $1 AND topic = $2 AND retired_at IS NULL RETURNING partition), \
     forgotten AS (DELETE FROM oncebox_attempt a USING retired r \
         WHERE a.consumer = $1 AND a.topic = $2 AND a.partition = r.partition) \
     SELECT count(*) FROM retired";

impl PgStore {
    pub(crate) async fn acquire_position(&self, key: &PositionKey) -> StoreResult<Ownership> {
        let failed = || own("acquiring a position");
        let mut txn = self.begin().await?;
        let was_retired: bool = self
            .of_position(LOCK, key)
            .fetch_one(&mut *txn)
            .await
            .and_then(|row| row.try_get(0))
            .map_err(failed())?;
        let row = self.of_position(ACQUIRE, key).fetch_one(&mut *txn).await.map_err(failed())?;
        let ownership = ownership(key, &row, was_retired).map_err(failed())?;
        txn.commit(STILL_OPEN).await.map_err(failed())?;
        Ok(ownership)
    }

    pub(crate) async fn write_progress(&self, owner: &Ownership, progress: Progress<'_>) -> StoreResult<()> {
        let context = "writing down how far a partition is";
        let txn = self.begin().await?;
        let last = advance_call(context, owner, &progress, None)?;
        txn.commit(&last).await.map_err(own(context))
    }

    pub(crate) async fn release_position(&self, owner: &Ownership) -> StoreResult<()> {
        let failed = || own("releasing a position");
        let mut txn = self.begin().await?;
        self.of_owner(RELEASE, owner).execute(&mut *txn).await.map_err(failed())?;
        txn.commit(STILL_OPEN).await.map_err(failed())
    }

    pub(crate) async fn record_one_attempt(&self, owner: &Ownership, offset: i64) -> StoreResult<u32> {
        let failed = || own("recording an attempt");
        let mut txn = self.begin().await?;
        let row = self
            .of_owner(RECORD_ATTEMPT, owner)
            .bind(offset)
            .fetch_optional(&mut *txn)
            .await
            .map_err(failed())?;
        let Some(row) = row else {
            txn.rollback().await;
            return Err(StoreError::fenced("recording an attempt"));
        };
        let attempts: i32 = row.try_get(0).map_err(failed())?;
        txn.commit(STILL_OPEN).await.map_err(failed())?;
        Ok(attempts.unsigned_abs())
    }

    pub(crate) async fn take_attempt_back(&self, owner: &Ownership, offset: i64) -> StoreResult<()> {
        let failed = || own("withdrawing an attempt");
        let mut txn = self.begin().await?;
        let withdraw = self.of_owner(WITHDRAW_ATTEMPT, owner).bind(offset);
        withdraw.execute(&mut *txn).await.map_err(failed())?;
        txn.commit(STILL_OPEN).await.map_err(failed())
    }

    pub(crate) async fn move_position_to(
        &self,
        key: &PositionKey,
        next_offset: i64,
        log: Option<&LogId>,
    ) -> StoreResult<()> {
        let failed = || own("moving a position");
        let mut txn = self.begin_aside().await?;
        let change = self.of_position(MOVE, key).bind(next_offset).bind(log.map(LogId::as_str));
        change.execute(&mut *txn).await.map_err(failed())?;
        txn.commit(STILL_OPEN).await.map_err(failed())
    }

    pub(crate) async fn retire_topic(&self, consumer: &ConsumerName, topic: &str) -> StoreResult<u64> {
        let failed = || own("retiring positions");
        let mut txn = self.begin_aside().await?;
        let retired: i64 = self
            .query(RETIRE)
            .bind(consumer.as_str())
            .bind(topic)
            .fetch_one(&mut *txn)
            .await
            .and_then(|row| row.try_get(0))
            .map_err(failed())?;
        txn.commit(STILL_OPEN).await.map_err(failed())?;
        Ok(retired.unsigned_abs())
    }

    fn of_position<'q>(&self, sql: &'static str, key: &'q PositionKey) -> Query<'q, Postgres, PgArguments> {
        self.query(sql).bind(key.consumer.as_str()).bind(&*key.topic).bind(key.partition)
    }

    fn of_owner<'q>(&self, sql: &'static str, owner: &'q Ownership) -> Query<'q, Postgres, PgArguments> {
        self.of_position(sql, &owner.key).bind(owner.epoch)
    }
}

fn ownership(key: &PositionKey, row: &PgRow, was_retired: bool) -> Result<Ownership, sqlx::Error> {
    let (offset, digest): (Option<i64>, Option<i64>) = (row.try_get(4)?, row.try_get(5)?);
    Ok(Ownership {
        key: key.clone(),
        next_offset: row.try_get(0)?,
        epoch: row.try_get(1)?,
        starts: row.try_get::<i32, _>(2)?.unsigned_abs(),
        log: row.try_get::<Option<String>, _>(3)?.map(LogId::new),
        mark: offset.zip(digest).map(|(offset, digest)| LogMark { offset, digest }),
        floor: row.try_get(6)?,
        was_retired,
        commits: row.try_get(7)?,
        attempts_recorded: row.try_get(8)?,
    })
}

/// The call of `oncebox_advance`, with what was applied and how many duplicates there were. Literals and no parameters,
/// because only a message without parameters can carry several statements.
pub(crate) fn advance_call(
    context: &'static str,
    owner: &Ownership,
    progress: &Progress<'_>,
    counts: Option<(u64, u64)>,
) -> StoreResult<String> {
    let Ownership { key, epoch, .. } = owner;
    let log = progress.log.map(LogId::as_str);
    if key.topic.contains('\0') || log.is_some_and(|log| log.contains('\0')) {
        return Err(StoreError::new(ErrorClass::Failed, context, "the topic or its log's id contains NUL"));
    }
    let values = [
        literal(key.consumer.as_str()),
        literal(&key.topic),
        key.partition.to_string(),
        epoch.to_string(),
        number(progress.at_least),
        number(progress.next_offset),
        log.map_or_else(|| NULL.to_owned(), literal),
        number(progress.mark.map(|mark| mark.offset)),
        number(progress.mark.map(|mark| mark.digest)),
        number(progress.caught_up_ms),
        number(counts.map(|(applied, _)| applied)),
        number(counts.map(|(_, duplicates)| duplicates)),
        number(progress.commits),
    ];
    Ok(format!("SELECT oncebox_advance({})", values.join(", ")))
}

const NULL: &str = "NULL";

/// In quotes, because PostgreSQL reads the lowest bigint as the negative of a number that is none.
fn number<N: std::fmt::Display>(value: Option<N>) -> String {
    value.map_or_else(|| NULL.to_owned(), |value| format!("'{value}'"))
}

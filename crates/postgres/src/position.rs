//! Positions: how far a consumer has come, and who may advance it.

mod attempts;
mod operator;

use oncebox_core::names::ConsumerName;
use oncebox_core::source::{LogId, LogMark};
use oncebox_core::store::{
    Advance, Cause, Duplicates, ErrorClass, Ownership, PositionKey, Positions, Progress, StoreError,
    StoreResult,
};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::classify::Context;
use crate::quote::literal;
use crate::store::{PgStore, Query};

impl Positions for PgStore {
    async fn acquire(&self, key: &PositionKey) -> StoreResult<Ownership> {
        /// Makes the position if there is none, and locks it.
        const LOCK: &str = "INSERT INTO oncebox_position AS p (consumer, topic, partition, epoch) VALUES ($1, $2, $3, 0) \
             ON CONFLICT (consumer, topic, partition) DO UPDATE SET epoch = p.epoch RETURNING p.retired_at IS NOT NULL";
        /// Attempts below the position say nothing any more: what lies there is settled.
        const ACQUIRE: &str = "WITH passed AS (DELETE FROM oncebox_attempt a USING oncebox_position p \
                 WHERE p.consumer = $1 AND p.topic = $2 AND p.partition = $3 AND a.consumer = $1 AND a.topic = $2 \
                     AND a.partition = $3 AND a.\"offset\" < p.next_offset) \
             UPDATE oncebox_position p SET epoch = epoch + 1, starts = starts + 1, retired_at = NULL \
             WHERE consumer = $1 AND topic = $2 AND partition = $3 \
             RETURNING next_offset, epoch, starts, log, mark_offset, mark_digest, floor, commits, settled_to, rewound_to, \
                 EXISTS (SELECT FROM oncebox_attempt a \
                 WHERE a.consumer = p.consumer AND a.topic = p.topic AND a.partition = p.partition \
                     AND (p.next_offset IS NULL OR a.\"offset\" >= p.next_offset))";
        let doing = "taking over a position";
        self.patiently(doing, async {
            let mut txn = self.begin().await?;
            let locked = of(self, LOCK, key).fetch_one(&mut *txn).await.context(doing)?;
            let row = of(self, ACQUIRE, key).fetch_one(&mut *txn).await.context(doing)?;
            let owner = read(key, &locked, &row).context(doing)?;
            txn.commit_own(doing).await?;
            Ok(owner)
        })
        .await
    }

    async fn record_progress(&self, owner: &Ownership, progress: Progress<'_>) -> StoreResult<()> {
        let doing = "writing down how far a partition is";
        self.patiently(doing, async {
            let txn = self.begin().await?;
            let last = moving(owner, &progress, None, doing)?;
            txn.commit_after(&last).await.context(doing)
        })
        .await
    }

    async fn release(&self, owner: &Ownership) -> StoreResult<()> {
        const RELEASE: &str = "WITH mine AS (UPDATE oncebox_position SET starts = 0 \
                 WHERE consumer = $1 AND topic = $2 AND partition = $3 AND epoch = $4 RETURNING consumer, topic, partition) \
             DELETE FROM oncebox_attempt a USING mine m \
             WHERE a.consumer = m.consumer AND a.topic = m.topic AND a.partition = m.partition";
        let doing = "releasing a position";
        self.patiently(doing, async {
            let mut txn = self.begin().await?;
            of_owner(self, RELEASE, owner).execute(&mut *txn).await.context(doing)?;
            txn.commit_own(doing).await
        })
        .await
    }

    async fn record_attempt(&self, owner: &Ownership, offset: i64) -> StoreResult<u32> {
        self.patiently("recording an attempt", attempts::record_attempt(self, owner, offset)).await
    }

    async fn withdraw_attempt(&self, owner: &Ownership, offset: i64) -> StoreResult<()> {
        self.patiently("withdrawing an attempt", attempts::withdraw_attempt(self, owner, offset)).await
    }

    async fn move_position(
        &self,
        key: &PositionKey,
        next_offset: i64,
        log: Option<&LogId>,
    ) -> StoreResult<()> {
        self.patiently("moving a position", operator::move_position(self, key, next_offset, log)).await
    }

    async fn retire_positions(&self, consumer: &ConsumerName, topic: &str) -> StoreResult<u64> {
        self.patiently("retiring positions", operator::retire_positions(self, consumer, topic)).await
    }
}

fn read(key: &PositionKey, locked: &PgRow, row: &PgRow) -> sqlx::Result<Ownership> {
    let (offset, digest): (Option<i64>, Option<i64>) = (row.try_get(4)?, row.try_get(5)?);
    Ok(Ownership {
        key: key.clone(),
        next_offset: row.try_get(0)?,
        epoch: row.try_get(1)?,
        starts: row.try_get::<i32, _>(2)?.unsigned_abs(),
        log: row.try_get::<Option<String>, _>(3)?.map(LogId::new),
        mark: offset.zip(digest).map(|(offset, digest)| LogMark { offset, digest }),
        floor: row.try_get(6)?,
        was_retired: locked.try_get(0)?,
        commits: row.try_get(7)?,
        settled_to: row.try_get(8)?,
        rewound_to: row.try_get(9)?,
        attempts_recorded: row.try_get(10)?,
    })
}

/// The statements that move the position, for the message that also commits.
pub(crate) fn advance(advance: &Advance<'_>, doing: &str) -> StoreResult<String> {
    let Advance { owner, progress, applied, duplicates, finished_attempt } = advance;
    let moving = moving(owner, progress, Some((*applied, *duplicates)), doing)?;
    Ok(match finished_attempt {
        Some(offset) => format!("{}; {moving}", attempts::forget(&owner.key, *offset)),
        None => moving,
    })
}

/// The call of `oncebox_advance`, which fails for anybody but the owner, with how many messages were applied and how many
/// were duplicates. Literals and no parameters, because only a message without parameters can carry several statements.
fn moving(
    owner: &Ownership,
    progress: &Progress<'_>,
    counts: Option<(u64, Duplicates)>,
    doing: &str,
) -> StoreResult<String> {
    let Ownership { key, epoch, .. } = owner;
    let log = progress.log.map(LogId::as_str);
    if key.topic.contains('\0') || log.is_some_and(|log| log.contains('\0')) {
        return Err(StoreError::new(ErrorClass::Failed, doing, "the topic or its log's id contains NUL"));
    }
    let caused =
        |cause| number(counts.map(|(_, duplicates)| duplicates.of(cause)).filter(|count| *count > 0));
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
        number(counts.map(|(_, duplicates)| duplicates.total())),
        number(progress.commits),
        number(progress.settled_to),
        number(progress.rewound_to),
        caused(Cause::Redelivered),
        caused(Cause::Rewound),
        caused(Cause::PublishedTwice),
    ];
    Ok(format!("SELECT oncebox_advance({})", values.join(", ")))
}

const NULL: &str = "NULL";

/// In quotes, because PostgreSQL reads the lowest bigint as the negative of a number that does not fit.
fn number<N: std::fmt::Display>(value: Option<N>) -> String {
    value.map_or_else(|| NULL.to_owned(), |value| format!("'{value}'"))
}

fn of<'q>(store: &PgStore, sql: &'static str, key: &'q PositionKey) -> Query<'q> {
    store.query(sql).bind(key.consumer.as_str()).bind(&*key.topic).bind(key.partition)
}

fn of_owner<'q>(store: &PgStore, sql: &'static str, owner: &'q Ownership) -> Query<'q> {
    of(store, sql, &owner.key).bind(owner.epoch)
}

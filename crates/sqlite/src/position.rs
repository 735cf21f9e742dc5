//! Positions: how far a consumer has come, and who may advance it.

mod attempts;
mod operator;

use oncebox_core::names::ConsumerName;
use oncebox_core::source::{LogId, LogMark};
use oncebox_core::store::{
    Advance, Cause, Ownership, PositionKey, Positions, Progress, StoreError, StoreResult,
};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};

use crate::classify::Context;
use crate::store::{Query, SqliteStore};
use crate::time::{now, stored};
use crate::txn::SqliteTxn;

/// What a [`Progress`] changes. SQLite's clock is the one of this machine, so nobody is caught up later than that.
macro_rules! set_progress {
    () => {
        concat!(
            "UPDATE oncebox_position
             SET next_offset = coalesce(max(next_offset, ?5), next_offset, ?5),
                 log = coalesce(?6, log),
                 mark_digest = CASE WHEN ?7 >= coalesce(mark_offset, ?7) THEN ?8 ELSE mark_digest END,
                 mark_offset = coalesce(max(mark_offset, ?7), mark_offset, ?7),
                 caught_up_at = coalesce(max(caught_up_at, min(?9, ",
            now!(),
            ")), caught_up_at, min(?9, ",
            now!(),
            ")),
                 settled_to = coalesce(max(settled_to, ?12), settled_to, ?12),
                 rewound_to = coalesce(max(rewound_to, ?13), rewound_to, ?13)"
        )
    };
}

macro_rules! if_owner {
    () => {
        " WHERE consumer = ?1 AND topic = ?2 AND partition = ?3 AND epoch = ?4"
    };
}
use if_owner;

/// Only for the owner, and only in a database that knows what the owner was told is committed: one that failed over to an
/// older state is not written on.
macro_rules! if_owner_at_least {
    () => {
        concat!(if_owner!(), " AND (?10 IS NULL OR next_offset >= ?10) AND (?11 IS NULL OR commits >= ?11)")
    };
}

impl Positions for SqliteStore {
    async fn acquire(&self, key: &PositionKey) -> StoreResult<Ownership> {
        const WAS_RETIRED: &str = "SELECT retired_at IS NOT NULL FROM oncebox_position
             WHERE consumer = ?1 AND topic = ?2 AND partition = ?3";
        // Attempts below the position say nothing any more: what lies there is settled.
        const FORGET_SETTLED: &str = r#"DELETE FROM oncebox_attempt
             WHERE consumer = ?1 AND topic = ?2 AND partition = ?3 AND "offset" < (SELECT next_offset
                 FROM oncebox_position WHERE consumer = ?1 AND topic = ?2 AND partition = ?3)"#;
        // `updated_at` and `caught_up_at` stay as they are: taking over is not progress.
        const ACQUIRE: &str = "
            INSERT INTO oncebox_position AS mine (consumer, topic, partition, epoch, starts) VALUES (?1, ?2, ?3, 1, 1)
            ON CONFLICT (consumer, topic, partition) DO UPDATE
            SET epoch = mine.epoch + 1, starts = mine.starts + 1, retired_at = NULL
            RETURNING epoch, next_offset, log, mark_offset, mark_digest, floor, starts, commits, settled_to, rewound_to,
                EXISTS (SELECT 1 FROM oncebox_attempt WHERE consumer = ?1 AND topic = ?2 AND partition = ?3) AS attempted";
        let doing = "taking over a position";
        let mut txn = self.begin().await?;
        let before = of(WAS_RETIRED, key).fetch_optional(&mut *txn).await.context(doing)?;
        of(FORGET_SETTLED, key).execute(&mut *txn).await.context(doing)?;
        let row = of(ACQUIRE, key).fetch_one(&mut *txn).await.context(doing)?;
        let owner = read(key, before.as_ref(), &row).context(doing)?;
        txn.commit_own(doing).await?;
        Ok(owner)
    }

    async fn record_progress(&self, owner: &Ownership, progress: Progress<'_>) -> StoreResult<()> {
        const RECORD_PROGRESS: &str = concat!(set_progress!(), if_owner_at_least!());
        let doing = "writing down how far a partition is";
        let mut txn = self.begin().await?;
        let update = progressing(RECORD_PROGRESS, owner, &progress);
        let done = update.execute(&mut *txn).await.context(doing)?;
        if done.rows_affected() == 0 {
            return Err(undo(txn, owner).await);
        }
        txn.commit_own(doing).await
    }

    async fn release(&self, owner: &Ownership) -> StoreResult<()> {
        const RELEASE: &str = concat!("UPDATE oncebox_position SET starts = 0", if_owner!());
        let doing = "releasing a position";
        let mut txn = self.begin().await?;
        let released = of(RELEASE, &owner.key).bind(owner.epoch).execute(&mut *txn).await.context(doing)?;
        if released.rows_affected() > 0 {
            attempts::forget_all(&mut txn, &owner.key).await?;
        }
        txn.commit_own(doing).await
    }

    async fn record_attempt(&self, owner: &Ownership, offset: i64) -> StoreResult<u32> {
        attempts::record_attempt(self, owner, offset).await
    }

    async fn withdraw_attempt(&self, owner: &Ownership, offset: i64) -> StoreResult<()> {
        attempts::withdraw_attempt(self, owner, offset).await
    }

    async fn move_position(
        &self,
        key: &PositionKey,
        next_offset: i64,
        log: Option<&LogId>,
    ) -> StoreResult<()> {
        operator::move_position(self, key, next_offset, log).await
    }

    async fn retire_positions(&self, consumer: &ConsumerName, topic: &str) -> StoreResult<u64> {
        operator::retire_positions(self, consumer, topic).await
    }
}

fn read(key: &PositionKey, before: Option<&SqliteRow>, row: &SqliteRow) -> sqlx::Result<Ownership> {
    let mark = (row.try_get("mark_offset")?, row.try_get("mark_digest")?);
    let log: Option<String> = row.try_get("log")?;
    Ok(Ownership {
        key: key.clone(),
        epoch: row.try_get("epoch")?,
        next_offset: row.try_get("next_offset")?,
        log: log.map(LogId::new),
        mark: if let (Some(offset), Some(digest)) = mark { Some(LogMark { offset, digest }) } else { None },
        floor: row.try_get("floor")?,
        was_retired: before.map(|row| row.try_get(0)).transpose()?.unwrap_or(false),
        commits: row.try_get("commits")?,
        starts: row.try_get("starts")?,
        attempts_recorded: row.try_get("attempted")?,
        settled_to: row.try_get("settled_to")?,
        rewound_to: row.try_get("rewound_to")?,
    })
}

/// Binds what [`set_progress!`] and [`if_owner_at_least!`] want.
fn progressing(sql: &'static str, owner: &Ownership, progress: &Progress<'_>) -> Query {
    of(sql, &owner.key)
        .bind(owner.epoch)
        .bind(progress.next_offset)
        .bind(progress.log.map(LogId::as_str))
        .bind(progress.mark.map(|mark| mark.offset))
        .bind(progress.mark.map(|mark| mark.digest))
        .bind(progress.caught_up_ms.map(stored))
        .bind(progress.at_least)
        .bind(progress.commits)
        .bind(progress.settled_to)
        .bind(progress.rewound_to)
}

// Messages that are applied say that the log lives. Only a commit that moves the next offset is progress: a lane that runs
// ahead says nothing about the message that holds it.
const ADVANCE: &str = concat!(
    set_progress!(),
    ", starts = CASE WHEN ?5 > coalesce(next_offset, -1) THEN 0 ELSE starts END, commits = commits + 1, retired_at = NULL, applied = applied + ?14, duplicates = duplicates + ?15,
        redelivered = redelivered + ?16, rewound = rewound + ?17, published_twice = published_twice + ?18, updated_at = ",
    now!(),
    if_owner_at_least!()
);

/// Moves the position inside a transaction that is about to commit.
pub(crate) async fn advance(conn: &mut SqliteConnection, advance: &Advance<'_>) -> StoreResult<()> {
    let Advance { owner, progress, applied, duplicates, finished_attempt } = advance;
    let moved = progressing(ADVANCE, owner, progress)
        .bind(stored_count(*applied))
        .bind(stored_count(duplicates.total()))
        .bind(stored_count(duplicates.of(Cause::Redelivered)))
        .bind(stored_count(duplicates.of(Cause::Rewound)))
        .bind(stored_count(duplicates.of(Cause::PublishedTwice)))
        .execute(&mut *conn)
        .await
        .context("moving the position")?;
    if moved.rows_affected() == 0 {
        return Err(fenced(owner));
    }
    if let Some(offset) = finished_attempt {
        attempts::forget(conn, &owner.key, *offset).await?;
    }
    Ok(())
}

fn stored_count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

async fn undo(txn: SqliteTxn, owner: &Ownership) -> StoreError {
    txn.rollback().await;
    fenced(owner)
}

fn fenced(owner: &Ownership) -> StoreError {
    StoreError::fenced(owner.key.to_string())
}

fn of(sql: &'static str, key: &PositionKey) -> Query {
    sqlx::query(sql).bind(key.consumer.as_str()).bind(key.topic.as_ref()).bind(key.partition)
}

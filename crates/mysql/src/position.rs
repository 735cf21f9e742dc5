//! Positions: how far a consumer has come, and who may advance it.

mod attempts;
mod operator;

use oncebox_core::names::ConsumerName;
use oncebox_core::source::{LogId, LogMark};
use oncebox_core::store::{
    Advance, Cause, Duplicates, Ownership, PositionKey, Positions, Progress, StoreError, StoreResult,
};
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Row};

use crate::classify::Context;
use crate::quote::{number, text};
use crate::store::MysqlStore;
use crate::txn::MysqlTxn;

/// Everybody locks a position before its attempts, so that nobody waits for each other.
impl Positions for MysqlStore {
    async fn acquire(&self, key: &PositionKey) -> StoreResult<Ownership> {
        let doing = "taking over a position";
        let this = of_key(key);
        // Makes the position if there is none, and locks it. Attempts below it say nothing any more: what lies there is settled.
        let lock = format!(
            "INSERT INTO oncebox_position (consumer, topic, `partition`, epoch) VALUES ({}, {}, {}, 0) \
             ON DUPLICATE KEY UPDATE epoch = epoch; \
             DELETE FROM oncebox_attempt WHERE {this} \
                 AND `offset` < (SELECT p.next_offset FROM oncebox_position AS p WHERE {this}); \
             SELECT next_offset, epoch + 1 AS epoch, starts + 1 AS starts, log, mark_offset, mark_digest, floor, commits, \
                 settled_to, rewound_to, \
                 retired_at IS NOT NULL AS was_retired, \
                 EXISTS (SELECT 1 FROM oncebox_attempt AS a WHERE {}) AS attempted FROM oncebox_position WHERE {this}",
            text(key.consumer.as_str()),
            text(&key.topic),
            key.partition,
            this,
        );
        // `updated_at` and `caught_up_at` stay as they are: taking over is not progress.
        let take_over = format!(
            "UPDATE oncebox_position SET epoch = epoch + 1, starts = starts + 1, retired_at = NULL WHERE {this}"
        );
        self.patiently(doing, async {
            let mut txn = self.begin().await?;
            let rows = sqlx::raw_sql(AssertSqlSafe(lock)).fetch_all(&mut *txn).await.context(doing)?;
            let row = rows.first().ok_or(sqlx::Error::RowNotFound).context(doing)?;
            let owner = read(key, row).context(doing)?;
            txn.commit_after(&take_over).await.context(doing)?;
            Ok(owner)
        })
        .await
    }

    async fn record_progress(&self, owner: &Ownership, progress: Progress<'_>) -> StoreResult<()> {
        let doing = "writing down how far a partition is";
        self.patiently(doing, async {
            let txn = self.begin().await?;
            txn.commit_after(&moving(owner, &progress, None)).await.context_of_commit(doing)
        })
        .await
    }

    async fn release(&self, owner: &Ownership) -> StoreResult<()> {
        let doing = "releasing a position";
        self.patiently(doing, async {
            let Some(txn) = lock_own(self, owner).await? else { return Ok(()) };
            let release = format!(
                "UPDATE oncebox_position SET starts = 0 WHERE {}; {}",
                of_key(&owner.key),
                attempts::forget_all(&owner.key)
            );
            txn.commit_after(&release).await.context(doing)
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

fn read(key: &PositionKey, row: &MySqlRow) -> sqlx::Result<Ownership> {
    let (offset, digest): (Option<i64>, Option<i64>) =
        (row.try_get("mark_offset")?, row.try_get("mark_digest")?);
    let starts: i64 = row.try_get("starts")?;
    Ok(Ownership {
        key: key.clone(),
        next_offset: row.try_get("next_offset")?,
        epoch: row.try_get("epoch")?,
        starts: u32::try_from(starts).unwrap_or(u32::MAX),
        log: row.try_get::<Option<String>, _>("log")?.map(LogId::new),
        mark: offset.zip(digest).map(|(offset, digest)| LogMark { offset, digest }),
        floor: row.try_get("floor")?,
        was_retired: row.try_get("was_retired")?,
        commits: row.try_get("commits")?,
        attempts_recorded: row.try_get("attempted")?,
        settled_to: row.try_get("settled_to")?,
        rewound_to: row.try_get("rewound_to")?,
    })
}

/// Opens a transaction that holds the owner's position. `None` if it has another owner.
async fn lock_own(store: &MysqlStore, owner: &Ownership) -> StoreResult<Option<MysqlTxn>> {
    let doing = "looking for the owner of a position";
    let lock = format!(
        "SELECT 1 FROM oncebox_position WHERE {} AND epoch = {} FOR UPDATE",
        of_key(&owner.key),
        owner.epoch
    );
    let mut txn = store.begin().await?;
    let rows = sqlx::raw_sql(AssertSqlSafe(lock)).fetch_all(&mut *txn).await.context(doing)?;
    if rows.is_empty() {
        txn.rollback().await;
        return Ok(None);
    }
    Ok(Some(txn))
}

fn fenced(owner: &Ownership) -> StoreError {
    StoreError::fenced(owner.key.to_string())
}

/// The statements that move the position, for the message that also commits.
pub(crate) fn advance(advance: &Advance<'_>) -> String {
    let Advance { owner, progress, applied, duplicates, finished_attempt } = advance;
    let moving = moving(owner, progress, Some((*applied, *duplicates)));
    match finished_attempt {
        Some(offset) => format!("{moving}; {}", attempts::forget(&owner.key, *offset)),
        None => moving,
    }
}

/// Writes down how far a partition is, if it still belongs to the owner with that epoch and is at least where the owner was
/// told that it is: a database that failed over to an older state is not written on. NULL leaves a value as it is. Offsets and
/// the time up to which the partition is caught up never go back, and that time is never later than now. Without counts there
/// were no messages: then nothing says that the owner makes progress, or that the log lives. And only a commit that moves the
/// next offset is progress: a lane that runs ahead says nothing about the message that holds it.
///
/// The second statement fails with 1242 unless the first one found its row, and so nothing is committed. Assignments are made
/// from left to right, and later ones see the earlier: `starts` and `mark_digest` stand before what they compare with.
fn moving(owner: &Ownership, progress: &Progress<'_>, counts: Option<(u64, Duplicates)>) -> String {
    let mut set = Vec::new();
    if let Some((applied, duplicates)) = counts {
        if let Some(next) = progress.next_offset {
            set.push(format!("starts = IF({next} > COALESCE(next_offset, -1), 0, starts)"));
        }
        set.push(format!(
            "commits = commits + 1, retired_at = NULL, applied = applied + {applied}, \
             duplicates = duplicates + {}, updated_at = UTC_TIMESTAMP(6)",
            duplicates.total()
        ));
        for (column, cause) in CAUSES {
            let count = duplicates.of(cause);
            if count > 0 {
                set.push(format!("{column} = {column} + {count}"));
            }
        }
    }
    if let Some(next) = progress.next_offset {
        set.push(format!("next_offset = GREATEST(COALESCE(next_offset, {next}), {next})"));
    }
    for (column, offset) in [("settled_to", progress.settled_to), ("rewound_to", progress.rewound_to)] {
        if let Some(offset) = offset {
            set.push(format!("{column} = GREATEST(COALESCE({column}, {offset}), {offset})"));
        }
    }
    if let Some(log) = progress.log.map(LogId::as_str) {
        set.push(format!("log = {}", text(log)));
    }
    if let Some(mark) = progress.mark {
        let (offset, digest) = (mark.offset, mark.digest);
        set.push(format!("mark_digest = IF({offset} < mark_offset, mark_digest, {digest})"));
        set.push(format!("mark_offset = GREATEST(COALESCE(mark_offset, {offset}), {offset})"));
    }
    if let Some(ms) = progress.caught_up_ms {
        let ms = ms.clamp(0, crate::time::LAST_MS);
        let at = format!(
            "LEAST(TIMESTAMP'1970-01-01 00:00:00' + INTERVAL {ms} * 1000 MICROSECOND, UTC_TIMESTAMP(6))"
        );
        set.push(format!("caught_up_at = GREATEST(COALESCE(caught_up_at, {at}), {at})"));
    }
    if set.is_empty() {
        set.push("epoch = epoch".to_owned());
    }
    format!(
        "UPDATE oncebox_position SET {} WHERE {} AND epoch = {} AND ({at_least} IS NULL OR next_offset >= {at_least}) \
         AND ({commits} IS NULL OR commits >= {commits}); \
         SELECT IF(ROW_COUNT() = 1, 1, (SELECT 1 UNION ALL SELECT 2))",
        set.join(", "),
        of_key(&owner.key),
        owner.epoch,
        at_least = number(progress.at_least),
        commits = number(progress.commits),
    )
}

/// Where duplicates of a known cause are counted.
const CAUSES: [(&str, Cause); 3] = [
    ("redelivered", Cause::Redelivered),
    ("rewound", Cause::Rewound),
    ("published_twice", Cause::PublishedTwice),
];

/// The condition that finds the rows of a position.
fn of_key(key: &PositionKey) -> String {
    format!(
        "consumer = {} AND topic = {} AND `partition` = {}",
        text(key.consumer.as_str()),
        text(&key.topic),
        key.partition
    )
}

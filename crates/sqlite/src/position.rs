//! Positions: how far a consumer has come, and who may advance it.

use oncebox_core::{Advance, Ownership, PositionKey, StoreError, StoreResult};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};

use crate::classify::Context;
use crate::time::now;
use crate::txn::SqliteTxn;
use crate::writer::Writer;

// `updated_at` stays as it is: taking over is no progress, and the retention horizon must stand still until there is some.
const ACQUIRE: &str = r#"
    INSERT INTO oncebox_position AS mine (consumer, topic, partition, epoch, starts) VALUES (?1, ?2, ?3, 1, 1)
    ON CONFLICT (consumer, topic, partition) DO UPDATE SET epoch = mine.epoch + 1, starts = mine.starts + 1
    RETURNING epoch, next_offset, starts,
        EXISTS (SELECT 1 FROM oncebox_attempt WHERE consumer = ?1 AND topic = ?2 AND partition = ?3)"#;

const ADVANCE: &str = concat!(
    "UPDATE oncebox_position
     SET next_offset = coalesce(max(next_offset, ?5), next_offset, ?5), starts = 0,
         applied = applied + ?6, duplicates = duplicates + ?7, updated_at = ",
    now!(),
    " WHERE consumer = ?1 AND topic = ?2 AND partition = ?3 AND epoch = ?4"
);

const BEGIN_AT: &str = "UPDATE oncebox_position SET next_offset = coalesce(max(next_offset, ?5), ?5)
     WHERE consumer = ?1 AND topic = ?2 AND partition = ?3 AND epoch = ?4";

const RELEASE: &str = "UPDATE oncebox_position SET starts = 0
     WHERE consumer = ?1 AND topic = ?2 AND partition = ?3 AND epoch = ?4";

const IS_OWNER: &str = "SELECT 1 FROM oncebox_position
     WHERE consumer = ?1 AND topic = ?2 AND partition = ?3 AND epoch = ?4";

const RECORD_ATTEMPT: &str = r#"
    INSERT INTO oncebox_attempt AS mine (consumer, topic, partition, "offset", attempts) VALUES (?1, ?2, ?3, ?4, 1)
    ON CONFLICT (consumer, topic, partition, "offset") DO UPDATE SET attempts = mine.attempts + 1
    RETURNING attempts"#;

const SETTLE_ATTEMPT: &str = r#"DELETE FROM oncebox_attempt
     WHERE consumer = ?1 AND topic = ?2 AND partition = ?3 AND "offset" = ?4"#;

type Query = sqlx::query::Query<'static, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>;

fn of(sql: &'static str, key: &PositionKey) -> Query {
    sqlx::query(sql).bind(key.consumer.as_str()).bind(key.topic.as_ref()).bind(key.partition)
}

/// Takes over a position.
pub(crate) async fn acquire(writer: &Writer, key: &PositionKey) -> StoreResult<Ownership> {
    let mut txn = writer.begin().await?;
    let row = of(ACQUIRE, key).fetch_one(&mut *txn).await.context("taking over a position")?;
    let owner = read(key, &row).context("taking over a position")?;
    txn.commit(None).await?;
    Ok(owner)
}

fn read(key: &PositionKey, row: &SqliteRow) -> sqlx::Result<Ownership> {
    Ok(Ownership {
        key: key.clone(),
        epoch: row.try_get(0)?,
        next_offset: row.try_get(1)?,
        starts: row.try_get(2)?,
        attempts_recorded: row.try_get(3)?,
    })
}

/// Moves the position inside a transaction that is about to commit.
pub(crate) async fn advance(conn: &mut SqliteConnection, advance: &Advance<'_>) -> StoreResult<()> {
    let Advance { owner, next_offset, applied, duplicates, settled_attempt } = *advance;
    let moved = of(ADVANCE, &owner.key)
        .bind(owner.epoch)
        .bind(next_offset)
        .bind(i64::try_from(applied).unwrap_or(i64::MAX))
        .bind(i64::try_from(duplicates).unwrap_or(i64::MAX))
        .execute(&mut *conn)
        .await
        .context("moving the position")?;
    if moved.rows_affected() == 0 {
        return Err(fenced(owner));
    }
    if let Some(offset) = settled_attempt {
        of(SETTLE_ATTEMPT, &owner.key).bind(offset).execute(conn).await.context("settling an attempt")?;
    }
    Ok(())
}

/// Writes down where reading begins.
pub(crate) async fn begin_at(writer: &Writer, owner: &Ownership, next_offset: i64) -> StoreResult<()> {
    let doing = "writing down where reading begins";
    let mut txn = writer.begin().await?;
    let query = of(BEGIN_AT, &owner.key).bind(owner.epoch).bind(next_offset);
    let done = query.execute(&mut *txn).await.context(doing)?;
    if done.rows_affected() == 0 {
        return Err(undo(txn, owner).await);
    }
    txn.commit(None).await
}

/// Gives a position back in good order.
pub(crate) async fn release(writer: &Writer, owner: &Ownership) -> StoreResult<()> {
    let mut txn = writer.begin().await?;
    of(RELEASE, &owner.key).bind(owner.epoch).execute(&mut *txn).await.context("releasing a position")?;
    txn.commit(None).await
}

/// Writes down that an offset is about to be tried.
pub(crate) async fn record_attempt(writer: &Writer, owner: &Ownership, offset: i64) -> StoreResult<u32> {
    let doing = "recording an attempt";
    let mut txn = writer.begin().await?;
    let owned = of(IS_OWNER, &owner.key).bind(owner.epoch).fetch_optional(&mut *txn).await.context(doing)?;
    if owned.is_none() {
        return Err(undo(txn, owner).await);
    }
    let row = of(RECORD_ATTEMPT, &owner.key).bind(offset).fetch_one(&mut *txn).await.context(doing)?;
    let attempts = row.try_get(0).context(doing)?;
    txn.commit(None).await?;
    Ok(attempts)
}

async fn undo(txn: SqliteTxn, owner: &Ownership) -> StoreError {
    txn.rollback().await;
    fenced(owner)
}

fn fenced(owner: &Ownership) -> StoreError {
    StoreError::fenced(owner.key.to_string())
}

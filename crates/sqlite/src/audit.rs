//! What operators have done.

use std::time::Duration;

use oncebox_core::store::{Action, ActionNote, Audit, AuditEntry, AuditFilter, StoreResult};
use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Row};

use crate::classify::Context;
use crate::store::SqliteStore;
use crate::time::{before, millis, now, now_moved};

/// How many entries one step removes.
const STEP_ROWS: i64 = 1000;

impl Audit for SqliteStore {
    async fn begin_action(&self, action: &Action) -> StoreResult<i64> {
        const BEGIN: &str =
            "INSERT INTO oncebox_audit (who, action, consumer, parameters) VALUES (?1, ?2, ?3, ?4)
            RETURNING number";
        let doing = "writing the audit";
        let mut txn = self.begin().await?;
        let begin = sqlx::query(BEGIN).bind(action.who()).bind(action.action()).bind(action.consumer());
        let row = begin.bind(action.parameters().to_string()).fetch_one(&mut *txn).await.context(doing)?;
        let number = row.try_get(0).context(doing)?;
        txn.commit_own(doing).await?;
        Ok(number)
    }

    async fn note_action(&self, number: i64, note: &ActionNote) -> StoreResult<()> {
        const NOTE: &str = concat!(
            "UPDATE oncebox_audit SET result = coalesce(?2, result), error = coalesce(?3, error),
                ended_at = CASE WHEN ?4 THEN ",
            now!(),
            " ELSE ended_at END WHERE number = ?1"
        );
        let doing = "writing the audit";
        let mut txn = self.begin().await?;
        let told = sqlx::query(NOTE)
            .bind(number)
            .bind(note.result().map(ToString::to_string))
            .bind(note.error())
            .bind(note.is_over());
        told.execute(&mut *txn).await.context(doing)?;
        txn.commit_own(doing).await
    }

    async fn actions(&self, filter: &AuditFilter) -> StoreResult<Vec<AuditEntry>> {
        const LIST: &str = concat!(
            "SELECT number, ",
            millis!("at"),
            ", ",
            millis!("ended_at"),
            ", who, action, consumer, parameters, result, error FROM oncebox_audit WHERE number < "
        );
        let doing = "reading the audit";
        let mut query = QueryBuilder::new(LIST);
        query.push_bind(filter.before.unwrap_or(i64::MAX));
        let texts = [
            (" AND who = ", &filter.who),
            (" AND action = ", &filter.action),
            (" AND consumer = ", &filter.consumer),
        ];
        for (condition, text) in texts {
            if let Some(text) = text {
                query.push(condition).push_bind(text.clone());
            }
        }
        query.push(" ORDER BY number DESC LIMIT ").push_bind(filter.limit);
        let mut conn = self.reader().await?;
        let rows = query.build().persistent(false).fetch_all(&mut *conn).await.context(doing)?;
        rows.iter().map(entry).collect::<sqlx::Result<_>>().context(doing)
    }

    async fn purge_actions(&self, keep: Duration) -> StoreResult<u64> {
        const PURGE: &str = concat!(
            "DELETE FROM oncebox_audit WHERE number IN (SELECT number FROM oncebox_audit WHERE at < ",
            now_moved!("?1"),
            " ORDER BY at LIMIT ?2)"
        );
        let doing = "purging the audit";
        let mut purged = 0;
        loop {
            let mut txn = self.begin().await?;
            let step = sqlx::query(PURGE).bind(before(keep)).bind(STEP_ROWS);
            let removed = step.execute(&mut *txn).await.context(doing)?.rows_affected();
            txn.commit_own(doing).await?;
            purged += removed;
            if removed < STEP_ROWS.unsigned_abs() {
                return Ok(purged);
            }
        }
    }
}

fn entry(row: &SqliteRow) -> sqlx::Result<AuditEntry> {
    Ok(AuditEntry {
        number: row.try_get(0)?,
        at_ms: row.try_get(1)?,
        ended_at_ms: row.try_get(2)?,
        who: row.try_get(3)?,
        action: row.try_get(4)?,
        consumer: row.try_get(5)?,
        parameters: row.try_get::<&str, _>(6)?.parse().unwrap_or_default(),
        result: row.try_get::<Option<&str>, _>(7)?.map(|text| text.parse().unwrap_or_default()),
        error: row.try_get(8)?,
    })
}

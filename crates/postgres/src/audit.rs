//! What operators have done.

use std::time::Duration;

use oncebox_core::store::{Action, ActionNote, Audit, AuditEntry, AuditFilter, StoreResult};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::classify::Context;
use crate::store::PgStore;
use crate::time::milliseconds;

/// How many entries one step removes.
const STEP_ROWS: i64 = 1000;

impl Audit for PgStore {
    async fn begin_action(&self, action: &Action) -> StoreResult<i64> {
        const BEGIN: &str = "INSERT INTO oncebox_audit (who, action, consumer, parameters) VALUES ($1, $2, $3, $4::json) \
             RETURNING number";
        let doing = "writing the audit";
        self.patiently(doing, async {
            let mut txn = self.begin_aside().await?;
            let begin = self.query(BEGIN).bind(action.who()).bind(action.action()).bind(action.consumer());
            let row =
                begin.bind(action.parameters().to_string()).fetch_one(&mut *txn).await.context(doing)?;
            let number = row.try_get(0).context(doing)?;
            txn.commit_own(doing).await?;
            Ok(number)
        })
        .await
    }

    async fn note_action(&self, number: i64, note: &ActionNote) -> StoreResult<()> {
        const NOTE: &str = "UPDATE oncebox_audit SET result = COALESCE($2::json, result), error = COALESCE($3, error), \
             ended_at = CASE WHEN $4 THEN clock_timestamp() ELSE ended_at END WHERE number = $1";
        let doing = "writing the audit";
        self.patiently(doing, async {
            let mut txn = self.begin_aside().await?;
            let note = self
                .query(NOTE)
                .bind(number)
                .bind(note.result().map(ToString::to_string))
                .bind(note.error())
                .bind(note.is_over());
            note.execute(&mut *txn).await.context(doing)?;
            txn.commit_own(doing).await
        })
        .await
    }

    async fn actions(&self, filter: &AuditFilter) -> StoreResult<Vec<AuditEntry>> {
        const LIST: &str = "SELECT number, (extract(epoch FROM at) * 1000)::bigint, \
                 (extract(epoch FROM ended_at) * 1000)::bigint, who, action, consumer, parameters::text, result::text, error \
             FROM oncebox_audit WHERE number < $1 AND ($2::text IS NULL OR who = $2) \
                 AND ($3::text IS NULL OR action = $3) AND ($4::text IS NULL OR consumer = $4) \
             ORDER BY number DESC LIMIT $5";
        let doing = "reading the audit";
        self.patiently(doing, async {
            let mut txn = self.begin_aside().await?;
            let list = sqlx::query(LIST).persistent(false).bind(filter.before.unwrap_or(i64::MAX));
            let list = list.bind(&filter.who).bind(&filter.action).bind(&filter.consumer);
            let rows = list.bind(i64::from(filter.limit)).fetch_all(&mut *txn).await.context(doing)?;
            txn.rollback().await;
            rows.iter().map(entry).collect::<sqlx::Result<_>>().context(doing)
        })
        .await
    }

    async fn purge_actions(&self, keep: Duration) -> StoreResult<u64> {
        const PURGE: &str = "DELETE FROM oncebox_audit WHERE number IN (SELECT number FROM oncebox_audit \
             WHERE at < now() - $1 * interval '1 millisecond' ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED)";
        let doing = "purging the audit";
        let mut purged = 0;
        loop {
            let step = async {
                let mut txn = self.begin_aside().await?;
                let purge = self.query(PURGE).bind(milliseconds(keep)).bind(STEP_ROWS);
                let removed = purge.execute(&mut *txn).await.context(doing)?.rows_affected();
                txn.commit_own(doing).await?;
                Ok(removed)
            };
            let removed = self.patiently(doing, step).await?;
            purged += removed;
            if removed < STEP_ROWS.unsigned_abs() {
                return Ok(purged);
            }
        }
    }
}

fn entry(row: &PgRow) -> sqlx::Result<AuditEntry> {
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

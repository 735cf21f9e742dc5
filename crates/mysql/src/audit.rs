//! What operators have done.

use std::time::Duration;

use oncebox_core::store::{Action, ActionNote, Audit, AuditEntry, AuditFilter, StoreResult};
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Row};

use crate::classify::Context;
use crate::quote::push_text;
use crate::store::MysqlStore;
use crate::time::{in_ms, milliseconds};

/// How many entries one step removes.
const STEP_ROWS: u64 = 1000;

impl Audit for MysqlStore {
    async fn begin_action(&self, action: &Action) -> StoreResult<i64> {
        const BEGIN: &str =
            "INSERT INTO oncebox_audit (who, action, consumer, parameters) VALUES (?, ?, ?, ?)";
        let doing = "writing the audit";
        self.patiently(doing, async {
            let mut txn = self.begin_aside().await?;
            let begin = self.query(BEGIN).bind(action.who()).bind(action.action()).bind(action.consumer());
            let done = begin.bind(action.parameters().to_string()).execute(&mut *txn).await.context(doing)?;
            txn.commit_own(doing).await?;
            Ok(i64::try_from(done.last_insert_id()).unwrap_or(i64::MAX))
        })
        .await
    }

    async fn note_action(&self, number: i64, note: &ActionNote) -> StoreResult<()> {
        const NOTE: &str = "UPDATE oncebox_audit SET result = COALESCE(?, result), error = COALESCE(?, error), \
             ended_at = IF(?, UTC_TIMESTAMP(6), ended_at) WHERE number = ?";
        let doing = "writing the audit";
        self.patiently(doing, async {
            let mut txn = self.begin_aside().await?;
            let told = self
                .query(NOTE)
                .bind(note.result().map(ToString::to_string))
                .bind(note.error())
                .bind(note.is_over())
                .bind(number);
            told.execute(&mut *txn).await.context(doing)?;
            txn.commit_own(doing).await
        })
        .await
    }

    async fn actions(&self, filter: &AuditFilter) -> StoreResult<Vec<AuditEntry>> {
        let doing = "reading the audit";
        let list = list(filter);
        self.patiently(doing, async {
            let mut txn = self.begin_aside().await?;
            let rows = sqlx::raw_sql(AssertSqlSafe(list)).fetch_all(&mut *txn).await.context(doing)?;
            txn.rollback().await;
            rows.iter().map(entry).collect::<sqlx::Result<_>>().context(doing)
        })
        .await
    }

    async fn purge_actions(&self, keep: Duration) -> StoreResult<u64> {
        let doing = "purging the audit";
        let purge = format!(
            "DELETE FROM oncebox_audit WHERE `at` < UTC_TIMESTAMP(6) - INTERVAL {} * 1000 MICROSECOND \
             ORDER BY `at` LIMIT {STEP_ROWS}",
            milliseconds(keep)
        );
        let mut purged = 0;
        loop {
            let step = async {
                let mut txn = self.begin_aside().await?;
                let done = sqlx::raw_sql(AssertSqlSafe(purge.clone())).execute(&mut *txn).await;
                let removed = done.context(doing)?.rows_affected();
                txn.commit_own(doing).await?;
                Ok(removed)
            };
            let removed = self.patiently(doing, step).await?;
            purged += removed;
            if removed < STEP_ROWS {
                return Ok(purged);
            }
        }
    }
}

fn list(filter: &AuditFilter) -> String {
    const LIST: &str = concat!(
        "SELECT number, ",
        in_ms!("`at`"),
        " AS at_ms, ",
        in_ms!("ended_at"),
        " AS ended_at_ms, who, action, consumer, parameters, result, error FROM oncebox_audit WHERE number < "
    );
    let mut sql = format!("{LIST}{}", filter.before.unwrap_or(i64::MAX));
    for (column, text) in [("who", &filter.who), ("action", &filter.action), ("consumer", &filter.consumer)] {
        if let Some(text) = text {
            sql.push_str(&format!(" AND {column} = "));
            push_text(&mut sql, text);
        }
    }
    sql.push_str(&format!(" ORDER BY number DESC LIMIT {}", filter.limit));
    sql
}

fn entry(row: &MySqlRow) -> sqlx::Result<AuditEntry> {
    Ok(AuditEntry {
        number: row.try_get("number")?,
        at_ms: row.try_get("at_ms")?,
        ended_at_ms: row.try_get("ended_at_ms")?,
        who: row.try_get("who")?,
        action: row.try_get("action")?,
        consumer: row.try_get("consumer")?,
        parameters: row.try_get::<String, _>("parameters")?.parse().unwrap_or_default(),
        result: row.try_get::<Option<String>, _>("result")?.map(|text| text.parse().unwrap_or_default()),
        error: row.try_get("error")?,
    })
}

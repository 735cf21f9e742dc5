//! Consumers that an operator has paused.

use oncebox_core::names::ConsumerName;
use oncebox_core::store::{Pause, PauseNote, Pauses, StoreResult};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::classify::Context;
use crate::store::SqliteStore;
use crate::time::millis;

impl Pauses for SqliteStore {
    async fn pause(&self, consumer: &ConsumerName, note: &PauseNote) -> StoreResult<bool> {
        const PAUSE: &str = "INSERT INTO oncebox_paused (consumer, paused_by, reason) VALUES (?1, ?2, ?3)
             ON CONFLICT (consumer) DO NOTHING";
        let doing = "pausing a consumer";
        let mut txn = self.begin().await?;
        let pause = sqlx::query(PAUSE).bind(consumer.as_str()).bind(note.who()).bind(note.reason());
        let made = pause.execute(&mut *txn).await.context(doing)?.rows_affected();
        txn.commit_own(doing).await?;
        Ok(made > 0)
    }

    async fn resume(&self, consumer: &ConsumerName) -> StoreResult<bool> {
        const RESUME: &str = "DELETE FROM oncebox_paused WHERE consumer = ?1";
        let doing = "resuming a consumer";
        let mut txn = self.begin().await?;
        let resume = sqlx::query(RESUME).bind(consumer.as_str());
        let gone = resume.execute(&mut *txn).await.context(doing)?.rows_affected();
        txn.commit_own(doing).await?;
        Ok(gone > 0)
    }

    async fn paused(&self) -> StoreResult<Vec<Pause>> {
        const PAUSED: &str = concat!(
            "SELECT consumer, ",
            millis!("paused_at"),
            " AS since_ms, paused_by, reason FROM oncebox_paused ORDER BY consumer LIMIT 10000"
        );
        let doing = "reading which consumers are paused";
        let mut conn = self.reader().await?;
        let rows = sqlx::query(PAUSED).fetch_all(&mut *conn).await.context(doing)?;
        rows.iter().map(pause).collect::<sqlx::Result<_>>().context(doing)
    }
}

fn pause(row: &SqliteRow) -> sqlx::Result<Pause> {
    Ok(Pause {
        consumer: row.try_get("consumer")?,
        since_ms: row.try_get("since_ms")?,
        by: row.try_get("paused_by")?,
        reason: row.try_get("reason")?,
    })
}

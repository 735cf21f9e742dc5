//! Consumers that an operator has paused.

use oncebox_core::names::ConsumerName;
use oncebox_core::store::{Pause, PauseNote, Pauses, StoreResult};
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use crate::classify::Context;
use crate::store::MysqlStore;
use crate::time::in_ms;

impl Pauses for MysqlStore {
    async fn pause(&self, consumer: &ConsumerName, note: &PauseNote) -> StoreResult<bool> {
        // What it ignores can only be the row that is there: a note fits its columns.
        const PAUSE: &str =
            "INSERT IGNORE INTO oncebox_paused (consumer, paused_by, reason) VALUES (?, ?, ?)";
        let doing = "pausing a consumer";
        self.patiently(doing, async {
            let mut txn = self.begin_aside().await?;
            let pause = self.query(PAUSE).bind(consumer.as_str()).bind(note.who()).bind(note.reason());
            let made = pause.execute(&mut *txn).await.context(doing)?.rows_affected();
            txn.commit_own(doing).await?;
            Ok(made > 0)
        })
        .await
    }

    async fn resume(&self, consumer: &ConsumerName) -> StoreResult<bool> {
        const RESUME: &str = "DELETE FROM oncebox_paused WHERE consumer = ?";
        let doing = "resuming a consumer";
        self.patiently(doing, async {
            let mut txn = self.begin_aside().await?;
            let resume = self.query(RESUME).bind(consumer.as_str());
            let gone = resume.execute(&mut *txn).await.context(doing)?.rows_affected();
            txn.commit_own(doing).await?;
            Ok(gone > 0)
        })
        .await
    }

    async fn paused(&self) -> StoreResult<Vec<Pause>> {
        const PAUSED: &str = concat!(
            "SELECT consumer, ",
            in_ms!("paused_at"),
            " AS since_ms, paused_by, reason FROM oncebox_paused ORDER BY consumer LIMIT 10000"
        );
        let doing = "reading which consumers are paused";
        self.patiently(doing, async {
            let mut txn = self.begin_aside().await?;
            let rows = self.query(PAUSED).fetch_all(&mut *txn).await.context(doing)?;
            txn.rollback().await;
            rows.iter().map(pause).collect::<sqlx::Result<_>>().context(doing)
        })
        .await
    }
}

fn pause(row: &MySqlRow) -> sqlx::Result<Pause> {
    Ok(Pause {
        consumer: row.try_get("consumer")?,
        since_ms: row.try_get("since_ms")?,
        by: row.try_get("paused_by")?,
        reason: row.try_get("reason")?,
    })
}

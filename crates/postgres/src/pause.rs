//! Consumers that an operator has paused.

use oncebox_core::names::ConsumerName;
use oncebox_core::store::{Pause, PauseNote, Pauses, StoreResult};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::classify::Context;
use crate::store::PgStore;

impl Pauses for PgStore {
    async fn pause(&self, consumer: &ConsumerName, note: &PauseNote) -> StoreResult<bool> {
        const PAUSE: &str = "INSERT INTO oncebox_paused (consumer, paused_by, reason) VALUES ($1, $2, $3) \
             ON CONFLICT (consumer) DO NOTHING";
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
        const RESUME: &str = "DELETE FROM oncebox_paused WHERE consumer = $1";
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
        const PAUSED: &str = "SELECT consumer, (extract(epoch FROM paused_at) * 1000)::bigint, paused_by, reason \
             FROM oncebox_paused ORDER BY consumer LIMIT 10000";
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

fn pause(row: &PgRow) -> sqlx::Result<Pause> {
    Ok(Pause {
        consumer: row.try_get(0)?,
        since_ms: row.try_get(1)?,
        by: row.try_get(2)?,
        reason: row.try_get(3)?,
    })
}

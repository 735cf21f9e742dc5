//! Whether the file is fit for the job.

mod outbox;
mod settings;

use std::time::Duration;

use oncebox_core::store::{Check, ErrorClass, Finding, FindingLevel, StoreError, StoreResult};
use sqlx::SqliteConnection;

use crate::classify::Context;
use crate::migrate::{NEWEST_VERSION, applied_versions};
use crate::store::SqliteStore;

/// How long a health check waits for its turn to write.
const MAX_PING_WAIT: Duration = Duration::from_secs(10);

impl Check for SqliteStore {
    async fn ping(&self) -> StoreResult<()> {
        let begun = tokio::time::timeout(MAX_PING_WAIT, self.begin()).await;
        let waited =
            |_| StoreError::new(ErrorClass::Away, "waiting to write", "another transaction is still open");
        begun.map_err(waited)??.rollback().await;
        Ok(())
    }

    async fn check(&self, _largest_batch: usize) -> StoreResult<Vec<Finding>> {
        let doing = "checking";
        let mut findings = vec![writable(self.ping().await)];
        let mut conn = self.reader().await?;
        findings.extend(settings::findings(&mut conn).await.context(doing)?);
        let schema = schema(&mut conn).await.context(doing)?;
        let has_outbox = schema.level != FindingLevel::Error;
        findings.push(schema);
        if has_outbox {
            findings.push(outbox::finding(&mut conn).await.context(doing)?);
        }
        Ok(findings)
    }

    /// A reader that stays makes the write-ahead log grow, but the file does not say who reads.
    async fn old_transactions(&self, _older_than: Duration) -> StoreResult<Vec<(String, Duration)>> {
        Ok(Vec::new())
    }
}

fn writable(ping: StoreResult<()>) -> Finding {
    match ping {
        Ok(()) => Finding::ok("file", "can be written"),
        Err(error) => Finding::error(
            "file",
            format!("cannot be written ({error}); check the permissions of the file and of its directory"),
        ),
    }
}

async fn schema(conn: &mut SqliteConnection) -> sqlx::Result<Finding> {
    let applied = applied_versions(conn).await?;
    let missing: Vec<_> = (1..=NEWEST_VERSION).filter(|version| !applied.contains(version)).collect();
    Ok(if !missing.is_empty() {
        let detail =
            format!("{} of {NEWEST_VERSION} migrations are missing; run `oncebox migrate`", missing.len());
        Finding::error("schema", detail)
    } else if applied.iter().any(|version| *version > NEWEST_VERSION) {
        let detail =
            format!("newer than this program, which knows version {NEWEST_VERSION}; update the program");
        Finding::error("schema", detail)
    } else {
        Finding::ok("schema", format!("version {NEWEST_VERSION}"))
    })
}

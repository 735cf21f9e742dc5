//! Whether the server is fit for the job.

mod outbox;
mod receipts;
mod settings;
mod transactions;

use std::cmp::Ordering;
use std::time::Duration;

use oncebox_core::store::{Check, ErrorClass, Finding, StoreError, StoreResult};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::classify::Context;
use crate::migrate::{NEWEST_VERSION, schema_version};
use crate::store::PgStore;
use crate::time::now_ms;

/// How far the server's clock may be off before retention and `:timestamp` become surprising.
const CLOCK_TOLERANCE_MS: i64 = 5_000;

impl Check for PgStore {
    async fn ping(&self) -> StoreResult<()> {
        let doing = "asking PostgreSQL";
        self.patiently(doing, async {
            let mut txn = self.begin_aside().await?;
            let row = self.query(WRITES).fetch_one(&mut *txn).await.context(doing)?;
            txn.rollback().await;
            match why_no_writes(&row).context(doing)? {
                Some(why) => Err(StoreError::new(ErrorClass::Away, doing, why)),
                None => Ok(()),
            }
        })
        .await
    }

    async fn check(&self, _largest_batch: usize) -> StoreResult<Vec<Finding>> {
        let doing = "checking";
        let look = async {
            let mut txn = self.begin_aside().await?;
            let writes = self.query(WRITES).fetch_one(&mut *txn).await.context(doing)?;
            let asked_at = now_ms();
            let facts = self.query(settings::FACTS).fetch_one(&mut *txn).await.context(doing)?;
            let answered_at = now_ms();
            txn.rollback().await;
            let mut findings = vec![role(&writes).context(doing)?];
            findings.extend(settings::findings(&facts).context(doing)?);
            let now: i64 = facts.try_get("now_ms").context(doing)?;
            findings.push(clock(now, asked_at, answered_at));
            findings.push(schema(schema_version(self).await?));
            findings.extend(receipts::partitions(self).await?);
            findings.extend(receipts::index(self).await?);
            findings.extend(outbox::findings(self).await?);
            Ok(findings)
        };
        self.patiently(doing, Box::pin(look)).await
    }

    async fn old_transactions(&self, older_than: Duration) -> StoreResult<Vec<(String, Duration)>> {
        self.patiently("looking for old transactions", transactions::old_transactions(self, older_than)).await
    }
}

const WRITES: &str = "SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'";

fn why_no_writes(row: &PgRow) -> sqlx::Result<Option<&'static str>> {
    let standby: bool = row.try_get(0)?;
    let read_only: bool = row.try_get(1)?;
    Ok(match (standby, read_only) {
        (true, _) => Some("the server is a standby"),
        (_, true) => Some("the server is read-only (default_transaction_read_only)"),
        _ => None,
    })
}

fn role(writes: &PgRow) -> sqlx::Result<Finding> {
    Ok(match why_no_writes(writes)? {
        Some(why) => Finding::error("server role", format!("{why}: point store.url at the primary")),
        None => Finding::ok("server role", "primary, takes writes"),
    })
}

fn clock(server: i64, asked_at: i64, answered_at: i64) -> Finding {
    let off = if server < asked_at { server - asked_at } else { (server - answered_at).max(0) };
    if off.abs() > CLOCK_TOLERANCE_MS {
        let seconds = off.abs() / 1000;
        let direction = if off < 0 { "behind" } else { "ahead of" };
        Finding::warning(
            "clock",
            format!("the server is {seconds} s {direction} this machine; retention goes by the server"),
        )
    } else {
        Finding::ok("clock", "agrees with this machine")
    }
}

fn schema(version: u32) -> Finding {
    let subject = "schema";
    match version.cmp(&NEWEST_VERSION) {
        Ordering::Equal => Finding::ok(subject, format!("version {version}")),
        Ordering::Greater => Finding::error(
            subject,
            format!(
                "version {version} is newer than this oncebox, which knows {NEWEST_VERSION}: use the newer one"
            ),
        ),
        Ordering::Less if version == 0 => Finding::error(subject, "no tables yet: run `oncebox migrate`"),
        Ordering::Less => Finding::error(
            subject,
            format!("version {version}, {NEWEST_VERSION} is needed: run `oncebox migrate`"),
        ),
    }
}

//! Whether the server is fit for the promise: `ping` and `check`.

mod outbox;
mod receipts;
mod server;

use oncebox_core::store::{ErrorClass, Finding, FindingLevel, StoreError, StoreResult};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::claim::now_ms;
use crate::classify::own;
use crate::migrate::EXPECTED;
use crate::store::PgStore;

/// How far the server's clock may be off before retention and `:timestamp` become surprising.
const CLOCK_TOLERANCE_MS: i64 = 5_000;

const WRITES: &str = "SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'";

impl PgStore {
    pub(crate) async fn ask_for_writes(&self) -> StoreResult<()> {
        let mut txn = self.begin_aside().await?;
        let row = self.query(WRITES).fetch_one(&mut *txn).await.map_err(own("asking PostgreSQL"))?;
        txn.rollback().await;
        match why_no_writes(&row).map_err(own("asking PostgreSQL"))? {
            Some(why) => Err(StoreError::new(ErrorClass::Away, "asking PostgreSQL", why)),
            None => Ok(()),
        }
    }

    pub(crate) async fn findings(&self) -> StoreResult<Vec<Finding>> {
        let mut txn = self.begin_aside().await?;
        let writes = self.query(WRITES).fetch_one(&mut *txn).await.map_err(own("checking"))?;
        let asked_at = now_ms();
        let facts = self.query(server::FACTS).fetch_one(&mut *txn).await.map_err(own("checking"))?;
        let answered_at = now_ms();
        txn.rollback().await;
        let mut findings = Vec::new();
        findings.push(match why_no_writes(&writes).map_err(own("checking"))? {
            Some(why) => error("server role", format!("{why}: point store.url at the primary")),
            None => ok("server role", "primary, takes writes"),
        });
        server::about(&facts, &mut findings).map_err(own("checking"))?;
        let now: i64 = facts.try_get("now_ms").map_err(own("checking"))?;
        findings.push(about_clock(now, asked_at, answered_at));
        findings.push(about_schema(self.schema_version().await?));
        findings.extend(self.about_partitions().await?);
        findings.extend(self.about_index().await?);
        findings.extend(self.about_outbox().await?);
        Ok(findings)
    }
}

fn why_no_writes(row: &PgRow) -> Result<Option<&'static str>, sqlx::Error> {
    let standby: bool = row.try_get(0)?;
    let read_only: bool = row.try_get(1)?;
    Ok(match (standby, read_only) {
        (true, _) => Some("the server is a standby"),
        (_, true) => Some("the server is read-only (default_transaction_read_only)"),
        _ => None,
    })
}

fn about_clock(server: i64, asked_at: i64, answered_at: i64) -> Finding {
    let off = if server < asked_at { server - asked_at } else { (server - answered_at).max(0) };
    if off.abs() > CLOCK_TOLERANCE_MS {
        let seconds = off.abs() / 1000;
        let direction = if off < 0 { "behind" } else { "ahead of" };
        warning(
            "clock",
            format!("the server is {seconds} s {direction} this machine; retention goes by the server"),
        )
    } else {
        ok("clock", "agrees with this machine")
    }
}

fn about_schema(version: u32) -> Finding {
    let subject = "schema";
    match version.cmp(&EXPECTED) {
        std::cmp::Ordering::Equal => ok(subject, format!("version {version}")),
        std::cmp::Ordering::Greater => {
            warning(subject, format!("version {version} is newer than this oncebox, which knows {EXPECTED}"))
        }
        std::cmp::Ordering::Less if version == 0 => error(subject, "no tables yet: run `oncebox migrate`"),
        std::cmp::Ordering::Less => {
            error(subject, format!("version {version}, {EXPECTED} is needed: run `oncebox migrate`"))
        }
    }
}

fn finding(level: FindingLevel, subject: &str, detail: impl Into<String>) -> Finding {
    Finding { level, subject: subject.to_owned(), detail: detail.into() }
}

fn ok(subject: &str, detail: impl Into<String>) -> Finding {
    finding(FindingLevel::Ok, subject, detail)
}

fn warning(subject: &str, detail: impl Into<String>) -> Finding {
    finding(FindingLevel::Warning, subject, detail)
}

fn error(subject: &str, detail: impl Into<String>) -> Finding {
    finding(FindingLevel::Error, subject, detail)
}

//! Whether the server is fit for the job.

mod outbox;
mod receipts;
mod rights;
mod settings;
mod transactions;

use std::cmp::Ordering;
use std::time::Duration;

use oncebox_core::store::{Check, ErrorClass, Finding, StoreError, StoreResult};
use sqlx::{MySqlConnection, Row};

use crate::classify::Context;
use crate::migrate::{NEWEST_VERSION, schema_version};
use crate::store::MysqlStore;
use crate::time::now_ms;
use settings::{Variables, variables};

pub(crate) use rights::missing_rights;

/// How far the server's clock may be off before retention and `:timestamp` become surprising.
const CLOCK_TOLERANCE_MS: i64 = 5_000;

impl Check for MysqlStore {
    async fn ping(&self) -> StoreResult<()> {
        let doing = "asking the server";
        self.patiently(doing, async {
            let mut txn = self.begin_aside().await?;
            let variables = variables(&mut txn, WRITES).await.context(doing)?;
            if let Some(why) = why_no_writes(&variables) {
                // Dropped, and so closed: behind the same name another server may be the primary by now.
                return Err(StoreError::new(ErrorClass::Away, doing, why));
            }
            txn.rollback().await;
            Ok(())
        })
        .await
    }

    async fn check(&self, largest_batch: usize) -> StoreResult<Vec<Finding>> {
        let doing = "checking";
        let look = async {
            let mut txn = self.begin_aside().await?;
            let writes = variables(&mut txn, WRITES).await.context(doing)?;
            let mut findings = vec![role(&writes)];
            findings.extend(settings::findings(&mut txn, largest_batch).await.context(doing)?);
            findings.extend(rights::findings(&mut txn).await.context(doing)?);
            findings.push(clock(&mut txn).await.context(doing)?);
            findings.push(schema(schema_version(self).await?));
            findings.extend(receipts::findings(&mut txn).await.context(doing)?);
            findings.extend(outbox::findings(&mut txn).await.context(doing)?);
            txn.rollback().await;
            Ok(findings)
        };
        self.patiently(doing, Box::pin(look)).await
    }

    async fn old_transactions(&self, older_than: Duration) -> StoreResult<Vec<(String, Duration)>> {
        self.patiently("looking for old transactions", transactions::old_transactions(self, older_than)).await
    }
}

/// Asked by name and answered as text: not every server has all of them, and some know more than on and off.
const WRITES: &[&str] =
    &["read_only", "super_read_only", "innodb_read_only", "transaction_read_only", "tx_read_only"];

fn why_no_writes(variables: &Variables) -> Option<String> {
    let is_on = |name: &&&str| variables.get(**name).is_some_and(|value| value != "OFF" && value != "0");
    let name = WRITES.iter().find(is_on)?;
    Some(format!("the server is read-only ({name} is on), as a replica or a primary that was demoted is"))
}

fn role(writes: &Variables) -> Finding {
    match why_no_writes(writes) {
        Some(why) => Finding::error("server role", format!("{why}: point store.url at the primary")),
        None => Finding::ok("server role", "primary, takes writes"),
    }
}

const NOW: &str = concat!("SELECT ", crate::time::in_ms!("UTC_TIMESTAMP(6)"));

async fn clock(conn: &mut MySqlConnection) -> sqlx::Result<Finding> {
    let asked_at = now_ms();
    let server: i64 = sqlx::query(NOW).fetch_one(conn).await?.try_get(0)?;
    let answered_at = now_ms();
    let off = if server < asked_at { server - asked_at } else { (server - answered_at).max(0) };
    Ok(if off.abs() > CLOCK_TOLERANCE_MS {
        let seconds = off.abs() / 1000;
        let direction = if off < 0 { "behind" } else { "ahead of" };
        Finding::warning(
            "clock",
            format!("the server is {seconds} s {direction} this machine; retention goes by the server"),
        )
    } else {
        Finding::ok("clock", "agrees with this machine")
    })
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

//! Whether the server is fit for the promise: `ping` and `check`.

use std::time::{SystemTime, UNIX_EPOCH};

use oncebox_core::{ErrorClass, Finding, FindingLevel, StoreError, StoreResult};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::classify::own;
use crate::migrate::EXPECTED;
use crate::store::PgStore;

/// The oldest server that has what purge needs: reading a table by ranges of its pages.
const OLDEST: i32 = 14;
/// How far the server's clock may be off before retention and `:timestamp` become surprising.
const CLOCK_TOLERANCE_MS: i64 = 5_000;

const WRITES: &str = "SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'";

const FACTS: &str = "SELECT current_setting('server_version') AS version, \
     current_setting('server_version_num')::int / 10000 AS major, \
     current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes, \
     current_setting('synchronous_commit') AS synchronous_commit, current_setting('autovacuum') AS autovacuum, \
     current_setting('default_transaction_isolation') AS isolation, \
     current_setting('server_encoding') AS encoding, \
     has_database_privilege(current_database(), 'TEMP') AS temp, \
     (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms";

impl PgStore {
    pub(crate) async fn ask_for_writes(&self) -> StoreResult<()> {
        let mut txn = self.begin_aside().await?;
        let row = self.query(WRITES).fetch_one(&mut *txn).await.map_err(own("asking PostgreSQL"))?;
        txn.rollback().await;
        match why_no_writes(&row).map_err(own("asking PostgreSQL"))? {
            Some(why) => Err(StoreError::new(ErrorClass::Transient, "asking PostgreSQL", why)),
            None => Ok(()),
        }
    }

    pub(crate) async fn findings(&self) -> StoreResult<Vec<Finding>> {
        let mut txn = self.begin_aside().await?;
        let writes = self.query(WRITES).fetch_one(&mut *txn).await.map_err(own("checking"))?;
        let asked_at = now_ms();
        let facts = self.query(FACTS).fetch_one(&mut *txn).await.map_err(own("checking"))?;
        let answered_at = now_ms();
        txn.rollback().await;
        let mut findings = Vec::new();
        findings.push(match why_no_writes(&writes).map_err(own("checking"))? {
            Some(why) => error("server role", format!("{why}: point store.url at the primary")),
            None => ok("server role", "primary, takes writes"),
        });
        about_server(&facts, &mut findings).map_err(own("checking"))?;
        let now: i64 = facts.try_get("now_ms").map_err(own("checking"))?;
        findings.push(about_clock(now, asked_at, answered_at));
        findings.push(about_schema(self.schema_version().await?));
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

fn about_server(facts: &PgRow, findings: &mut Vec<Finding>) -> Result<(), sqlx::Error> {
    let text = |name: &str| facts.try_get::<String, _>(name);
    let version = text("version")?;
    findings.push(if facts.try_get::<i32, _>("major")? < OLDEST {
        error("version", format!("PostgreSQL {version}; oncebox needs {OLDEST} or newer"))
    } else {
        ok("version", format!("PostgreSQL {version}"))
    });
    for setting in ["fsync", "full_page_writes"] {
        findings.push(if text(setting)? == "on" {
            ok(setting, "on")
        } else {
            warning(
                setting,
                format!("off: a crash of the machine can destroy the database. Set {setting} = on"),
            )
        });
    }
    let commit = text("synchronous_commit")?;
    findings.push(if commit == "off" {
        warning(
            "synchronous_commit",
            "off: a crash can undo the last commits after their messages were acknowledged. The position is undone \
             with them, so Kafka messages are read again; messages of other sources are lost. Set it to on",
        )
    } else {
        ok("synchronous_commit", commit)
    });
    findings.push(if text("autovacuum")? == "on" {
        ok("autovacuum", "on")
    } else {
        warning("autovacuum", "off: purged receipts and old positions keep their space. Set autovacuum = on")
    });
    let isolation = text("isolation")?;
    findings.push(ok("isolation", format!("server default {isolation}; oncebox uses read committed")));
    let encoding = text("encoding")?;
    findings.push(if encoding == "UTF8" {
        ok("encoding", encoding)
    } else {
        warning("encoding", format!("{encoding}: ids and payloads with other characters are dead-lettered"))
    });
    findings.push(if facts.try_get("temp")? {
        ok("temporary functions", "allowed")
    } else {
        warning(
            "temporary functions",
            "not allowed: handlers in SQL cannot run. GRANT TEMPORARY ON DATABASE … TO …",
        )
    });
    Ok(())
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

fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis().try_into().unwrap_or(i64::MAX))
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

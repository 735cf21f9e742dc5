//! Whether the file is fit for the job.

use std::time::Duration;

use oncebox_core::store::{ErrorClass, Finding, FindingLevel, StoreError, StoreResult};
use sqlx::{Row, SqliteConnection};

use crate::classify::Context;
use crate::migrate::{applied_versions, newest_version};
use crate::outbox;
use crate::store::SqliteStore;

/// How long a health check waits for its turn to write.
const PING_PATIENCE: Duration = Duration::from_secs(10);

/// Whether the database answers and takes writes.
pub(crate) async fn ping(store: &SqliteStore) -> StoreResult<()> {
    let begun = tokio::time::timeout(PING_PATIENCE, store.writer.begin()).await;
    let waited =
        |_| StoreError::new(ErrorClass::Away, "waiting to write", "another transaction is still open");
    begun.map_err(waited)??.rollback().await;
    Ok(())
}

/// One finding per thing that was looked at.
pub(crate) async fn check(store: &SqliteStore) -> StoreResult<Vec<Finding>> {
    let mut findings = vec![writable(store).await];
    let mut conn = store.reader().await?;
    let doing = "looking at the database";
    findings.push(version(&mut conn).await.context(doing)?);
    findings.push(journal(&mut conn).await.context(doing)?);
    findings.push(durability(&mut conn).await.context(doing)?);
    let schema = schema(&mut conn).await.context(doing)?;
    let has_outbox = schema.level != FindingLevel::Error;
    findings.push(schema);
    if has_outbox {
        findings.push(events(&mut conn).await.context(doing)?);
    }
    Ok(findings)
}

async fn writable(store: &SqliteStore) -> Finding {
    match ping(store).await {
        Ok(()) => finding(FindingLevel::Ok, "file", "can be written"),
        Err(error) => finding(
            FindingLevel::Error,
            "file",
            format!("cannot be written ({error}); check the permissions of the file and of its directory"),
        ),
    }
}

async fn version(conn: &mut SqliteConnection) -> sqlx::Result<Finding> {
    let row = sqlx::query("SELECT sqlite_version()").fetch_one(conn).await?;
    Ok(finding(FindingLevel::Ok, "version", format!("SQLite {}, built in", row.try_get::<String, _>(0)?)))
}

async fn journal(conn: &mut SqliteConnection) -> sqlx::Result<Finding> {
    let mode: String = sqlx::query("PRAGMA journal_mode").fetch_one(conn).await?.try_get(0)?;
    Ok(if mode == "wal" {
        finding(FindingLevel::Ok, "journal", "journal_mode = wal")
    } else {
        let detail = format!(
            "journal_mode = {mode}: readers and the writer block each other; the file system does not support WAL, \
             move the file to a local disk"
        );
        finding(FindingLevel::Warning, "journal", detail)
    })
}

async fn durability(conn: &mut SqliteConnection) -> sqlx::Result<Finding> {
    let level: i64 = sqlx::query("PRAGMA synchronous").fetch_one(conn).await?.try_get(0)?;
    Ok(if level >= 2 {
        finding(FindingLevel::Ok, "durability", "synchronous = full: a commit survives a power cut")
    } else {
        finding(
            FindingLevel::Error,
            "durability",
            format!("synchronous = {level}: the last commits may be lost in a power cut"),
        )
    })
}

async fn schema(conn: &mut SqliteConnection) -> sqlx::Result<Finding> {
    let applied = applied_versions(conn).await?;
    let newest = newest_version();
    let missing: Vec<_> = (1..=newest).filter(|version| !applied.contains(version)).collect();
    Ok(if !missing.is_empty() {
        let detail = format!("{} of {newest} migrations are missing; run `oncebox migrate`", missing.len());
        finding(FindingLevel::Error, "schema", detail)
    } else if applied.iter().any(|version| *version > newest) {
        let detail = format!("newer than this program, which knows version {newest}; update the program");
        finding(FindingLevel::Warning, "schema", detail)
    } else {
        finding(FindingLevel::Ok, "schema", format!("version {newest}"))
    })
}

async fn events(conn: &mut SqliteConnection) -> sqlx::Result<Finding> {
    Ok(match outbox::status::attended(conn).await? {
        (true, 0) => finding(
            FindingLevel::Warning,
            "outbox",
            "events wait to be published and no relay is alive; run one (`relay = true` in [outbox], then `oncebox run`)",
        ),
        (_, 0) => finding(FindingLevel::Ok, "outbox", "no events wait; no relay is alive"),
        (_, relays) => finding(FindingLevel::Ok, "outbox", format!("relays alive: {relays}")),
    })
}

fn finding(level: FindingLevel, subject: &str, detail: impl Into<String>) -> Finding {
    Finding { level, subject: subject.to_owned(), detail: detail.into() }
}

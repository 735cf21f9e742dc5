//! What the file and the connection are like.

use oncebox_core::store::Finding;
use sqlx::{Row, SqliteConnection};

pub(super) async fn findings(conn: &mut SqliteConnection) -> sqlx::Result<[Finding; 3]> {
    Ok([version(conn).await?, journal(conn).await?, durability(conn).await?])
}

async fn version(conn: &mut SqliteConnection) -> sqlx::Result<Finding> {
    let row = sqlx::query("SELECT sqlite_version()").fetch_one(conn).await?;
    Ok(Finding::ok("version", format!("SQLite {}, built in", row.try_get::<String, _>(0)?)))
}

async fn journal(conn: &mut SqliteConnection) -> sqlx::Result<Finding> {
    let mode: String = sqlx::query("PRAGMA journal_mode").fetch_one(conn).await?.try_get(0)?;
    Ok(if mode == "wal" {
        Finding::ok("journal", "journal_mode = wal")
    } else {
        let detail = format!(
            "journal_mode = {mode}: readers and the writer block each other; the file system does not support WAL, \
             move the file to a local disk"
        );
        Finding::warning("journal", detail)
    })
}

async fn durability(conn: &mut SqliteConnection) -> sqlx::Result<Finding> {
    let level: i64 = sqlx::query("PRAGMA synchronous").fetch_one(conn).await?.try_get(0)?;
    Ok(if level >= 2 {
        Finding::ok("durability", "synchronous = full: a commit survives a power cut")
    } else {
        Finding::error(
            "durability",
            format!("synchronous = {level}: the last commits may be lost in a power cut"),
        )
    })
}

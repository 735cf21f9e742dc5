//! The SQLite store does what every store must do.

use std::time::Duration;

use oncebox_core::error::BoxError;
use oncebox_sqlite::SqliteStore;
use oncebox_testkit::conformance::Subject;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, SqliteConnection};

/// A file in a directory of its own.
struct File {
    directory: tempfile::TempDir,
}

impl File {
    /// A connection beside the store's, as an application has it.
    async fn beside(&self) -> sqlx::Result<SqliteConnection> {
        let path = self.directory.path().join("app.db");
        SqliteConnectOptions::new().filename(path).create_if_missing(true).connect().await
    }

    /// Moves a time of our tables into the past.
    async fn age(&self, sql: &'static str, consumer: &str, by: Duration) -> Result<(), BoxError> {
        let seconds = format!("-{} seconds", by.as_secs());
        sqlx::query(sql).bind(consumer).bind(seconds).execute(&mut self.beside().await?).await?;
        Ok(())
    }
}

impl Subject for File {
    type Store = SqliteStore;

    async fn start() -> Result<Self, BoxError> {
        let file = Self { directory: tempfile::tempdir()? };
        let sql = "CREATE TABLE effects (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL);
                   CREATE TABLE single (id INTEGER PRIMARY KEY);";
        sqlx::raw_sql(sql).execute(&mut file.beside().await?).await?;
        Ok(file)
    }

    async fn connect(&self) -> Result<SqliteStore, BoxError> {
        let url = format!("sqlite://{}", self.directory.path().join("app.db").display());
        Ok(SqliteStore::connect(&url).await?)
    }

    async fn connection(&self) -> Result<SqliteConnection, BoxError> {
        Ok(self.beside().await?)
    }

    async fn add_effect(conn: &mut SqliteConnection, id: &str) -> Result<(), BoxError> {
        sqlx::query("INSERT INTO effects (id) VALUES (?1)").bind(id).execute(conn).await?;
        Ok(())
    }

    async fn violate_unique(conn: &mut SqliteConnection) -> Result<(), BoxError> {
        sqlx::query("INSERT INTO single (id) VALUES (1), (1)").execute(conn).await?;
        Ok(())
    }

    async fn effects(&self) -> Result<Vec<String>, BoxError> {
        let sql = "SELECT id FROM effects ORDER BY number";
        Ok(sqlx::query_scalar(sql).fetch_all(&mut self.beside().await?).await?)
    }

    async fn receipts(&self, consumer: &str) -> Result<Vec<String>, BoxError> {
        let sql = "SELECT message_id FROM oncebox_inbox WHERE consumer = ?1 ORDER BY message_id";
        Ok(sqlx::query_scalar(sql).bind(consumer).fetch_all(&mut self.beside().await?).await?)
    }

    async fn age_receipts(&self, consumer: &str, by: Duration) -> Result<(), BoxError> {
        let sql = "UPDATE oncebox_inbox SET processed_at = strftime('%Y-%m-%dT%H:%M:%fZ', processed_at, ?2)
                   WHERE consumer = ?1";
        self.age(sql, consumer, by).await
    }

    async fn age_positions(&self, consumer: &str, by: Duration) -> Result<(), BoxError> {
        let sql = "UPDATE oncebox_position SET updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', updated_at, ?2),
                       caught_up_at = strftime('%Y-%m-%dT%H:%M:%fZ', caught_up_at, ?2)
                   WHERE consumer = ?1";
        self.age(sql, consumer, by).await
    }

    async fn expire_purger(&self) -> Result<(), BoxError> {
        let sql =
            "UPDATE oncebox_purge SET leased_until = '2000-01-01T00:00:00.000Z' WHERE owner IS NOT NULL";
        sqlx::query(sql).execute(&mut self.beside().await?).await?;
        Ok(())
    }
}

oncebox_testkit::conformance!(File);

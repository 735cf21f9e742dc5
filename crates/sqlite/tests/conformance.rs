//! The SQLite store does what every store must do, with its receipts in its own table and in one that the application already
//! had.

use std::time::Duration;

use oncebox_core::error::BoxError;
use oncebox_core::store::Adopt;
use oncebox_sqlite::SqliteStore;
use oncebox_testkit::conformance::Subject;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, SqliteConnection};

/// A file in a directory of its own; with a table of receipts that was there before, or without.
struct File<const ADOPTED: bool> {
    directory: tempfile::TempDir,
}

impl<const ADOPTED: bool> File<ADOPTED> {
    const RECEIPTS: &str = if ADOPTED { "inbox" } else { "oncebox_inbox" };

    /// A connection beside the store's, as an application has it.
    async fn beside(&self) -> sqlx::Result<SqliteConnection> {
        let path = self.directory.path().join("app.db");
        SqliteConnectOptions::new().filename(path).create_if_missing(true).connect().await
    }

    /// Moves a time of our tables into the past.
    async fn age(&self, sql: String, consumer: &str, by: Duration) -> Result<(), BoxError> {
        let seconds = format!("-{} seconds", by.as_secs());
        sqlx::query(AssertSqlSafe(sql))
            .bind(consumer)
            .bind(seconds)
            .execute(&mut self.beside().await?)
            .await?;
        Ok(())
    }
}

impl<const ADOPTED: bool> Subject for File<ADOPTED> {
    type Store = SqliteStore;

    async fn start() -> Result<Self, BoxError> {
        let file = Self { directory: tempfile::tempdir()? };
        let sql = "CREATE TABLE effects (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL);
                   CREATE TABLE single (id INTEGER PRIMARY KEY);
                   CREATE TABLE inbox (message_id VARCHAR(100) NOT NULL, consumer TEXT NOT NULL, tenant TEXT NOT NULL,
                       processed_at DATETIME NOT NULL, PRIMARY KEY (consumer, message_id, tenant));";
        sqlx::raw_sql(sql).execute(&mut file.beside().await?).await?;
        Ok(file)
    }

    async fn connect(&self) -> Result<SqliteStore, BoxError> {
        let url = format!("sqlite://{}", self.directory.path().join("app.db").display());
        let mut builder = SqliteStore::builder(&url);
        if ADOPTED {
            let adopt = Adopt::table("Inbox", "message_id")?.processed_at("Processed_at")?;
            builder = builder.adopt(adopt.consumer("consumer")?.tenant("tenant")?);
        }
        Ok(builder.connect().await?)
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
        let table = Self::RECEIPTS;
        let sql = format!("SELECT message_id FROM {table} WHERE consumer = ?1 ORDER BY message_id");
        Ok(sqlx::query_scalar(AssertSqlSafe(sql)).bind(consumer).fetch_all(&mut self.beside().await?).await?)
    }

    async fn age_receipts(&self, consumer: &str, by: Duration) -> Result<(), BoxError> {
        let sql = format!(
            "UPDATE {} SET processed_at = strftime('%Y-%m-%dT%H:%M:%fZ', processed_at, ?2) WHERE consumer = ?1",
            Self::RECEIPTS
        );
        self.age(sql, consumer, by).await
    }

    async fn age_positions(&self, consumer: &str, by: Duration) -> Result<(), BoxError> {
        let sql = "UPDATE oncebox_position SET updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', updated_at, ?2),
                       caught_up_at = strftime('%Y-%m-%dT%H:%M:%fZ', caught_up_at, ?2)
                   WHERE consumer = ?1";
        self.age(sql.to_owned(), consumer, by).await
    }

    async fn forget_groups(&self) -> Result<(), BoxError> {
        sqlx::query("UPDATE oncebox_dead SET error_group = NULL").execute(&mut self.beside().await?).await?;
        Ok(())
    }

    async fn expire_purger(&self) -> Result<(), BoxError> {
        let sql =
            "UPDATE oncebox_purge SET leased_until = '2000-01-01T00:00:00.000Z' WHERE owner IS NOT NULL";
        sqlx::query(sql).execute(&mut self.beside().await?).await?;
        Ok(())
    }
}

mod own_table {
    oncebox_testkit::conformance!(super::File<false>);
}

mod adopted_table {
    oncebox_testkit::conformance!(receipts of super::File<true>);
}

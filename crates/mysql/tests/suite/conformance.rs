//! What every store must do, with its receipts in its own table and in one that the application already had.

use std::time::Duration;

use oncebox_core::error::BoxError;
use oncebox_core::store::Adopt;
use oncebox_mysql::MysqlStore;
use oncebox_testkit::conformance::Subject;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};

use super::support::Database;

struct Subjected<const ADOPTED: bool>(Database);

impl<const ADOPTED: bool> Subjected<ADOPTED> {
    const RECEIPTS: &str = if ADOPTED { "inbox" } else { "oncebox_inbox" };

    async fn beside(&self) -> sqlx::Result<MySqlConnection> {
        MySqlConnection::connect(&self.0.url).await
    }

    async fn age(&self, table: &str, column: &str, consumer: &str, by: Duration) -> Result<(), BoxError> {
        let sql =
            format!("UPDATE {table} SET {column} = {column} - INTERVAL ? MICROSECOND WHERE consumer = ?");
        let micros = i64::try_from(by.as_micros())?;
        let mut conn = self.beside().await?;
        sqlx::query(AssertSqlSafe(sql)).bind(micros).bind(consumer).execute(&mut conn).await?;
        Ok(())
    }
}

impl<const ADOPTED: bool> Subject for Subjected<ADOPTED> {
    type Store = MysqlStore;

    async fn start() -> Result<Self, BoxError> {
        let subject = Self(Database::create().await);
        let tables = "CREATE TABLE effects (number BIGINT AUTO_INCREMENT PRIMARY KEY, \
                 id VARCHAR(600) CHARACTER SET utf8mb4 NOT NULL); CREATE TABLE single (id INT PRIMARY KEY); \
             CREATE TABLE inbox (number BIGINT AUTO_INCREMENT PRIMARY KEY, message_id VARBINARY(512) NOT NULL, \
                 consumer VARCHAR(100) NOT NULL, tenant VARCHAR(100) NOT NULL, processed_at DATETIME NOT NULL, \
                 UNIQUE KEY once (message_id, consumer, tenant)) CHARACTER SET utf8mb4";
        sqlx::raw_sql(tables).execute(&mut subject.beside().await?).await?;
        Ok(subject)
    }

    async fn connect(&self) -> Result<MysqlStore, BoxError> {
        let mut builder = MysqlStore::builder(&self.0.url);
        if ADOPTED {
            let adopt = Adopt::table("inbox", "message_id")?.processed_at("processed_at")?;
            builder = builder.adopt(adopt.consumer("consumer")?.tenant("tenant")?);
        }
        Ok(builder.connect().await?)
    }

    async fn connection(&self) -> Result<MySqlConnection, BoxError> {
        Ok(self.beside().await?)
    }

    async fn add_effect(conn: &mut MySqlConnection, id: &str) -> Result<(), BoxError> {
        sqlx::query("INSERT INTO effects (id) VALUES (?)").bind(id).execute(conn).await?;
        Ok(())
    }

    async fn violate_unique(conn: &mut MySqlConnection) -> Result<(), BoxError> {
        sqlx::query("INSERT INTO single (id) VALUES (1), (1)").execute(conn).await?;
        Ok(())
    }

    async fn effects(&self) -> Result<Vec<String>, BoxError> {
        let sql = "SELECT id FROM effects ORDER BY number";
        Ok(sqlx::query_scalar(sql).fetch_all(&mut self.beside().await?).await?)
    }

    async fn receipts(&self, consumer: &str) -> Result<Vec<String>, BoxError> {
        let sql = format!(
            "SELECT CONVERT(message_id USING utf8mb4) FROM {} WHERE consumer = ? ORDER BY CAST(message_id AS BINARY)",
            Self::RECEIPTS
        );
        Ok(sqlx::query_scalar(AssertSqlSafe(sql)).bind(consumer).fetch_all(&mut self.beside().await?).await?)
    }

    async fn age_receipts(&self, consumer: &str, by: Duration) -> Result<(), BoxError> {
        self.age(Self::RECEIPTS, "processed_at", consumer, by).await
    }

    async fn age_positions(&self, consumer: &str, by: Duration) -> Result<(), BoxError> {
        self.age("oncebox_position", "updated_at", consumer, by).await?;
        self.age("oncebox_position", "caught_up_at", consumer, by).await
    }

    async fn forget_groups(&self) -> Result<(), BoxError> {
        sqlx::raw_sql("UPDATE oncebox_dead SET error_group = NULL")
            .execute(&mut self.beside().await?)
            .await?;
        Ok(())
    }

    async fn expire_purger(&self) -> Result<(), BoxError> {
        let sql = "UPDATE oncebox_purge SET leased_until = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND";
        sqlx::raw_sql(sql).execute(&mut self.beside().await?).await?;
        Ok(())
    }
}

mod own_table {
    oncebox_testkit::conformance!(super::Subjected<false>);
}

mod adopted_table {
    oncebox_testkit::conformance!(receipts of super::Subjected<true>);
}

//! The PostgreSQL store does what every store must do, with its receipts in one table and in partitions.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod support;

use std::time::Duration;

use oncebox_core::error::BoxError;
use oncebox_postgres::PgStore;
use oncebox_testkit::conformance::Subject;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use support::Database;

struct Subjected<const BY_DAY: bool>(Database);

impl<const BY_DAY: bool> Subjected<BY_DAY> {
    async fn beside(&self) -> sqlx::Result<PgConnection> {
        PgConnection::connect(&self.0.url).await
    }

    async fn age(&self, table: &str, column: &str, consumer: &str, by: Duration) -> Result<(), BoxError> {
        let sql =
            format!("UPDATE {table} SET {column} = {column} - make_interval(secs => $2) WHERE consumer = $1");
        let mut conn = self.beside().await?;
        sqlx::query(AssertSqlSafe(sql)).bind(consumer).bind(by.as_secs_f64()).execute(&mut conn).await?;
        Ok(())
    }
}

impl<const BY_DAY: bool> Subject for Subjected<BY_DAY> {
    type Store = PgStore;

    async fn start() -> Result<Self, BoxError> {
        let subject = Self(Database::create().await);
        let tables = "CREATE TABLE effects (number bigserial, id text NOT NULL); CREATE TABLE single (id int PRIMARY KEY)";
        sqlx::raw_sql(tables).execute(&mut subject.beside().await?).await?;
        Ok(subject)
    }

    async fn connect(&self) -> Result<PgStore, BoxError> {
        Ok(PgStore::builder(&self.0.url).partition_receipts(BY_DAY).connect().await?)
    }

    async fn connection(&self) -> Result<PgConnection, BoxError> {
        Ok(self.beside().await?)
    }

    async fn add_effect(conn: &mut PgConnection, id: &str) -> Result<(), BoxError> {
        sqlx::query("INSERT INTO effects (id) VALUES ($1)").bind(id).execute(conn).await?;
        Ok(())
    }

    async fn violate_unique(conn: &mut PgConnection) -> Result<(), BoxError> {
        sqlx::query("INSERT INTO single (id) VALUES (1), (1)").execute(conn).await?;
        Ok(())
    }

    async fn effects(&self) -> Result<Vec<String>, BoxError> {
        let sql = "SELECT id FROM effects ORDER BY number";
        Ok(sqlx::query_scalar(sql).fetch_all(&mut self.beside().await?).await?)
    }

    async fn receipts(&self, consumer: &str) -> Result<Vec<String>, BoxError> {
        let sql =
            "SELECT message_id FROM oncebox_inbox WHERE consumer = $1 ORDER BY message_id COLLATE \"C\"";
        Ok(sqlx::query_scalar(sql).bind(consumer).fetch_all(&mut self.beside().await?).await?)
    }

    async fn age_receipts(&self, consumer: &str, by: Duration) -> Result<(), BoxError> {
        self.age("oncebox_inbox", "processed_at", consumer, by).await
    }

    async fn age_positions(&self, consumer: &str, by: Duration) -> Result<(), BoxError> {
        self.age("oncebox_position", "updated_at", consumer, by).await?;
        self.age("oncebox_position", "caught_up_at", consumer, by).await
    }

    async fn expire_purger(&self) -> Result<(), BoxError> {
        let sql = "UPDATE oncebox_purge SET leased_until = clock_timestamp() - interval '1 second'";
        sqlx::raw_sql(sql).execute(&mut self.beside().await?).await?;
        Ok(())
    }
}

mod one_table {
    oncebox_testkit::conformance!(super::Subjected<false>);
}

mod partitions_by_day {
    oncebox_testkit::conformance!(super::Subjected<true>);
}

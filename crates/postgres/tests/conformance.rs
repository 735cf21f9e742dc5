//! The PostgreSQL store does what every store must do, with its receipts in one table, in partitions, and in a table that the
//! application already had.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod support;

use std::marker::PhantomData;
use std::time::Duration;

use oncebox_core::error::BoxError;
use oncebox_core::store::Adopt;
use oncebox_postgres::PgStore;
use oncebox_testkit::conformance::Subject;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use support::Database;

/// Where the receipts are.
trait Layout: Send + Sync + 'static {
    const BY_DAY: bool = false;
    const RECEIPTS: &'static str = "oncebox_inbox";
    /// The statements that make the table which the application already has.
    const TABLE: &'static str = "";

    fn adopt() -> Option<Adopt> {
        None
    }
}

struct OneTable;
impl Layout for OneTable {}

struct ByDay;
impl Layout for ByDay {
    const BY_DAY: bool = true;
}

struct Adopted;
impl Layout for Adopted {
    const RECEIPTS: &'static str = "\"Inbox\"";
    const TABLE: &'static str = "CREATE TABLE \"Inbox\" (number bigserial PRIMARY KEY, message_id text NOT NULL, \
         consumer varchar(200) NOT NULL, tenant text NOT NULL, processed_at timestamp NOT NULL, source text NOT NULL DEFAULT 'inventory-service, version 4711', \
         UNIQUE (consumer, tenant, message_id))";

    fn adopt() -> Option<Adopt> {
        let adopt = Adopt::table("Inbox", "message_id").and_then(|adopt| adopt.processed_at("processed_at"));
        adopt.and_then(|adopt| adopt.consumer("consumer")).and_then(|adopt| adopt.tenant("tenant")).ok()
    }
}

struct Subjected<L>(Database, PhantomData<L>);

impl<L: Layout> Subjected<L> {
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

impl<L: Layout> Subject for Subjected<L> {
    type Store = PgStore;

    async fn start() -> Result<Self, BoxError> {
        let subject = Self(Database::create().await, PhantomData);
        let tables = "CREATE TABLE effects (number bigserial, id text NOT NULL); CREATE TABLE single (id int PRIMARY KEY)";
        sqlx::raw_sql(tables).execute(&mut subject.beside().await?).await?;
        sqlx::raw_sql(L::TABLE).execute(&mut subject.beside().await?).await?;
        Ok(subject)
    }

    async fn connect(&self) -> Result<PgStore, BoxError> {
        let mut builder = PgStore::builder(&self.0.url).partition_receipts(L::BY_DAY);
        if let Some(adopt) = L::adopt() {
            builder = builder.adopt(adopt);
        }
        Ok(builder.connect().await?)
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
        let sql = format!(
            "SELECT message_id FROM {} WHERE consumer = $1 ORDER BY message_id COLLATE \"C\"",
            L::RECEIPTS
        );
        Ok(sqlx::query_scalar(AssertSqlSafe(sql)).bind(consumer).fetch_all(&mut self.beside().await?).await?)
    }

    async fn age_receipts(&self, consumer: &str, by: Duration) -> Result<(), BoxError> {
        self.age(L::RECEIPTS, "processed_at", consumer, by).await
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
        let sql = "UPDATE oncebox_purge SET leased_until = clock_timestamp() - interval '1 second'";
        sqlx::raw_sql(sql).execute(&mut self.beside().await?).await?;
        Ok(())
    }
}

mod one_table {
    oncebox_testkit::conformance!(super::Subjected<super::OneTable>);
}

mod partitions_by_day {
    oncebox_testkit::conformance!(super::Subjected<super::ByDay>);
}

mod adopted_table {
    oncebox_testkit::conformance!(receipts of super::Subjected<super::Adopted>);
}

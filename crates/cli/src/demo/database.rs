//! The demo's business tables, and the questions that the verdict asks of them.

use std::path::Path;

use sqlx::{PgPool, SqlitePool};

use super::CONSUMER;
use crate::exit::{Exit, Failure};

/// How many articles there are.
pub(crate) const SKUS: u32 = 40;
/// Stock of each of them at the start.
const INITIAL_STOCK: i64 = 1_000_000_000;

/// The database the consumers work on, seen with an ordinary client.
pub(crate) struct Database {
    url: String,
    pool: Pool,
    temporary: bool,
}

enum Pool {
    Postgres(PgPool),
    Sqlite(SqlitePool),
}

impl Database {
    pub(crate) async fn open(given: Option<&str>, folder: &Path) -> Result<Self, Failure> {
        let temporary = given.is_none();
        let url =
            given.map_or_else(|| format!("sqlite://{}", folder.join("demo.sqlite").display()), str::to_owned);
        let scheme = url.split("://").next().unwrap_or_default();
        // In boxes: they have room for all that a new connection may need.
        let opened = match scheme {
            "postgres" | "postgresql" => Box::pin(PgPool::connect(&url)).await.map(Pool::Postgres),
            "sqlite" => {
                let create = if url.contains('?') { "&mode=rwc" } else { "?mode=rwc" };
                Box::pin(SqlitePool::connect(&format!("{url}{create}"))).await.map(Pool::Sqlite)
            }
            _ => return Err(Failure::config("--store: use postgres://… or sqlite://…")),
        };
        let pool = opened.map_err(|e| Failure {
            exit: Exit::Unreachable,
            text: format!("--store: the database cannot be reached: {e}"),
        })?;
        Ok(Self { url, pool, temporary })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn describe(&self) -> &'static str {
        match (&self.pool, self.temporary) {
            (Pool::Sqlite(_), true) => "a temporary SQLite file",
            (Pool::Sqlite(_), false) => "your SQLite file",
            (Pool::Postgres(_), _) => "your PostgreSQL",
        }
    }

    /// Nothing in the ledger is unique: if an effect came twice, it would be there twice.
    pub(crate) async fn prepare(&self) -> Result<(), Failure> {
        self.drop_tables().await?;
        self.execute("CREATE TABLE oncebox_demo_stock (sku TEXT PRIMARY KEY, on_hand BIGINT NOT NULL)")
            .await?;
        match self.pool {
            Pool::Postgres(_) => {
                self.execute(
                    "CREATE TABLE oncebox_demo_ledger (n BIGSERIAL PRIMARY KEY, message_id TEXT, sku TEXT, qty BIGINT, seq BIGINT)",
                )
                .await?;
            }
            Pool::Sqlite(_) => {
                self.execute("PRAGMA journal_mode = WAL").await?;
                self.execute(
                    "CREATE TABLE oncebox_demo_ledger (n INTEGER PRIMARY KEY AUTOINCREMENT, message_id TEXT, sku TEXT, qty BIGINT, seq BIGINT)",
                )
                .await?;
            }
        }
        for sku in 0..SKUS {
            let sku = format!("sku-{sku}");
            let insert = "INSERT INTO oncebox_demo_stock (sku, on_hand) VALUES ($1, $2)";
            let inserted = match &self.pool {
                Pool::Postgres(pool) => {
                    sqlx::query(insert).bind(sku).bind(INITIAL_STOCK).execute(pool).await.map(|_| ())
                }
                Pool::Sqlite(pool) => {
                    sqlx::query(insert).bind(sku).bind(INITIAL_STOCK).execute(pool).await.map(|_| ())
                }
            };
            inserted.map_err(|e| Failure::data(e.to_string()))?;
        }
        Ok(())
    }

    /// The handler's statements, in the dialect of the database.
    pub(crate) fn statements(&self) -> [&'static str; 2] {
        match self.pool {
            Pool::Postgres(_) => [
                "UPDATE oncebox_demo_stock SET on_hand = on_hand - (:payload->>'qty')::bigint WHERE sku = :payload->>'sku'",
                "INSERT INTO oncebox_demo_ledger (message_id, sku, qty, seq) VALUES (:id, :payload->>'sku', (:payload->>'qty')::bigint, (:payload->>'seq')::bigint)",
            ],
            Pool::Sqlite(_) => [
                "UPDATE oncebox_demo_stock SET on_hand = on_hand - (:payload->>'qty') WHERE sku = :payload->>'sku'",
                "INSERT INTO oncebox_demo_ledger (message_id, sku, qty, seq) VALUES (:id, :payload->>'sku', :payload->>'qty', :payload->>'seq')",
            ],
        }
    }

    /// Effects applied so far.
    pub(crate) async fn effects(&self) -> Result<i64, Failure> {
        self.number("SELECT CAST(COUNT(*) AS BIGINT) FROM oncebox_demo_ledger").await
    }

    /// Messages with an effect.
    pub(crate) async fn distinct_effects(&self) -> Result<i64, Failure> {
        self.number("SELECT CAST(COUNT(DISTINCT message_id) AS BIGINT) FROM oncebox_demo_ledger").await
    }

    /// Effects that came after a later one of the same article.
    pub(crate) async fn out_of_order(&self) -> Result<i64, Failure> {
        self.number(
            "SELECT CAST(COUNT(*) AS BIGINT) FROM (SELECT seq, LAG(seq) OVER (PARTITION BY sku ORDER BY n) AS before \
             FROM oncebox_demo_ledger) AS l WHERE seq < before",
        )
        .await
    }

    /// How much stock is gone: counted a second way, from the other table.
    pub(crate) async fn stock_taken(&self) -> Result<i64, Failure> {
        let left =
            self.number("SELECT CAST(COALESCE(SUM(on_hand), 0) AS BIGINT) FROM oncebox_demo_stock").await?;
        Ok(i64::from(SKUS) * INITIAL_STOCK - left)
    }

    /// How many records of the topic are settled.
    pub(crate) async fn read_up_to(&self) -> Result<i64, Failure> {
        self.position(
            "SELECT CAST(COALESCE(SUM(next_offset), 0) AS BIGINT) FROM oncebox_position WHERE consumer = $1",
        )
        .await
    }

    /// Copies that were skipped.
    pub(crate) async fn duplicates(&self) -> Result<i64, Failure> {
        self.position(
            "SELECT CAST(COALESCE(SUM(duplicates), 0) AS BIGINT) FROM oncebox_position WHERE consumer = $1",
        )
        .await
    }

    pub(crate) async fn clean_up(&self) -> Result<(), Failure> {
        if self.temporary { Ok(()) } else { self.drop_tables().await }
    }

    /// Our own tables, and what an earlier demo left in oncebox's.
    async fn drop_tables(&self) -> Result<(), Failure> {
        self.execute("DROP TABLE IF EXISTS oncebox_demo_stock").await?;
        self.execute("DROP TABLE IF EXISTS oncebox_demo_ledger").await?;
        if self.has_positions().await? {
            for forget in [
                "DELETE FROM oncebox_position WHERE consumer = $1",
                "DELETE FROM oncebox_inbox WHERE consumer = $1",
                "DELETE FROM oncebox_dead WHERE consumer = $1",
                "DELETE FROM oncebox_attempt WHERE consumer = $1",
                "DELETE FROM oncebox_horizon WHERE consumer = $1",
            ] {
                let done = match &self.pool {
                    Pool::Postgres(pool) => {
                        sqlx::query(forget).bind(CONSUMER).execute(pool).await.map(|_| ())
                    }
                    Pool::Sqlite(pool) => sqlx::query(forget).bind(CONSUMER).execute(pool).await.map(|_| ()),
                };
                done.map_err(|e| Failure::data(e.to_string()))?;
            }
        }
        Ok(())
    }

    /// The consumers make oncebox's tables when they start.
    async fn has_positions(&self) -> Result<bool, Failure> {
        let found = match self.pool {
            Pool::Postgres(_) => {
                self.number("SELECT CAST(COUNT(to_regclass('oncebox_position')) AS BIGINT)").await?
            }
            Pool::Sqlite(_) => {
                self.number("SELECT COUNT(*) FROM sqlite_master WHERE name = 'oncebox_position'").await?
            }
        };
        Ok(found > 0)
    }

    async fn position(&self, sql: &'static str) -> Result<i64, Failure> {
        if !self.has_positions().await? {
            return Ok(0);
        }
        let number = match &self.pool {
            Pool::Postgres(pool) => sqlx::query_scalar(sql).bind(CONSUMER).fetch_one(pool).await,
            Pool::Sqlite(pool) => sqlx::query_scalar(sql).bind(CONSUMER).fetch_one(pool).await,
        };
        number.map_err(|e| Failure::data(e.to_string()))
    }

    async fn number(&self, sql: &'static str) -> Result<i64, Failure> {
        let number = match &self.pool {
            Pool::Postgres(pool) => sqlx::query_scalar(sql).fetch_one(pool).await,
            Pool::Sqlite(pool) => sqlx::query_scalar(sql).fetch_one(pool).await,
        };
        number.map_err(|e| Failure::data(e.to_string()))
    }

    async fn execute(&self, sql: &'static str) -> Result<(), Failure> {
        let done = match &self.pool {
            Pool::Postgres(pool) => sqlx::query(sql).execute(pool).await.map(|_| ()),
            Pool::Sqlite(pool) => sqlx::query(sql).execute(pool).await.map(|_| ()),
        };
        done.map_err(|e| Failure::data(e.to_string()))
    }
}

//! An ordinary client of whatever database the demo runs on.

use sqlx::{AssertSqlSafe, MySqlPool, PgPool, SqlitePool};

use crate::exit::{Exit, Failure};

/// Connections to the database. Statements have no parameters: everything in them is ours.
pub(crate) enum Pool {
    Mysql(MySqlPool),
    Postgres(PgPool),
    Sqlite(SqlitePool),
}

impl Pool {
    pub(crate) async fn connect(url: &str) -> Result<Self, Failure> {
        // In boxes: they have room for all that a new connection may need.
        let opened = match url.split("://").next().unwrap_or_default() {
            "mysql" | "mariadb" => Box::pin(MySqlPool::connect(url)).await.map(Self::Mysql),
            "postgres" | "postgresql" => Box::pin(PgPool::connect(url)).await.map(Self::Postgres),
            "sqlite" => {
                let create = if url.contains('?') { "&mode=rwc" } else { "?mode=rwc" };
                Box::pin(SqlitePool::connect(&format!("{url}{create}"))).await.map(Self::Sqlite)
            }
            _ => {
                return Err(Failure::config(
                    "--store: use postgres://…, mysql://…, mongodb://… or sqlite://…",
                ));
            }
        };
        opened.map_err(|e| Failure {
            exit: Exit::Unreachable,
            text: format!("--store: the database cannot be reached: {e}"),
        })
    }

    pub(crate) async fn execute(&self, sql: &str) -> Result<(), Failure> {
        let sql = AssertSqlSafe(sql.to_owned());
        let done = match self {
            Self::Mysql(pool) => sqlx::raw_sql(sql).execute(pool).await.map(|_| ()),
            Self::Postgres(pool) => sqlx::raw_sql(sql).execute(pool).await.map(|_| ()),
            Self::Sqlite(pool) => sqlx::raw_sql(sql).execute(pool).await.map(|_| ()),
        };
        done.map_err(|e| Failure::data(e.to_string()))
    }

    /// A whole number: an expression, and where it comes from. Sums have other types, and each database its own.
    pub(crate) async fn number(&self, expression: &str, from: &str) -> Result<i64, Failure> {
        let integer = match self {
            Self::Mysql(_) => "SIGNED",
            Self::Postgres(_) | Self::Sqlite(_) => "BIGINT",
        };
        let sql = AssertSqlSafe(format!("SELECT CAST({expression} AS {integer}) FROM {from}"));
        let number = match self {
            Self::Mysql(pool) => sqlx::query_scalar(sql).fetch_one(pool).await,
            Self::Postgres(pool) => sqlx::query_scalar(sql).fetch_one(pool).await,
            Self::Sqlite(pool) => sqlx::query_scalar(sql).fetch_one(pool).await,
        };
        number.map_err(|e| Failure::data(e.to_string()))
    }
}

//! An ordinary client of the test's database.

use std::fmt::Display;
use std::path::Path;

use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, Executor, MySqlPool, PgPool, SqlitePool};

use super::Database;
use super::mongo::Mongo;

/// Statements are written once where that is possible: names in double quotes, texts joined by `||`, `CAST(… AS BIGINT)`.
pub(super) enum Pool {
    Mongodb(Mongo),
    /// Also a MariaDB: they speak one protocol.
    Mysql(MySqlPool),
    Postgres(PgPool),
    Sqlite(SqlitePool),
}

impl Pool {
    pub(super) async fn mysql(options: MySqlConnectOptions) -> Self {
        let pool = MySqlPoolOptions::new().max_connections(3).min_connections(1);
        let pool = pool.after_connect(|conn, _| {
            Box::pin(async move {
                // The driver has joined texts by `||` already.
                conn.execute("SET SESSION sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES')").await.map(drop)
            })
        });
        // In a box: it has room for all that a new connection may need.
        Self::Mysql(Box::pin(pool.connect_with(options)).await.expect("the new database"))
    }

    pub(super) async fn postgres(options: PgConnectOptions) -> Self {
        let pool = PgPoolOptions::new().max_connections(3).min_connections(1).connect_with(options).await;
        Self::Postgres(pool.expect("the new database"))
    }

    pub(super) async fn sqlite(file: &Path) -> Self {
        let options = SqliteConnectOptions::new()
            .filename(file)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .busy_timeout(std::time::Duration::from_secs(30));
        let pool = SqlitePoolOptions::new().max_connections(2).connect_with(options).await;
        Self::Sqlite(pool.expect("the new file"))
    }
}

impl Database {
    /// MariaDB and MySQL have another word for it where something is cast.
    fn in_dialect(&self, sql: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(match self.pool {
            Pool::Mysql(_) => sql.replace("AS BIGINT)", "AS SIGNED)"),
            Pool::Mongodb(_) | Pool::Postgres(_) | Pool::Sqlite(_) => sql.to_owned(),
        })
    }

    pub(crate) async fn execute(&self, sql: &str) -> u64 {
        let text = self.in_dialect(sql);
        let done = match &self.pool {
            Pool::Mysql(pool) => sqlx::query(text).execute(pool).await.map(|done| done.rows_affected()),
            Pool::Mongodb(_) => no_sql(sql),
            Pool::Postgres(pool) => sqlx::query(text).execute(pool).await.map(|done| done.rows_affected()),
            Pool::Sqlite(pool) => sqlx::query(text).execute(pool).await.map(|done| done.rows_affected()),
        };
        answer(sql, done)
    }

    /// Runs a script of many statements, as the database's own client would.
    pub(crate) async fn script(&self, sql: &str) {
        match &self.pool {
            Pool::Mongodb(db) => db.script(sql).await,
            Pool::Mysql(pool) => {
                for part in parts_between_delimiters(sql) {
                    let done = sqlx::raw_sql(AssertSqlSafe(part.clone())).execute(pool).await.map(drop);
                    answer(&part, done);
                }
            }
            Pool::Postgres(pool) => {
                let done = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(pool).await.map(drop);
                answer(sql, done);
            }
            Pool::Sqlite(pool) => {
                let done = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(pool).await.map(drop);
                answer(sql, done);
            }
        }
    }

    /// Makes the collections that a script for `mongosh` makes (MongoDB only).
    pub(crate) async fn create_collections_of(&self, script: &str) {
        let Pool::Mongodb(db) = &self.pool else { panic!("only MongoDB has collections") };
        for line in script.lines() {
            let name = line.strip_prefix("db.createCollection(\"").and_then(|rest| rest.strip_suffix("\");"));
            if let Some(name) = name {
                db.create_unless_there(name).await;
            }
        }
    }

    /// The two steps of the old code of `examples/adopt/mongodb`. False if it has seen the message (MongoDB only).
    pub(crate) async fn inserts_and_takes_one(&self, collection: &str, id: &str) -> bool {
        let Pool::Mongodb(db) = &self.pool else { panic!("only MongoDB has collections") };
        db.inserts_and_takes_one(collection, id).await
    }

    /// The number that a query answers; it has to be a BIGINT.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        let text = self.in_dialect(sql);
        let number = match &self.pool {
            Pool::Mysql(pool) => sqlx::query_scalar(text).fetch_one(pool).await,
            Pool::Mongodb(_) => no_sql(sql),
            Pool::Postgres(pool) => sqlx::query_scalar(text).fetch_one(pool).await,
            Pool::Sqlite(pool) => sqlx::query_scalar(text).fetch_one(pool).await,
        };
        answer(sql, number)
    }

    /// The single column of text that a query answers.
    pub(crate) async fn texts(&self, sql: &str) -> Vec<String> {
        let text = self.in_dialect(sql);
        let texts = match &self.pool {
            Pool::Mysql(pool) => sqlx::query_scalar(text).fetch_all(pool).await,
            Pool::Mongodb(_) => no_sql(sql),
            Pool::Postgres(pool) => sqlx::query_scalar(text).fetch_all(pool).await,
            Pool::Sqlite(pool) => sqlx::query_scalar(text).fetch_all(pool).await,
        };
        answer(sql, texts)
    }

    /// The two columns of numbers that a query answers.
    pub(crate) async fn pairs(&self, sql: &str) -> Vec<(i64, i64)> {
        let text = self.in_dialect(sql);
        let pairs = match &self.pool {
            Pool::Mysql(pool) => sqlx::query_as(text).fetch_all(pool).await,
            Pool::Mongodb(_) => no_sql(sql),
            Pool::Postgres(pool) => sqlx::query_as(text).fetch_all(pool).await,
            Pool::Sqlite(pool) => sqlx::query_as(text).fetch_all(pool).await,
        };
        answer(sql, pairs)
    }
}

/// `DELIMITER` is for the client, which sends what stands before the new one as it is. What stands before a semicolon the server
/// takes apart by itself.
fn parts_between_delimiters(sql: &str) -> Vec<String> {
    let (mut delimiter, mut parts, mut part) = (";", Vec::new(), String::new());
    for line in sql.lines() {
        let next = line.strip_prefix("DELIMITER ").map(str::trim);
        let end = line.trim_end().strip_suffix(delimiter).filter(|_| delimiter != ";");
        part += if next.is_some() { "" } else { end.unwrap_or(line) };
        part.push('\n');
        if next.is_some() || end.is_some() {
            parts.push(std::mem::take(&mut part));
        }
        delimiter = next.unwrap_or(delimiter);
    }
    parts.push(part);
    parts.retain(|part| part.lines().any(|line| !line.trim().is_empty() && !line.starts_with("--")));
    parts
}

fn no_sql(sql: &str) -> ! {
    panic!("MongoDB speaks no SQL: {sql}");
}

#[track_caller]
fn answer<T>(sql: &str, answer: Result<T, impl Display>) -> T {
    answer.unwrap_or_else(|e| panic!("{sql}: {e}"))
}

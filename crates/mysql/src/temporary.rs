//! A database for one test.

use std::str::FromStr;
use std::time::Duration;

use sqlx::mysql::MySqlConnectOptions;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};
use uuid::Uuid;

use crate::MysqlStore;
use crate::options::Limits;

/// A database with the tables of oncebox in it, that belongs to one test and is dropped with this value.
#[derive(Debug)]
pub struct TemporaryMysql {
    store: MysqlStore,
    options: MySqlConnectOptions,
    _dropped: DroppedAtTheEnd,
}

impl TemporaryMysql {
    /// Makes the database and the tables on the server that this URL names, by a user who may create databases.
    ///
    /// # Panics
    /// If it cannot.
    pub async fn new(server: &str) -> Self {
        let server = MySqlConnectOptions::from_str(server).unwrap_or_else(|e| panic!("not a MySQL URL: {e}"));
        let name = format!("oncebox_test_{}", Uuid::now_v7().simple());
        if let Err(e) = run(&server, format!("CREATE DATABASE {name}")).await {
            panic!("the database {name} cannot be created: {e}");
        }
        let options = server.clone().database(&name);
        let dropped = DroppedAtTheEnd { server, name };
        let store = MysqlStore::new(options.clone(), 10, Duration::from_secs(30), Limits::default(), None)
            .unwrap_or_else(|e| panic!("{e}"));
        store.migrate().await.unwrap_or_else(|e| panic!("{e}"));
        Self { store, options, _dropped: dropped }
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> MysqlStore {
        self.store.clone()
    }

    /// A connection of the test's own: for its tables, and to see what became of them.
    ///
    /// # Panics
    /// If there is none to be had.
    pub async fn connect(&self) -> MySqlConnection {
        MySqlConnection::connect_with(&self.options).await.unwrap_or_else(|e| panic!("{e}"))
    }
}

async fn run(server: &MySqlConnectOptions, sql: String) -> sqlx::Result<()> {
    let mut conn = MySqlConnection::connect_with(server).await?;
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await?;
    conn.close().await
}

#[derive(Debug)]
struct DroppedAtTheEnd {
    server: MySqlConnectOptions,
    name: String,
}

impl Drop for DroppedAtTheEnd {
    fn drop(&mut self) {
        let dropped = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(run(&self.server, format!("DROP DATABASE {}", self.name)))
        };
        // Nothing can be awaited here, so a thread does. It must not panic: the test may be panicking already.
        let outcome = std::thread::scope(|scope| scope.spawn(dropped).join());
        if !matches!(outcome, Ok(Ok(()))) {
            eprintln!("the database {} was left behind", self.name);
        }
    }
}

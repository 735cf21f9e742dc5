//! A database of its own for each test: PostgreSQL, or a SQLite file.

use std::path::Path;
use std::str::FromStr;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool, SqlitePool};

use super::orders::{ON_HAND, SKUS};
use super::service;

/// Which database a test runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Postgres,
    Sqlite,
}

/// What the daemons work on, seen with an ordinary client.
pub(crate) struct Database {
    pub(crate) kind: Kind,
    /// As it stands in `store.url`.
    pub(crate) url: String,
    name: String,
    pool: Pool,
}

enum Pool {
    Postgres(PgPool),
    Sqlite(SqlitePool),
}

impl Database {
    /// `options` are those of CREATE DATABASE.
    pub(crate) async fn create(kind: Kind, name: &str, folder: &Path, options: &str) -> Self {
        let (url, pool) = match kind {
            Kind::Postgres => {
                execute_at_server(&format!("CREATE DATABASE {name} {options}")).await;
                let options = server().database(name).application_name("e2e");
                let pool =
                    PgPoolOptions::new().max_connections(3).min_connections(1).connect_with(options).await;
                (url_of(name), Pool::Postgres(pool.expect("the new database")))
            }
            Kind::Sqlite => {
                let file = folder.join("e2e.sqlite");
                let options = SqliteConnectOptions::new()
                    .filename(&file)
                    .create_if_missing(true)
                    .journal_mode(sqlx::sqlite::SqliteJournalMode::Wal)
                    .busy_timeout(std::time::Duration::from_secs(30));
                let pool = SqlitePoolOptions::new().max_connections(2).connect_with(options).await;
                (format!("sqlite://{}", file.display()), Pool::Sqlite(pool.expect("the new file")))
            }
        };
        let database = Self { kind, url, name: name.to_owned(), pool };
        database.create_tables().await;
        database
    }

    /// Nothing in the ledger is unique: an effect that comes twice is there twice.
    async fn create_tables(&self) {
        let ascending = match self.kind {
            Kind::Postgres => "BIGSERIAL PRIMARY KEY",
            Kind::Sqlite => "INTEGER PRIMARY KEY AUTOINCREMENT",
        };
        self.execute(
            "CREATE TABLE stock (sku TEXT PRIMARY KEY, on_hand BIGINT NOT NULL CHECK (on_hand >= 0), \
             delivered BIGINT NOT NULL)",
        )
        .await;
        self.execute(&format!(
            "CREATE TABLE ledger (n {ascending}, consumer TEXT NOT NULL, message_id TEXT NOT NULL, \
             sku TEXT NOT NULL, qty BIGINT NOT NULL, seq BIGINT NOT NULL)"
        ))
        .await;
        for sku in 0..SKUS {
            self.deliver(&format!("sku-{sku}"), ON_HAND).await;
        }
    }

    /// More of an article, or of a new one.
    pub(crate) async fn deliver(&self, sku: &str, quantity: i64) {
        self.execute(&format!(
            "INSERT INTO stock (sku, on_hand, delivered) VALUES ('{sku}', {quantity}, {quantity}) ON CONFLICT (sku) \
             DO UPDATE SET on_hand = stock.on_hand + {quantity}, delivered = stock.delivered + {quantity}"
        ))
        .await;
    }

    pub(crate) async fn execute(&self, sql: &str) -> u64 {
        let sql_text = AssertSqlSafe(sql.to_owned());
        let done = match &self.pool {
            Pool::Postgres(pool) => {
                sqlx::query(sql_text).execute(pool).await.map(|done| done.rows_affected())
            }
            Pool::Sqlite(pool) => sqlx::query(sql_text).execute(pool).await.map(|done| done.rows_affected()),
        };
        done.unwrap_or_else(|e| panic!("{sql}: {e}"))
    }

    /// Runs a script of many statements.
    pub(crate) async fn script(&self, sql: &str) {
        let sql = AssertSqlSafe(sql.to_owned());
        let done = match &self.pool {
            Pool::Postgres(pool) => sqlx::raw_sql(sql).execute(pool).await.map(drop),
            Pool::Sqlite(pool) => sqlx::raw_sql(sql).execute(pool).await.map(drop),
        };
        done.expect("the script runs");
    }

    /// The number that a query answers; it has to be a BIGINT.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        let sql_text = AssertSqlSafe(sql.to_owned());
        let number = match &self.pool {
            Pool::Postgres(pool) => sqlx::query_scalar(sql_text).fetch_one(pool).await,
            Pool::Sqlite(pool) => sqlx::query_scalar(sql_text).fetch_one(pool).await,
        };
        number.unwrap_or_else(|e| panic!("{sql}: {e}"))
    }

    /// The single column of text that a query answers.
    pub(crate) async fn texts(&self, sql: &str) -> Vec<String> {
        let sql_text = AssertSqlSafe(sql.to_owned());
        let texts = match &self.pool {
            Pool::Postgres(pool) => sqlx::query_scalar(sql_text).fetch_all(pool).await,
            Pool::Sqlite(pool) => sqlx::query_scalar(sql_text).fetch_all(pool).await,
        };
        texts.unwrap_or_else(|e| panic!("{sql}: {e}"))
    }

    /// The two columns of numbers that a query answers.
    pub(crate) async fn pairs(&self, sql: &str) -> Vec<(i64, i64)> {
        let sql_text = AssertSqlSafe(sql.to_owned());
        let pairs = match &self.pool {
            Pool::Postgres(pool) => sqlx::query_as(sql_text).fetch_all(pool).await,
            Pool::Sqlite(pool) => sqlx::query_as(sql_text).fetch_all(pool).await,
        };
        pairs.unwrap_or_else(|e| panic!("{sql}: {e}"))
    }

    /// Whether the daemon has made its tables.
    pub(crate) async fn is_migrated(&self) -> bool {
        let found = match self.kind {
            Kind::Postgres => "SELECT CAST(COUNT(to_regclass('oncebox_position')) AS BIGINT)",
            Kind::Sqlite => "SELECT COUNT(*) FROM sqlite_master WHERE name = 'oncebox_position'",
        };
        self.number(found).await > 0
    }

    /// Makes all receipts two hours older.
    pub(crate) async fn age_receipts(&self) {
        self.execute(match self.kind {
            Kind::Postgres => "UPDATE oncebox_inbox SET processed_at = processed_at - interval '2 hours'",
            Kind::Sqlite => {
                "UPDATE oncebox_inbox SET processed_at = strftime('%Y-%m-%dT%H:%M:%fZ', processed_at, '-2 hours')"
            }
        })
        .await;
    }

    /// Lets ten days pass for everything that our tables remember (PostgreSQL only).
    pub(crate) async fn ten_days_pass(&self) {
        self.execute("UPDATE oncebox_inbox SET processed_at = processed_at - interval '10 days'").await;
        self.execute("UPDATE oncebox_dead SET failed_at = failed_at - interval '10 days'").await;
        self.execute(
            "UPDATE oncebox_position SET caught_up_at = caught_up_at - interval '10 days', \
             updated_at = updated_at - interval '10 days'",
        )
        .await;
    }

    /// Ends the connections of all daemons to this database; returns how many.
    pub(crate) async fn terminate_daemons(&self) -> i64 {
        self.number(
            "SELECT CAST(COUNT(pg_terminate_backend(pid)) AS BIGINT) FROM pg_stat_activity \
             WHERE datname = current_database() AND application_name = 'oncebox'",
        )
        .await
    }

    /// Whether the database lets anybody in. Connections that are there stay.
    pub(crate) async fn allow_connections(&self, allowed: bool) {
        self.alter(&format!("ALLOW_CONNECTIONS {allowed}")).await;
    }

    /// ALTER DATABASE; settings hold for connections that begin later.
    pub(crate) async fn alter(&self, change: &str) {
        execute_at_server(&format!("ALTER DATABASE {} {change}", self.name)).await;
    }

    /// A connection of its own (PostgreSQL only).
    pub(crate) async fn connect(&self) -> PgConnection {
        let options = server().database(&self.name).application_name("e2e");
        PgConnection::connect_with(&options).await.expect("a connection")
    }

    /// A lock that statements with `pg_advisory_xact_lock_shared(1)` wait for, until it is dropped.
    pub(crate) async fn close_gate(&self) -> Gate {
        let mut conn = self.connect().await;
        sqlx::query("SELECT pg_advisory_lock(1)").execute(&mut conn).await.expect("the lock");
        Gate(conn)
    }

    /// Opens a transaction (PostgreSQL only) and runs this in it.
    pub(crate) async fn begin(&self, sql: &str) -> OpenTransaction {
        let mut open = OpenTransaction(self.connect().await);
        open.execute("BEGIN").await;
        open.execute(sql).await;
        open
    }

    /// Makes a user that may do everything here without being a superuser, and puts it into a URL.
    pub(crate) async fn become_user(&self, name: &str, url: &mut String) -> String {
        let role = format!("user_{name}");
        for sql in [
            format!("CREATE ROLE {role} LOGIN"),
            format!("GRANT ALL ON DATABASE {} TO {role}", self.name),
            format!("GRANT ALL ON SCHEMA public TO {role}"),
            format!("GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}"),
            format!("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}"),
        ] {
            self.execute(&sql).await;
        }
        let (_, host) = url.split_once('@').expect("a URL with a user");
        *url = format!("postgres://{role}@{host}");
        role
    }

    /// Removes a user with everything that it owns.
    pub(crate) async fn drop_user(&self, role: &str) {
        self.execute(&format!("DROP OWNED BY {role} CASCADE")).await;
        self.execute(&format!("DROP ROLE {role}")).await;
    }

    /// Removes the database; the folder of a SQLite file goes by itself.
    pub(crate) async fn drop(&self) {
        if self.kind == Kind::Postgres {
            execute_at_server(&format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name)).await;
        }
    }
}

/// A transaction of somebody else.
pub(crate) struct OpenTransaction(PgConnection);

impl OpenTransaction {
    pub(crate) async fn execute(&mut self, sql: &str) {
        let done = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut self.0).await;
        done.unwrap_or_else(|e| panic!("{sql}: {e}"));
    }

    pub(crate) async fn rollback(mut self) {
        self.execute("ROLLBACK").await;
    }

    pub(crate) async fn commit(mut self) {
        self.execute("COMMIT").await;
    }
}

/// Keeps handlers waiting.
pub(crate) struct Gate(PgConnection);

impl Gate {
    pub(crate) async fn open(self) {
        self.0.close().await.expect("the connection ends");
    }
}

fn server() -> PgConnectOptions {
    PgConnectOptions::from_str(&service("ONCEBOX_TEST_POSTGRES"))
        .expect("ONCEBOX_TEST_POSTGRES is a PostgreSQL URL")
}

/// The URL of a database on the same server.
fn url_of(name: &str) -> String {
    let server = service("ONCEBOX_TEST_POSTGRES");
    let (base, query) =
        server.split_once('?').map_or((server.as_str(), None), |(base, query)| (base, Some(query)));
    let root = base.rsplit_once('/').map_or(base, |(root, _)| root);
    query.map_or_else(|| format!("{root}/{name}"), |query| format!("{root}/{name}?{query}"))
}

async fn execute_at_server(sql: &str) {
    let mut conn = PgConnection::connect_with(&server()).await.expect("PostgreSQL at ONCEBOX_TEST_POSTGRES");
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
        .execute(&mut conn)
        .await
        .unwrap_or_else(|e| panic!("{sql}: {e}"));
}

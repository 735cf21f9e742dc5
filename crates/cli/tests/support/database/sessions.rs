//! Who is connected to the test's database, and what they wait for. There are no such sessions on a SQLite file.

use std::time::Duration;

use oncebox_mongodb::MongoStore;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection};

use super::pool::Pool;
use super::{Database, Kind, mongo, server};
use crate::support::proxy::Proxy;

impl Database {
    /// A connection of its own.
    pub(crate) async fn connect(&self) -> Session {
        match self.kind {
            Kind::Mariadb | Kind::Mysql => {
                let options = server::mysql(self.kind).database(&self.name);
                let conn = MySqlConnection::connect_with(&options).await;
                Session::Mysql(conn.expect("a connection"))
            }
            Kind::Postgres => {
                let options = server::postgres().database(&self.name).application_name("e2e");
                let conn = PgConnection::connect_with(&options).await;
                Session::Postgres(conn.expect("a connection"))
            }
            Kind::Mongodb => {
                let store = MongoStore::connect(&mongo::url(&self.name)).await;
                Session::Mongodb(store.expect("a connection"))
            }
            Kind::Sqlite => panic!("a SQLite file has no sessions"),
        }
    }

    /// Opens a transaction and runs this in it.
    pub(crate) async fn begin(&self, sql: &str) -> OpenTransaction {
        let mut open = OpenTransaction(self.connect().await);
        open.execute("BEGIN").await;
        open.execute(sql).await;
        open
    }

    /// A lock that gated handlers wait for, until it is dropped.
    pub(crate) async fn close_gate(&self) -> Gate<'_> {
        if let Some(proxy) = &self.proxy {
            proxy.close_gate(true);
            return Gate::Proxy(proxy);
        }
        let mut session = self.connect().await;
        session
            .execute(match self.kind {
                Kind::Mariadb | Kind::Mysql => "DO GET_LOCK(DATABASE(), 60)",
                _ => "SELECT pg_advisory_lock(1)",
            })
            .await;
        Gate::Lock(session)
    }

    /// How many transactions stand before the gate.
    pub(crate) async fn waiting_handlers(&self) -> i64 {
        if let Some(proxy) = &self.proxy {
            return proxy.waiting();
        }
        self.number(&match self.kind {
            Kind::Mariadb | Kind::Mysql => format!(
                "SELECT COUNT(*) FROM information_schema.processlist WHERE user = '{}' AND state = 'User lock'",
                self.user
            ),
            _ => {
                "SELECT CAST(COUNT(*) AS BIGINT) FROM pg_locks l JOIN pg_stat_activity a USING (pid) \
                 WHERE a.datname = current_database() AND l.locktype = 'advisory' AND l.objid = 1 AND NOT l.granted"
                    .to_owned()
            }
        })
        .await
    }

    /// How many transactions of daemons have written something and wait for nobody but the daemon.
    pub(crate) async fn idle_transactions(&self) -> i64 {
        if let Pool::Mongodb(db) = &self.pool {
            return db.idle_transactions(&self.user).await;
        }
        if matches!(self.kind, Kind::Mariadb | Kind::Mysql) {
            // As long as somebody asks at least every 100 ms, the server answers from what it knew before.
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        self.number(&match self.kind {
            Kind::Mariadb | Kind::Mysql => format!(
                "SELECT COUNT(*) FROM information_schema.innodb_trx t JOIN information_schema.processlist p \
                 ON p.id = t.trx_mysql_thread_id WHERE p.user = '{}' AND t.trx_state = 'RUNNING' \
                 AND t.trx_rows_modified > 0 AND p.command = 'Sleep'",
                self.user
            ),
            _ => {
                // With a transaction id: it has written something.
                "SELECT CAST(COUNT(*) AS BIGINT) FROM pg_stat_activity WHERE datname = current_database() \
                 AND application_name = 'oncebox' AND state = 'idle in transaction' AND backend_xid IS NOT NULL"
                    .to_owned()
            }
        })
        .await
    }

    /// Ends the connections of all daemons to this database; returns how many.
    pub(crate) async fn terminate_daemons(&self) -> i64 {
        if let Some(proxy) = &self.proxy {
            return proxy.cut();
        }
        if matches!(self.kind, Kind::Mariadb | Kind::Mysql) {
            return i64::try_from(server::kill_user(self.kind, &self.user).await).expect("few");
        }
        let terminate = "SELECT CAST(COUNT(pg_terminate_backend(pid)) AS BIGINT) FROM pg_stat_activity \
                         WHERE datname = current_database() AND application_name = 'oncebox'";
        self.number(terminate).await
    }

    /// Whether the database lets the daemons in. Connections that are there stay.
    pub(crate) async fn allow_connections(&self, allowed: bool) {
        match self.kind {
            Kind::Mariadb | Kind::Mysql => {
                let lock = if allowed { "UNLOCK" } else { "LOCK" };
                let alter = format!("ALTER USER {} ACCOUNT {lock}", self.user);
                server::execute_at_mysql(self.kind, &alter).await;
            }
            Kind::Mongodb => self.proxy.as_ref().expect("a proxy").refuse(!allowed),
            Kind::Postgres | Kind::Sqlite => self.alter(&format!("ALLOW_CONNECTIONS {allowed}")).await,
        }
    }

    /// What it says to daemons that it does not let in.
    pub(crate) fn refusal(&self) -> &'static str {
        match self.kind {
            Kind::Mariadb => "account is locked",
            Kind::Mongodb => "Server selection timeout",
            Kind::Mysql => "Account is locked",
            Kind::Postgres | Kind::Sqlite => "not currently accepting connections",
        }
    }

    /// ALTER DATABASE; settings hold for connections that begin later (PostgreSQL only).
    pub(crate) async fn alter(&self, change: &str) {
        server::execute_at_postgres(&format!("ALTER DATABASE {} {change}", self.name)).await;
    }
}

/// A connection of somebody else.
pub(crate) enum Session {
    Mongodb(MongoStore),
    /// Also a MariaDB: they speak one protocol.
    Mysql(MySqlConnection),
    Postgres(PgConnection),
}

impl Session {
    pub(crate) async fn execute(&mut self, sql: &str) {
        let text = AssertSqlSafe(sql.to_owned());
        let done = match self {
            Self::Mysql(conn) => sqlx::raw_sql(text).execute(conn).await.map(drop),
            Self::Mongodb(_) => panic!("MongoDB speaks no SQL: {sql}"),
            Self::Postgres(conn) => sqlx::raw_sql(text).execute(conn).await.map(drop),
        };
        done.unwrap_or_else(|e| panic!("{sql}: {e}"));
    }

    async fn close(self) -> sqlx::Result<()> {
        match self {
            Self::Mysql(conn) => conn.close().await,
            Self::Mongodb(_) => Ok(()),
            Self::Postgres(conn) => conn.close().await,
        }
    }
}

/// A transaction of somebody else.
pub(crate) struct OpenTransaction(Session);

impl OpenTransaction {
    pub(crate) async fn execute(&mut self, sql: &str) {
        self.0.execute(sql).await;
    }

    pub(crate) async fn rollback(mut self) {
        self.execute("ROLLBACK").await;
    }

    pub(crate) async fn commit(mut self) {
        self.execute("COMMIT").await;
    }
}

/// Keeps handlers waiting.
pub(crate) enum Gate<'a> {
    /// In the server.
    Lock(Session),
    /// On the way to it.
    Proxy(&'a Proxy),
}

impl Gate<'_> {
    pub(crate) async fn open(self) {
        match self {
            Self::Lock(session) => session.close().await.expect("the connection ends"),
            Self::Proxy(proxy) => proxy.close_gate(false),
        }
    }
}

//! The servers that `cargo xtask test` has started, seen as a superuser.

use std::str::FromStr;

use sqlx::mysql::{MySqlConnectOptions, MySqlDatabaseError};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection};

use super::{Kind, PASSWORD};
use crate::support::service;

const MARIADB: &str = "ONCEBOX_TEST_MARIADB";
const MYSQL: &str = "ONCEBOX_TEST_MYSQL";
const POSTGRES: &str = "ONCEBOX_TEST_POSTGRES";

/// `ER_NO_SUCH_THREAD`.
const NO_SUCH_THREAD: u16 = 1094;

pub(super) fn postgres() -> PgConnectOptions {
    PgConnectOptions::from_str(&service(POSTGRES)).expect("the URL of a PostgreSQL")
}

/// Which of the two that speak one protocol, by the variable that names it.
pub(super) fn variable(kind: Kind) -> &'static str {
    match kind {
        Kind::Mariadb => MARIADB,
        Kind::Mysql => MYSQL,
        Kind::Mongodb | Kind::Postgres | Kind::Sqlite => panic!("{kind:?} has another protocol"),
    }
}

/// A MariaDB or a MySQL.
pub(super) fn mysql(kind: Kind) -> MySqlConnectOptions {
    MySqlConnectOptions::from_str(&service(variable(kind))).expect("the URL of a MariaDB or a MySQL")
}

/// The URL of a database on the same server.
pub(super) fn postgres_url(name: &str) -> String {
    with_database(&service(POSTGRES), name)
}

/// The same for a user of its own.
pub(super) fn mysql_url(kind: Kind, name: &str, user: &str) -> String {
    let url = with_database(&service(variable(kind)), name);
    let (scheme, rest) = url.split_once("://").expect("a URL");
    let (_, host) = rest.rsplit_once('@').expect("a URL with a user");
    format!("{scheme}://{user}:{PASSWORD}@{host}")
}

fn with_database(server: &str, name: &str) -> String {
    let (base, query) = server.split_once('?').map_or((server, None), |(base, query)| (base, Some(query)));
    let root = base.rsplit_once('/').map_or(base, |(root, _)| root);
    query.map_or_else(|| format!("{root}/{name}"), |query| format!("{root}/{name}?{query}"))
}

pub(super) async fn execute_at_postgres(sql: &str) {
    let mut conn = PgConnection::connect_with(&postgres()).await.expect("PostgreSQL");
    let done = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut conn).await;
    done.unwrap_or_else(|e| panic!("{sql}: {e}"));
}

pub(super) async fn execute_at_mysql(kind: Kind, sql: &str) {
    let mut conn = MySqlConnection::connect_with(&mysql(kind)).await.expect("MariaDB or MySQL");
    let done = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut conn).await;
    done.unwrap_or_else(|e| panic!("{sql}: {e}"));
}

/// Ends all connections of a user; returns how many there were.
pub(super) async fn kill_user(kind: Kind, user: &str) -> usize {
    let mut conn = MySqlConnection::connect_with(&mysql(kind)).await.expect("MariaDB or MySQL");
    let list = format!("SELECT CAST(id AS SIGNED) FROM information_schema.processlist WHERE user = '{user}'");
    let ids: Vec<i64> =
        sqlx::query_scalar(AssertSqlSafe(list)).fetch_all(&mut conn).await.expect("the connections");
    for id in &ids {
        let killed = sqlx::raw_sql(AssertSqlSafe(format!("KILL {id}"))).execute(&mut conn).await;
        // One that has ended by itself meanwhile is what we want.
        if let Err(error) = killed.map_err(sqlx::Error::into_database_error) {
            let number =
                error.as_ref().and_then(|e| Some(e.try_downcast_ref::<MySqlDatabaseError>()?.number()));
            assert_eq!(number, Some(NO_SUCH_THREAD), "KILL {id}: {error:?}");
        }
    }
    ids.len()
}

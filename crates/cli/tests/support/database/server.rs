//! The servers that `cargo xtask test` has started, seen as a superuser.

use std::fs::File;
use std::path::PathBuf;
use std::str::FromStr;

use sqlx::mysql::MySqlConnectOptions;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection};

use super::PASSWORD;
use crate::support::service;

const MARIADB: &str = "ONCEBOX_TEST_MARIADB";
const POSTGRES: &str = "ONCEBOX_TEST_POSTGRES";

pub(super) fn postgres() -> PgConnectOptions {
    PgConnectOptions::from_str(&service(POSTGRES)).expect("the URL of a PostgreSQL")
}

pub(super) fn mariadb() -> MySqlConnectOptions {
    MySqlConnectOptions::from_str(&service(MARIADB)).expect("the URL of a MariaDB")
}

/// Held while a test uses MariaDB: `on_mariadb` has tests that change the server itself, and lock this file for themselves.
pub(super) fn beside_others_at_mariadb() -> File {
    let dir = std::env::var_os("ONCEBOX_TEST_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let path = dir.join(format!("{MARIADB}.lock"));
    let file = File::options().create(true).truncate(false).write(true).open(path).expect("a file to lock");
    file.lock_shared().expect("a lock");
    file
}

/// The URL of a database on the same server.
pub(super) fn postgres_url(name: &str) -> String {
    with_database(&service(POSTGRES), name)
}

/// The same for a user of its own.
pub(super) fn mariadb_url(name: &str, user: &str) -> String {
    let url = with_database(&service(MARIADB), name);
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

pub(super) async fn execute_at_mariadb(sql: &str) {
    let mut conn = MySqlConnection::connect_with(&mariadb()).await.expect("MariaDB");
    let done = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut conn).await;
    done.unwrap_or_else(|e| panic!("{sql}: {e}"));
}

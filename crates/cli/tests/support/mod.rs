//! A world for each test: a database, a topic, a configuration and the daemons that use them.

pub(crate) mod broker;
pub(crate) mod check;
pub(crate) mod collector;
pub(crate) mod command;
pub(crate) mod config;
pub(crate) mod daemon;
pub(crate) mod database;
pub(crate) mod endpoint;
pub(crate) mod issuer;
pub(crate) mod kafka_cluster;
pub(crate) mod kafka_proxy;
pub(crate) mod mongo_set;
pub(crate) mod murmur2;
pub(crate) mod orders;
pub(crate) mod outbox;
pub(crate) mod proxy;
pub(crate) mod queue;
pub(crate) mod records;
pub(crate) mod topic;
mod waiting;
pub(crate) mod world;

pub(crate) use waiting::eventually;

/// One test for each server: `the_test::on_postgres`, `the_test::on_mariadb` and `the_test::on_mongodb`. With `mysql:` also
/// `the_test::on_mysql`, where there is one; with `sql:` for all of these that speak it.
macro_rules! on_each_server {
    (mysql: $($test:ident),+ $(,)?) => {$(
        mod $test {
            $crate::support::on_server!($test, on_postgres, Postgres);
            $crate::support::on_server!($test, on_mariadb, Mariadb);
            $crate::support::on_server!($test, on_mongodb, Mongodb);
            #[cfg(feature = "mysql-server")]
            $crate::support::on_server!($test, on_mysql, Mysql);
        }
    )+};
    (sql: $($test:ident),+ $(,)?) => {$(
        mod $test {
            $crate::support::on_server!($test, on_postgres, Postgres);
            $crate::support::on_server!($test, on_mariadb, Mariadb);
            #[cfg(feature = "mysql-server")]
            $crate::support::on_server!($test, on_mysql, Mysql);
        }
    )+};
    ($($test:ident),+ $(,)?) => {$(
        mod $test {
            $crate::support::on_server!($test, on_postgres, Postgres);
            $crate::support::on_server!($test, on_mariadb, Mariadb);
            $crate::support::on_server!($test, on_mongodb, Mongodb);
        }
    )+};
}
pub(crate) use on_each_server;

macro_rules! on_server {
    ($test:ident, $name:ident, $kind:ident) => {
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            super::$test($crate::support::database::Kind::$kind).await;
        }
    };
}
pub(crate) use on_server;

/// What `cargo xtask test` sets.
pub(crate) fn service(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} is not set: run `cargo xtask test`, which starts what the tests need")
    })
}

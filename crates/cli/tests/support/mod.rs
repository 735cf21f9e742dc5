//! A world for each test: a database, a topic, a configuration and the daemons that use them.

pub(crate) mod check;
pub(crate) mod command;
pub(crate) mod config;
pub(crate) mod daemon;
pub(crate) mod database;
pub(crate) mod endpoint;
pub(crate) mod kafka_proxy;
pub(crate) mod murmur2;
pub(crate) mod orders;
pub(crate) mod outbox;
pub(crate) mod proxy;
pub(crate) mod records;
pub(crate) mod topic;
pub(crate) mod world;

use std::time::{Duration, Instant};

/// Generous: a condition that holds sooner costs nothing, and a slow machine is no failure.
const DEADLINE: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(50);

/// Waits until something holds; fails with `what` if it never does.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds().await {
        assert!(Instant::now() < deadline, "not within {} s: {what}", DEADLINE.as_secs());
        tokio::time::sleep(POLL).await;
    }
}

/// One test for each server that a function knows: `the_test::on_postgres` and `the_test::on_mariadb`.
macro_rules! on_each_server {
    ($($test:ident),+ $(,)?) => {$(
        mod $test {
            use $crate::support::database::Kind;

            #[tokio::test(flavor = "multi_thread")]
            async fn on_postgres() {
                super::$test(Kind::Postgres).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn on_mariadb() {
                super::$test(Kind::Mariadb).await;
            }
        }
    )+};
}
pub(crate) use on_each_server;

/// What `cargo xtask test` sets.
pub(crate) fn service(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} is not set: run `cargo xtask test`, which starts what the tests need")
    })
}

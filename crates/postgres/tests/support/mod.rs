//! A database of its own for each test.
#![allow(dead_code, unreachable_pub, missing_docs)]

pub mod relay;

use std::future::Future;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use oncebox_core::clock::Clock;
use oncebox_core::inbox::ReceiptKey;
use oncebox_core::names::{ConsumerName, MessageId, Tenant};
use oncebox_core::store::{
    Advance, Claim, Duplicates, Ownership, PositionKey, Progress, Purge, PurgePass, PurgeProgress, Purged,
    Retention, Store, StoreResult,
};
use oncebox_postgres::PgStore;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use tokio_util::sync::CancellationToken;

/// A database that is dropped with its value.
pub struct Database {
    pub name: String,
    pub url: String,
    server: PgConnectOptions,
}

impl Database {
    pub async fn create() -> Self {
        let server = std::env::var("ONCEBOX_TEST_POSTGRES").expect(
            "ONCEBOX_TEST_POSTGRES must hold the URL of a PostgreSQL superuser, such as \
             postgres://postgres@127.0.0.1:5432/postgres",
        );
        let name = format!("oncebox_test_{:016x}", fastrand::u64(..));
        let (base, query) = server.split_once('?').unwrap_or((&server, ""));
        let root = base.rsplit_once('/').map_or(base, |(root, _)| root);
        let url = format!("{root}/{name}?{query}");
        let server = PgConnectOptions::from_str(&server).expect("ONCEBOX_TEST_POSTGRES is no PostgreSQL URL");
        run(&server, format!("CREATE DATABASE {name}")).await.expect("a superuser at ONCEBOX_TEST_POSTGRES");
        Self { name, url, server }
    }
}

async fn run(server: &PgConnectOptions, sql: String) -> sqlx::Result<()> {
    let mut conn = PgConnection::connect_with(server).await?;
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await?;
    conn.close().await
}

impl Drop for Database {
    fn drop(&mut self) {
        let dropped = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(run(&self.server, format!("DROP DATABASE {} WITH (FORCE)", self.name)))
        };
        // Nothing can be awaited here, so a thread does. It must not panic: the test may be panicking already.
        let outcome = std::thread::scope(|scope| scope.spawn(dropped).join());
        if !matches!(outcome, Ok(Ok(()))) {
            eprintln!("the database {} was left behind", self.name);
        }
    }
}

/// Runs a test against a new database.
pub async fn with_database<F: Future<Output = ()>>(test: impl FnOnce(String) -> F) {
    let database = Database::create().await;
    test(database.url.clone()).await;
}

/// The same with a migrated store.
pub async fn with_store<F: Future<Output = ()>>(test: impl FnOnce(PgStore, String) -> F) {
    with_database(|url| async move {
        let store = PgStore::connect(&url).await.unwrap();
        store.migrate().await.unwrap();
        test(store, url).await;
    })
    .await;
}

pub fn consumer() -> ConsumerName {
    ConsumerName::new("stock").unwrap()
}

pub fn claims(ids: &[&'static str]) -> Vec<Claim<'static>> {
    ids.iter().map(|id| claim(id)).collect()
}

pub fn claim(id: &'static str) -> Claim<'static> {
    let key = ReceiptKey::of(&consumer(), &Tenant::none(), &MessageId::new(id).unwrap());
    Claim { key, tenant: "", message_id: id, set: &[], fingerprint: None }
}

pub fn position() -> PositionKey {
    PositionKey { consumer: consumer(), topic: Arc::from("stock.updates"), partition: 0 }
}

pub fn advance(owner: &Ownership, next_offset: i64) -> Option<Advance<'_>> {
    let progress = Progress { next_offset: Some(next_offset), ..Progress::default() };
    Some(Advance { owner, progress, applied: 1, duplicates: Duplicates::default(), finished_attempt: None })
}

pub async fn execute(store: &PgStore, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(store.pool()).await.unwrap();
}

pub async fn number(store: &PgStore, sql: &str) -> i64 {
    sqlx::query(AssertSqlSafe(sql.to_owned())).fetch_one(store.pool()).await.unwrap().get(0)
}

/// Claims and commits.
pub async fn apply(store: &PgStore, ids: &[&'static str]) -> Vec<bool> {
    let claimed = store.claim(&consumer(), &claims(ids)).await.unwrap();
    store.commit(claimed.txn, None).await.unwrap();
    claimed.fresh
}

/// A purge pass of one consumer that nobody stops.
pub async fn purge(store: &PgStore, keep: Duration, dry_run: bool) -> StoreResult<Purged> {
    let retention = [Retention { consumer: consumer(), keep }];
    let stop = CancellationToken::new();
    let progress = |_: PurgeProgress| {};
    let now_ms = Clock::system().now_ms();
    store.purge(PurgePass { retention: &retention, now_ms, dry_run, stop: &stop, progress: &progress }).await
}

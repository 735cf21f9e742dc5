//! A database of its own for each test.
#![allow(dead_code, unreachable_pub, missing_docs)]

use std::fs::File;
use std::future::Future;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oncebox_core::inbox::ReceiptKey;
use oncebox_core::names::{ConsumerName, MessageId, Tenant};
use oncebox_core::store::{Advance, Claim, Duplicates, Ownership, PositionKey, Progress, Store};
use oncebox_mysql::MysqlStore;
use sqlx::mysql::MySqlConnectOptions;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, Row};

/// A database that is dropped with its value.
pub struct Database {
    pub name: String,
    pub url: String,
    pub server: MySqlConnectOptions,
    /// Held until the database is dropped.
    _beside: File,
}

impl Database {
    /// Beside the databases of other tests.
    pub async fn create() -> Self {
        let lock = lock_file();
        lock.lock_shared().expect("a lock");
        Self::create_under(lock).await
    }

    /// While no other test of this server runs, in any process: for tests that change the server itself.
    pub async fn create_alone() -> Self {
        let lock = lock_file();
        lock.lock().expect("a lock");
        Self::create_under(lock).await
    }

    async fn create_under(lock: File) -> Self {
        let server = std::env::var(crate::SERVER).unwrap_or_else(|_| {
            panic!(
                "{} must hold the URL of a superuser, such as mysql://root@127.0.0.1:3306/mysql",
                crate::SERVER
            )
        });
        let name = format!("oncebox_test_{:016x}", fastrand::u64(..));
        let (base, query) = server.split_once('?').unwrap_or((&server, ""));
        let root = base.rsplit_once('/').map_or(base, |(root, _)| root);
        let url = format!("{root}/{name}?{query}");
        let server = MySqlConnectOptions::from_str(&server).expect("a MySQL URL");
        run(&server, format!("CREATE DATABASE {name}")).await.expect("a superuser");
        Self { name, url, server, _beside: lock }
    }

    /// Makes a user who has these rights in this database and no others, and returns the URL that it connects with.
    pub async fn user(&self, rights: &str) -> User {
        let name = format!("ob_{:016x}", fastrand::u64(..));
        let sql = format!("CREATE USER {name}@'%'; GRANT {rights} ON {}.* TO {name}@'%'", self.name);
        run(&self.server, sql).await.expect("a superuser");
        let (_, rest) = self.url.split_once("//").expect("a URL");
        let place = rest.split_once('@').map_or(rest, |(_, place)| place);
        User { url: format!("mysql://{name}@{place}"), name, server: self.server.clone() }
    }
}

/// In the directory of the run, where there is one: the server is its own. The end-to-end tests lock the same file.
fn lock_file() -> File {
    let folder = std::env::var_os("ONCEBOX_TEST_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let path = folder.join(format!("{}.lock", crate::SERVER));
    File::options().create(true).truncate(false).write(true).open(path).expect("a file to lock")
}

/// A user that is dropped with its value.
pub struct User {
    pub name: String,
    pub url: String,
    server: MySqlConnectOptions,
}

impl Drop for User {
    fn drop(&mut self) {
        run_at_the_end(&self.server, &format!("DROP USER {}@'%'", self.name));
    }
}

/// A setting of the whole server, and what it is set to at the end.
pub struct Setting {
    back: String,
    server: MySqlConnectOptions,
}

impl Setting {
    pub async fn of(database: &Database, set: &str, back: &str) -> Self {
        let setting = Self { back: format!("SET GLOBAL {back}"), server: database.server.clone() };
        run(&database.server, format!("SET GLOBAL {set}")).await.expect("a superuser");
        setting
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        run_at_the_end(&self.server, &self.back);
    }
}

async fn run(server: &MySqlConnectOptions, sql: String) -> sqlx::Result<()> {
    let mut conn = MySqlConnection::connect_with(server).await?;
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await?;
    conn.close().await
}

impl Drop for Database {
    fn drop(&mut self) {
        run_at_the_end(&self.server, &format!("DROP DATABASE {}", self.name));
    }
}

/// Nothing can be awaited in `drop`, so a thread does. It must not panic: the test may be panicking already.
fn run_at_the_end(server: &MySqlConnectOptions, sql: &str) {
    let work = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(run(server, sql.to_owned()))
    };
    let outcome = std::thread::scope(|scope| scope.spawn(work).join());
    if !matches!(outcome, Ok(Ok(()))) {
        eprintln!("this was left to do: {sql}");
    }
}

/// Runs a test against a new database.
pub async fn with_database<F: Future<Output = ()>>(test: impl FnOnce(String) -> F) {
    let database = Database::create().await;
    test(database.url.clone()).await;
}

/// The same with a migrated store.
pub async fn with_store<F: Future<Output = ()>>(test: impl FnOnce(MysqlStore, String) -> F) {
    with_database(|url| async move {
        let store = MysqlStore::connect(&url).await.unwrap();
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

/// Statements beside the store.
pub async fn execute(url: &str, sql: &str) {
    let mut conn = MySqlConnection::connect(url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut conn).await.unwrap();
}

/// The number that a query beside the store finds.
pub async fn number(url: &str, sql: &str) -> i64 {
    let mut conn = MySqlConnection::connect(url).await.unwrap();
    sqlx::query(AssertSqlSafe(sql.to_owned())).fetch_one(&mut conn).await.unwrap().get(0)
}

/// Claims and commits.
pub async fn apply(store: &MysqlStore, ids: &[&'static str]) -> Vec<bool> {
    let claimed = store.claim(&consumer(), &claims(ids)).await.unwrap();
    store.commit(claimed.txn, None).await.unwrap();
    claimed.fresh
}

/// Waits until somebody waits for a row of this database. MariaDB renews its list of locks only when nobody has asked for it for
/// a while, and other tests do: there a statement that takes long is one that waits.
pub async fn until_someone_waits(url: &str) {
    let waiting = "SELECT COUNT(*) FROM information_schema.processlist p \
         /*!80000 JOIN information_schema.innodb_trx t ON p.id = t.trx_mysql_thread_id AND t.trx_state = 'LOCK WAIT' */ \
         WHERE p.db = DATABASE() AND p.command = 'Query' AND p.id <> CONNECTION_ID() /*M! AND p.time_ms > 500 */";
    let deadline = Instant::now() + Duration::from_secs(9);
    while number(url, waiting).await == 0 {
        assert!(Instant::now() < deadline, "nobody waits");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

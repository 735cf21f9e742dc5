//! The dashboard cannot hurt the database: what its pages read does not grow with the tables, counted by PostgreSQL itself.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "support/command.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod command;

#[path = "support/served.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod served;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use command::Answer;
use oncebox_core::store::error_group;
use served::{Server, serve};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};
use tempfile::TempDir;

const LETTERS: i64 = 300_000;
const EVENTS: i64 = 300_000;
/// No page reads more rows of a table, however many there are. A search looks at 100,000 letters, and a count at 10,000 of each
/// consumer; a page that reads a table to its end is beyond it.
const MOST_ROWS: i64 = 200_000;
const CONSUMERS: [&str; 4] = ["orders", "invoices", "stock", "mail"];
const ERROR: &str = "statement 1 touched 0 rows, expected 1";

/// A database of its own. Goes when it is dropped.
struct World {
    folder: TempDir,
    server: String,
    name: String,
}

impl World {
    async fn new() -> Self {
        let server = std::env::var("ONCEBOX_TEST_POSTGRES").expect("cargo xtask test starts a PostgreSQL");
        let name = format!("cost_{}", uuid::Uuid::now_v7().simple());
        let world = Self { folder: tempfile::tempdir().unwrap(), server, name };
        execute(&world.server, &format!("CREATE DATABASE {}", world.name)).await;
        let inbox = |consumer: &str| {
            format!(
                "[[inbox]]\nconsumer = \"{consumer}\"\nid = \"header:Idempotency-Key\"\nhttp = {{ path = \"/in/{consumer}\" }}\n\
                 [inbox.handler]\neach = [\"SELECT :id::text\"]\n"
            )
        };
        let inboxes: String = CONSUMERS.iter().map(|consumer| inbox(consumer)).collect();
        let config =
            format!("[store]\nurl = \"{}\"\n[http]\nlisten = \"127.0.0.1:0\"\n{inboxes}", world.url());
        std::fs::write(world.folder.path().join("oncebox.toml"), config).unwrap();
        Answer::of(world.folder.path(), ["migrate"]).exits(0);
        world
    }

    fn url(&self) -> String {
        let (base, _) = self.server.rsplit_once('/').unwrap();
        format!("{base}/{}", self.name)
    }

    /// Letters, receipts and events, written by the server itself.
    async fn fill(&self) {
        for table in ["dead", "inbox", "outbox"] {
            // What it reads for itself would be counted, too.
            execute(&self.url(), &format!("ALTER TABLE oncebox_{table} SET (autovacuum_enabled = off)"))
                .await;
        }
        for (nth, consumer) in CONSUMERS.iter().enumerate() {
            let group = error_group(consumer, ERROR);
            let letters = format!(
                "INSERT INTO oncebox_dead (consumer, message_id, topic, partition, \"offset\", key, payload, headers, error, \
                     attempts, error_group) \
                 SELECT '{consumer}', 'm-' || n, '{consumer}', 0, n, convert_to('k-' || n % 1000, 'UTF8'), '', '[]', '{ERROR}', 1, \
                     '{group}' FROM generate_series({nth}, {LETTERS} - 1, {}) AS n",
                CONSUMERS.len()
            );
            execute(&self.url(), &letters).await;
        }
        let receipts = "INSERT INTO oncebox_inbox (key, consumer, message_id) \
             SELECT lpad(to_hex(n), 32, '0')::uuid, 'orders', 'm-' || n FROM generate_series(1, 1000000) AS n";
        let events = format!(
            "INSERT INTO oncebox_outbox (topic, key, payload, published_at) \
             SELECT 'orders', convert_to('k-' || n % 1000, 'UTF8'), '', now() FROM generate_series(1, {EVENTS}) AS n"
        );
        for statement in [receipts, &events, "VACUUM ANALYZE oncebox_dead", "ANALYZE oncebox_outbox"] {
            execute(&self.url(), statement).await;
        }
    }

    fn serve(&self) -> Server {
        serve(&self.folder, &["dashboard"])
    }

    /// How many rows of each table were read for one page. A server tells that for sure only when its sessions end, so the page has
    /// a process of its own.
    async fn rows_read_for(&self, path: &str) -> Vec<(String, i64)> {
        let mut conn = PgConnection::connect(&self.url()).await.unwrap();
        self.nobody_else_is_here(&mut conn).await;
        conn.execute("SELECT pg_stat_reset()").await.unwrap();
        let server = self.serve();
        let reply = server.get(path);
        assert_eq!(reply.status, 200, "{path}: {}", reply.body);
        drop(server);
        self.nobody_else_is_here(&mut conn).await;
        let read = "SELECT t.relname::text, GREATEST(COALESCE(t.seq_tup_read, 0) + COALESCE(t.idx_tup_fetch, 0), \
                 (SELECT COALESCE(sum(i.idx_tup_read), 0)::bigint FROM pg_stat_user_indexes i WHERE i.relid = t.relid)) \
             FROM pg_stat_user_tables t WHERE t.relname LIKE 'oncebox%'";
        let rows = conn.fetch_all(read).await.unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    async fn nobody_else_is_here(&self, conn: &mut PgConnection) {
        while sessions(conn).await > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // A runtime of its own: the test's own is in the middle of something.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(execute(&self.server, &format!("DROP DATABASE {} WITH (FORCE)", self.name)));
            });
        });
    }
}

async fn execute(url: &str, sql: &str) {
    let mut conn = PgConnection::connect(url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
        .execute(&mut conn)
        .await
        .unwrap_or_else(|e| panic!("{sql}: {e}"));
}

/// How many others use the database.
async fn sessions(conn: &mut PgConnection) -> i64 {
    let count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() \
         AND backend_type = 'client backend'";
    conn.fetch_one(count).await.unwrap().get(0)
}

/// Every page of the menu, every question of the API, and searches that find much, little and nothing.
fn paths(server: &Server) -> Vec<String> {
    let overview = server.get("/").body;
    let menu = overview.split("<nav").nth(1).unwrap().split("</nav>").next().unwrap();
    let linked = menu.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned());
    let described = server.json("/api/v1/openapi.json");
    let described = described["paths"].as_object().unwrap().iter();
    let asked = described.filter(|(path, methods)| methods.get("get").is_some() && !path.contains("/jobs/"));
    let asked = asked.map(|(path, _)| path.replace("{consumer}", "orders").replace("{number}", "5"));
    let group = error_group("orders", ERROR);
    let searches = [
        "/consumers/orders".to_owned(),
        "/dead/5?payload=show".to_owned(),
        "/dead?consumer=orders".to_owned(),
        "/dead?before=1000".to_owned(),
        format!("/dead?group={group}"),
        format!("/dead?group={group}&error=nothing-like-it"),
        "/dead?consumer=orders&id=m-4".to_owned(),
        "/dead?id=m-4".to_owned(),
        "/dead?id=nobody".to_owned(),
        "/dead?key=nobody".to_owned(),
        "/dead?topic=nothing".to_owned(),
        "/dead?tenant=nobody".to_owned(),
        "/dead?error=nothing-like-it".to_owned(),
        "/outbox?state=held".to_owned(),
        "/outbox?state=delayed".to_owned(),
        "/outbox?state=pending".to_owned(),
        "/outbox?state=published".to_owned(),
        "/outbox?state=parked&topic=nothing".to_owned(),
    ];
    linked.chain(asked).chain(searches).map(as_asked).collect()
}

/// Who looks for a message says which one. An export that takes long is counted together with what the charts are made from meanwhile.
fn as_asked(path: String) -> String {
    match path.rsplit('/').next() {
        Some("find") => format!("{path}?id=m-4"),
        Some("export") => format!("{path}?limit=200"),
        _ => path,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_page_reads_a_table_to_its_end() {
    let world = World::new().await;
    world.fill().await;
    let paths = paths(&world.serve());
    assert!(paths.len() > 25, "{paths:?}");
    let mut beyond = Vec::new();
    for path in paths {
        for (table, rows) in world.rows_read_for(&path).await {
            let most = if table == "oncebox_inbox" { 100 } else { MOST_ROWS };
            if rows > most {
                beyond.push(format!("{path} reads {rows} rows of {table}"));
            }
        }
    }
    assert!(beyond.is_empty(), "{beyond:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn however_many_look_it_has_few_connections_and_gives_up_in_time() {
    let world = World::new().await;
    let server = world.serve();
    let mut conn = PgConnection::connect(&world.url()).await.unwrap();
    let mut lock = PgConnection::connect(&world.url()).await.unwrap();
    lock.execute("BEGIN; LOCK TABLE oncebox_dead IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let refused = AtomicUsize::new(0);
    let mut most = 0;
    tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            for _ in 0..30 {
                scope.spawn(|| {
                    let reply = server.get("/dead");
                    assert_eq!(reply.status, 503, "{}", reply.body);
                    refused.fetch_add(1, Ordering::SeqCst);
                });
            }
            let runtime = tokio::runtime::Handle::current();
            while refused.load(Ordering::SeqCst) < 30 {
                most = most.max(runtime.block_on(sessions(&mut conn)));
                std::thread::sleep(Duration::from_millis(50));
            }
        });
    });
    // Beside the one that holds the lock.
    assert!((1..=5).contains(&(most - 1)), "{most}");
    lock.execute("ROLLBACK").await.unwrap();
    server.eventually("it answers again", |s| s.get("/dead").status == 200);
}

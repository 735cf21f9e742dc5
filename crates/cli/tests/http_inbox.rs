//! Requests that change the database once: the real binary on a SQLite file, and clients that send everything again.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "support/command.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod command;
#[path = "support/daemon.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod daemon;
#[path = "support/folder.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod folder;
#[path = "support/waiting.rs"]
mod waiting;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use daemon::Daemon;
use folder::Folder;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use waiting::eventually;

/// A folder with a configuration, a SQLite file, and an address that stays the same when the daemon is started again.
struct World {
    folder: Folder,
    address: SocketAddr,
    client: Client<HttpConnector, Full<Bytes>>,
}

/// What a client got.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Got {
    status: StatusCode,
    replayed: bool,
    retry_after: bool,
    body: String,
}

impl World {
    async fn new(http: &str) -> Self {
        Self::with(&format!(r#"path = "/in/orders", {http}"#), "").await
    }

    /// With these keys under `inbox.http`, and what follows in the file.
    async fn with(http: &str, further: &str) -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let text = format!(
            r#"[store]
url = "sqlite://test.sqlite"
[http]
listen = "{address}"
[[inbox]]
consumer = "orders"
id = "header:Idempotency-Key"
http = {{ {http} }}
[inbox.handler]
each = [
  {{ sql = "UPDATE stock SET on_hand = on_hand - (:payload->>'qty') WHERE sku = :payload->>'sku'", rows = 1 }},
  "INSERT INTO ledger (message_id, qty) VALUES (:id, :payload->>'qty')",
]
{further}
"#
        );
        let folder = Folder::new(&text).await;
        let tables = "CREATE TABLE stock (sku TEXT PRIMARY KEY, on_hand INTEGER); INSERT INTO stock VALUES ('bolt', 1000000);
            CREATE TABLE ledger (n INTEGER PRIMARY KEY AUTOINCREMENT, message_id TEXT, qty INTEGER NOT NULL)";
        folder.execute(tables).await;
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { folder, address, client }
    }

    fn run(&self) -> Daemon {
        self.folder.run()
    }

    async fn number(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.folder.pool).await.unwrap()
    }

    async fn request(&self, request: http::request::Builder, body: &str) -> Result<Got, String> {
        let request = request.body(Full::from(body.to_owned())).unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(30), self.client.request(request));
        let answer = answer.await.map_err(|_| "no answer")?.map_err(|e| e.to_string())?;
        let (parts, body) = answer.into_parts();
        let body = body.collect().await.map_err(|e| e.to_string())?.to_bytes();
        Ok(Got {
            status: parts.status,
            replayed: parts.headers.get("idempotent-replayed").is_some_and(|value| value == "true"),
            retry_after: parts.headers.contains_key("retry-after"),
            body: String::from_utf8_lossy(&body).into_owned(),
        })
    }

    fn to(&self, path: &str) -> http::request::Builder {
        Request::post(format!("http://{}{path}", self.address)).header("content-type", "application/json")
    }

    async fn post(&self, id: &str, body: &str) -> Result<Got, String> {
        self.request(self.to("/in/orders").header("idempotency-key", id), body).await
    }

    /// Posts until somebody answers with success, as a sender does that wants its message to arrive.
    async fn insist(&self, id: &str, body: &str) -> Got {
        let deadline = Instant::now() + Duration::from_secs(90);
        loop {
            match self.post(id, body).await {
                Ok(got) if got.status.is_success() => return got,
                other => assert!(Instant::now() < deadline, "{id}: {other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_applied_before_it_is_answered_and_its_copy_changes_nothing() {
    let world = World::new(r#"body = '{"ok":true}', status = 201"#).await;
    let _daemon = world.run();
    let first = world.insist("order-1", r#"{"sku":"bolt","qty":2}"#).await;
    assert_eq!(
        (first.status, first.body.as_str(), first.replayed),
        (StatusCode::CREATED, r#"{"ok":true}"#, false)
    );
    assert_eq!(world.number("SELECT on_hand FROM stock").await, 999_998, "the answer came after the commit");
    let copy = world.post("order-1", r#"{"sku":"bolt","qty":2}"#).await.unwrap();
    assert_eq!(copy, Got { replayed: true, ..first });
    let quoted = world.post("\"order-1\"", r#"{"sku":"bolt","qty":2}"#).await.unwrap();
    assert!(quoted.replayed, "with and without quotes it is the same id");
    assert_eq!(world.number("SELECT on_hand FROM stock").await, 999_998);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_body_under_a_used_id_is_refused_and_counted() {
    let world = World::new("").await;
    let _daemon = world.run();
    world.insist("order-1", r#"{"sku":"bolt","qty":2}"#).await;
    let other = world.post("order-1", r#"{"sku":"bolt","qty":3}"#).await.unwrap();
    assert_eq!(other.status, StatusCode::UNPROCESSABLE_ENTITY, "{other:?}");
    assert!(other.body.contains("the id order-1 was used"), "{other:?}");
    assert_eq!(world.number("SELECT on_hand FROM stock").await, 999_998);
    let metrics = Request::get(format!("http://{}/metrics", world.address));
    let metrics = world.request(metrics, "").await.unwrap().body;
    for (outcome, count) in [("applied", 1), ("duplicate", 0), ("differs", 1)] {
        let line = format!("oncebox_messages_total{{consumer=\"orders\",outcome=\"{outcome}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn check_says_that_an_adopted_table_cannot_tell_bodies_apart() {
    let adopted = "seen has no column to compare by";
    for (http, expected) in [(r#"body = "ok""#, true), ("compare_body = false", false)] {
        let world = World::new(http).await;
        let file = world.folder.path().join("oncebox.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        let check = || world.folder.oncebox(&["check"]).exits(0).stdout;
        assert!(!check().contains(adopted));
        let adopt = "\n[store.adopt]\ntable = \"seen\"\nmessage_id = \"message_id\"\n[http]";
        std::fs::write(&file, text.replacen("\n[http]", adopt, 1)).unwrap();
        sqlx::raw_sql("CREATE TABLE seen (message_id TEXT NOT NULL PRIMARY KEY)")
            .execute(&world.folder.pool)
            .await
            .unwrap();
        assert_eq!(check().contains(adopted), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_has_its_status_and_leaves_nothing_behind() {
    let world =
        World::new(r#"max_body = "1KiB", verify = { scheme = "bearer", secrets = ["canary"] }"#).await;
    let daemon = world.run();
    let good = r#"{"sku":"bolt","qty":1}"#;
    let signed = |path: &str| world.to(path).header("authorization", "Bearer canary");
    let ask = async |request: http::request::Builder, body: &str| world.request(request, body).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while world
        .request(signed("/in/orders").header("idempotency-key", "first"), good)
        .await
        .map(|got| got.status)
        != Ok(StatusCode::NO_CONTENT)
    {
        assert!(Instant::now() < deadline, "it never takes requests");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    let unknown = ask(world.to("/in/orders").header("idempotency-key", "x"), good).await;
    assert_eq!(unknown.status, StatusCode::UNAUTHORIZED);
    let nameless = ask(signed("/in/orders"), good).await;
    assert_eq!(nameless.status, StatusCode::BAD_REQUEST);
    let large = ask(signed("/in/orders").header("idempotency-key", "large"), &"x".repeat(5_000)).await;
    assert_eq!(large.status, StatusCode::PAYLOAD_TOO_LARGE);
    let no_stock =
        ask(signed("/in/orders").header("idempotency-key", "no-stock"), r#"{"sku":"nut","qty":1}"#).await;
    assert_eq!(no_stock.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(no_stock.body.contains("rows"), "with the reason: {no_stock:?}");
    let failing = ask(signed("/in/orders").header("idempotency-key", "failing"), r#"{"sku":"bolt"}"#).await;
    assert!(failing.status.is_client_error() || failing.status.is_server_error(), "{failing:?}");
    let get = Request::get(format!("http://{}/in/orders", world.address));
    assert_eq!(ask(get, "").await.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(ask(signed("/in/elsewhere"), good).await.status, StatusCode::NOT_FOUND);

    assert_eq!(world.number("SELECT COUNT(*) FROM ledger").await, 1);
    assert_eq!(world.number("SELECT COUNT(*) FROM oncebox_inbox").await, 1, "no receipt of what failed");
    assert_eq!(world.number("SELECT COUNT(*) FROM oncebox_dead").await, 0);
    let mended = ask(signed("/in/orders").header("idempotency-key", "no-stock"), good).await;
    assert_eq!(
        (mended.status, mended.replayed),
        (StatusCode::NO_CONTENT, false),
        "the sender's next try works"
    );
    assert!(!daemon.log().contains("canary"), "the secret is in the log");
}

/// Each request three times from 64 clients at once, while the server is killed again and again.
#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_clients_that_repeat_themselves_and_a_server_that_is_killed() {
    const CLIENTS: u32 = 64;
    const EACH: u32 = 12;
    let world = Arc::new(World::new(r#"body = "done""#).await);
    let mut daemon = world.run();
    let (answered, surprises) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..CLIENTS {
        let (world, answered, surprises) =
            (Arc::clone(&world), Arc::clone(&answered), Arc::clone(&surprises));
        clients.spawn(async move {
            for nth in 0..EACH {
                let id = format!("c{client}-{nth}");
                let body = r#"{"sku":"bolt","qty":1}"#;
                let copies =
                    tokio::join!(world.insist(&id, body), world.insist(&id, body), world.insist(&id, body));
                for got in [copies.0, copies.1, copies.2] {
                    if (got.status, got.body.as_str()) != (StatusCode::OK, "done") {
                        surprises.fetch_add(1, Ordering::SeqCst);
                    }
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
    }
    let all = CLIENTS * EACH * 3;
    for kill in 1..=4 {
        while answered.load(Ordering::SeqCst) < all * kill / 5 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        daemon.kill();
        daemon = world.run();
    }
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    assert_eq!(surprises.load(Ordering::SeqCst), 0, "everybody got the same answer");
    let messages = i64::from(CLIENTS * EACH);
    assert_eq!(world.number("SELECT COUNT(*) FROM ledger").await, messages);
    assert_eq!(world.number("SELECT COUNT(DISTINCT message_id) FROM ledger").await, messages);
    assert_eq!(world.number("SELECT on_hand FROM stock").await, 1_000_000 - messages);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_answers_what_it_took_and_the_status_counts_it() {
    let world = World::new("").await;
    let daemon = world.run();
    for id in ["a", "b", "a"] {
        world.insist(id, r#"{"sku":"bolt","qty":1}"#).await;
    }
    daemon.stop();
    let status = world.folder.json(&["status"], 0);
    let consumer = &status["consumers"][0];
    assert_eq!(
        (&consumer["applied"], &consumer["duplicates_suppressed"]),
        (&2.into(), &1.into()),
        "{status}"
    );
    let refused = world.post("c", "{}").await;
    assert!(refused.is_err() || refused.is_ok_and(|got| got.status == StatusCode::SERVICE_UNAVAILABLE));
}

/// Everybody is answered at once, whatever becomes of the server: what was accepted is applied, once and in order for each key.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_accepted_is_applied_later_by_a_server_that_is_killed() {
    const CLIENTS: i64 = 8;
    const EACH: i64 = 60;
    let accept = r#"path = "/in/orders", mode = "accept", body = "later", key = "json:/client""#;
    let world = Arc::new(World::with(accept, "[outbox]\nrelay = true").await);
    let mut daemon = world.run();
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..CLIENTS {
        let world = Arc::clone(&world);
        clients.spawn(async move {
            for nth in 0..EACH {
                let body = format!(r#"{{"sku":"bolt","qty":1,"client":"c{client}"}}"#);
                for _ in 0..2 {
                    let got = world.insist(&format!("c{client}-{nth:03}"), &body).await;
                    assert_eq!((got.status, got.body.as_str()), (StatusCode::ACCEPTED, "later"));
                }
            }
        });
    }
    for kill in 1..=3 {
        eventually("some were applied", async || {
            world.number("SELECT COUNT(*) FROM ledger").await >= CLIENTS * EACH * kill / 4
        })
        .await;
        daemon.kill();
        daemon = world.run();
    }
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    eventually("all were applied", async || world.number("SELECT COUNT(*) FROM oncebox_outbox").await == 0)
        .await;
    assert_eq!(world.number("SELECT COUNT(*) FROM ledger").await, CLIENTS * EACH);
    assert_eq!(world.number("SELECT on_hand FROM stock").await, 1_000_000 - CLIENTS * EACH);
    let disorder = "SELECT COUNT(*) FROM ledger a JOIN ledger b ON a.n < b.n AND a.message_id > b.message_id
        AND substr(a.message_id, 1, 3) = substr(b.message_id, 1, 3)";
    assert_eq!(world.number(disorder).await, 0);
    assert_eq!(world.number("SELECT COUNT(*) FROM oncebox_dead").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_accepted_and_cannot_be_applied_is_a_dead_letter_that_can_be_replayed() {
    let accept = r#"path = "/in/orders", mode = "accept""#;
    let world = World::with(accept, "[outbox]\nrelay = true").await;
    let _daemon = world.run();
    assert_eq!(world.insist("a", r#"{"sku":"nut","qty":1}"#).await.status, StatusCode::ACCEPTED);
    assert_eq!(world.insist("b", r#"{"sku":"bolt","qty":1}"#).await.status, StatusCode::ACCEPTED);
    eventually("the letter", async || world.number("SELECT COUNT(*) FROM oncebox_dead").await == 1).await;
    eventually("the other one", async || world.number("SELECT COUNT(*) FROM ledger").await == 1).await;
    sqlx::query("INSERT INTO stock VALUES ('nut', 10)").execute(&world.folder.pool).await.unwrap();
    world.folder.oncebox(&["dead", "replay", "--all"]).exits(0);
    assert_eq!(world.number("SELECT on_hand FROM stock WHERE sku = 'nut'").await, 9);
    eventually("nothing waits", async || world.number("SELECT COUNT(*) FROM oncebox_outbox").await == 0)
        .await;
}

/// Its sender has gone when it is found out: the counters and the log say it.
#[tokio::test(flavor = "multi_thread")]
async fn another_body_under_a_used_id_is_accepted_and_later_told_from_a_copy() {
    let accept = r#"path = "/in/orders", mode = "accept""#;
    let world = World::with(accept, "[outbox]\nrelay = true").await;
    let daemon = world.run();
    for qty in [1, 2, 1] {
        let body = format!(r#"{{"sku":"bolt","qty":{qty}}}"#);
        assert_eq!(world.insist("a", &body).await.status, StatusCode::ACCEPTED);
        // Messages without a key have no order: the one that comes first has to be the first.
        let applied = async || world.number("SELECT on_hand FROM stock").await == 999_999;
        eventually("the first is applied", applied).await;
    }
    eventually("all three are counted", async || {
        let metrics = Request::get(format!("http://{}/metrics", world.address));
        let metrics = world.request(metrics, "").await.unwrap().body;
        let counted = |outcome: &str| {
            metrics
                .contains(&format!("oncebox_messages_total{{consumer=\"orders\",outcome=\"{outcome}\"}} 1\n"))
        };
        ["applied", "differs", "duplicate"].into_iter().all(counted)
    })
    .await;
    assert_eq!(world.number("SELECT on_hand FROM stock").await, 999_999);
    assert!(daemon.log().contains("the id was used for another message"), "{}", daemon.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_has_secrets_of_its_own_and_cannot_write_for_another() {
    let tenants = r#"path = "/in/{tenant}/orders", handshake = { origins = ["events.example"] },
        verify = { scheme = "bearer", secrets = { acme = ["of-acme"], zenith = ["old", "of-zenith"] } }"#;
    let world = World::with(&tenants.replace('\n', " "), "").await;
    let _daemon = world.run();
    let send = async |tenant: &str, token: &str, id: &str| {
        let path = format!("/in/{tenant}/orders");
        let request = world.to(&path).header("idempotency-key", id);
        let request = request.header("authorization", format!("Bearer {token}"));
        world
            .request(request, r#"{"sku":"bolt","qty":1}"#)
            .await
            .map_or(StatusCode::BAD_GATEWAY, |got| got.status)
    };
    eventually("it runs", async || send("acme", "of-acme", "1").await == StatusCode::NO_CONTENT).await;
    assert_eq!(send("zenith", "of-zenith", "2").await, StatusCode::NO_CONTENT);
    assert_eq!(send("zenith", "old", "3").await, StatusCode::NO_CONTENT);
    assert_eq!(send("zenith", "of-acme", "4").await, StatusCode::UNAUTHORIZED);
    assert_eq!(send("nobody", "of-acme", "5").await, StatusCode::UNAUTHORIZED);
    assert_eq!(world.number("SELECT COUNT(*) FROM ledger").await, 3);
    let asks = Request::options(format!("http://{}/in/acme/orders", world.address));
    let asks = asks.header("webhook-request-origin", "events.example").body(Full::default()).unwrap();
    let answer = world.client.request(asks).await.unwrap();
    assert_eq!(answer.headers()["webhook-allowed-origin"], "events.example");
}

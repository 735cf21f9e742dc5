//! Requests that are stored and answered, and applied later.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use oncebox::message::Record;
use oncebox::settings::PauseWatch;
use oncebox::sqlite::SqliteStore;
use oncebox::store::{PauseNote, Pauses};
use oncebox::{Backoff, Inbox, LocalQueue, OnFailure, Relay, RetryPolicy, Selector};
use oncebox_core::source::CancellationToken;
use oncebox_http::{HttpInbox, ServerLimits, serve};
use oncebox_testkit::eventually;
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::client::{SOON, post};
use crate::fixture::{Database, Gate, PATH, handle};

/// An inbox that accepts, its relay and its server. They end with the test.
struct Service {
    address: SocketAddr,
    gate: Gate,
    stop: CancellationToken,
}

fn queue(db: &Database) -> LocalQueue<SqliteStore> {
    LocalQueue::new(db.store(), "test".parse().unwrap(), PATH)
}

/// As the fixture's, but nobody waits who could send a message again.
fn inbox(db: &Database) -> Inbox<SqliteStore> {
    db.inbox().on_failure(OnFailure::Park)
}

async fn start(db: &Database, inbox: Inbox<SqliteStore>) -> Service {
    let (gate, stop, queue) = (Gate::new(), CancellationToken::new(), queue(db));
    let http = HttpInbox::accept(PATH.parse().unwrap()).key(Selector::Header("x-key".into()));
    let (router, source) = http.open().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, router, ServerLimits::default(), stop.clone()));
    let relay = Relay::new(db.store()).route(queue.topic(), queue.sink());
    tokio::spawn(relay.serve(stop.clone()));
    let passed = gate.clone();
    let worker = inbox.each(async move |tx, message| handle(tx, message, &passed).await);
    tokio::spawn(worker.serve(Arc::new(source).through(queue), stop.clone()));
    // Before the source runs, every request is told to come again; then one without an id is refused.
    post(PATH, "").until_done(address).await;
    Service { address, gate, stop }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Service {
    async fn accepts(&self, id: &str, key: &str, body: &'static str) {
        let answer = post(PATH, body).id(id).header("x-key", key).to(self.address).await;
        assert_eq!(answer.status, 202, "{answer:?}");
    }
}

async fn applied(db: &Database, expected: &[&str]) {
    let deadline = Instant::now() + SOON;
    loop {
        let effects = db.effects().await;
        if effects == expected {
            return;
        }
        assert!(Instant::now() < deadline, "{effects:?}, not {expected:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn nothing_waits(db: &Database) {
    let deadline = Instant::now() + SOON;
    while !db.texts("SELECT topic FROM oncebox_outbox").await.is_empty() {
        assert!(Instant::now() < deadline, "it stays in the outbox");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_stored_is_answered_although_it_is_not_applied_yet() {
    let db = Database::new().await;
    let service = start(&db, inbox(&db)).await;
    service.accepts("a", "k", "wait").await;
    service.gate.reached_by(1).await;
    assert_eq!(db.texts("SELECT topic FROM oncebox_outbox").await, ["oncebox.accepted.test"]);
    assert!(db.effects().await.is_empty());
    service.gate.open(1);
    service.accepts("b", "k", "{}").await;
    service.accepts("a", "k", "wait").await;
    applied(&db, &["a", "b"]).await;
    nothing_waits(&db).await;
    assert_eq!(db.effects().await, ["a", "b"], "a copy is accepted, and skipped");
    let headers = db.texts("SELECT headers FROM effect WHERE id = 'a'").await;
    assert!(
        headers[0].contains("idempotency-key") && !headers[0].contains("ce_"),
        "as it was sent: {headers:?}"
    );
}

/// The relay asks for a message that is tried again, and does not put it in twice.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_tried_again_holds_back_its_key_alone_and_is_kept_in_the_end() {
    let db = Database::new().await;
    let long = Backoff::new(Duration::from_secs(4), Duration::from_secs(4));
    let service = start(&db, inbox(&db).retry(RetryPolicy { attempts: 2, backoff: long })).await;
    service.accepts("bad", "k", "fail").await;
    service.accepts("behind", "k", "{}").await;
    service.accepts("other", "l", "{}").await;
    service.accepts("keyless", "", "{}").await;
    let deadline = Instant::now() + SOON;
    while db.effects().await.len() < 2 {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!db.effects().await.contains(&"behind".to_owned()), "{:?}", db.effects().await);
    nothing_waits(&db).await;
    assert_eq!(db.effects().await.last().map(String::as_str), Some("behind"));
    assert_eq!(db.texts("SELECT message_id FROM oncebox_dead").await, ["bad"]);
    assert_eq!(db.effects().await.len(), 3);
}

/// The first of them may have ended the process before: they run under the guard.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_accepted_before_is_applied_by_the_next_process_in_order() {
    let db = Database::new().await;
    let records = (0..40).map(|n| {
        let mut record = Record::at(PATH, 0, 0);
        record.key = Some("k".into());
        record.headers.push("idempotency-key", Some(format!("m-{n:02}").into()));
        record
    });
    queue(&db).put(records.collect()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(2)).await;
    let _service = start(&db, inbox(&db)).await;
    let expected: Vec<String> = (0..40).map(|n| format!("m-{n:02}")).collect();
    applied(&db, &expected.iter().map(String::as_str).collect::<Vec<_>>()).await;
    nothing_waits(&db).await;
    // They are forgotten after the commit.
    let deadline = Instant::now() + SOON;
    while !db.texts("SELECT CAST(attempts AS TEXT) FROM oncebox_attempt").await.is_empty() {
        assert!(Instant::now() < deadline, "the attempts stay");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_stored_is_not_accepted() {
    let db = Database::new().await;
    let service = start(&db, inbox(&db)).await;
    db.execute("ALTER TABLE oncebox_outbox RENAME TO elsewhere").await;
    let answer = post(PATH, "{}").id("a").to(service.address).await;
    assert!(answer.problem(503).contains("cannot be stored at the moment"), "{answer:?}");
    assert!(answer.header("retry-after").is_some());
    db.execute("ALTER TABLE elsewhere RENAME TO oncebox_outbox").await;
    service.accepts("a", "k", "{}").await;
    applied(&db, &["a"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_share_transactions_and_each_is_applied_once() {
    let db = Database::new().await;
    let service = start(&db, inbox(&db)).await;
    let sent: Vec<_> = (0..300)
        .map(|n| {
            let id = format!("m-{}", n % 200);
            tokio::spawn(post(PATH, "{}").id(id).to(service.address))
        })
        .collect();
    for answer in sent {
        assert_eq!(answer.await.unwrap().status, 202);
    }
    nothing_waits(&db).await;
    let effects = db.texts("SELECT DISTINCT id FROM effect").await;
    assert_eq!((effects.len(), db.effects().await.len()), (200, 200));
}

/// What is accepted meanwhile stays in the outbox, and no delivery of it counts as failed.
#[tokio::test(flavor = "multi_thread")]
async fn a_paused_inbox_accepts_and_does_not_apply() {
    let db = Database::new().await;
    let watch = PauseWatch::every(Duration::from_millis(5));
    let service = start(&db, inbox(&db).pauses(watch.clone())).await;
    service.accepts("a", "k", "{}").await;
    applied(&db, &["a"]).await;
    nothing_waits(&db).await;
    let consumer = "test".parse().unwrap();
    assert!(db.store().pause(&consumer, &PauseNote::by("a test")).await.unwrap());
    eventually("the process knows", || !watch.paused().is_empty()).await;
    let ids: Vec<String> = (0..30).map(|n| format!("m-{n:02}")).collect();
    for id in &ids {
        service.accepts(id, "k", "{}").await;
    }
    assert_eq!(db.effects().await, ["a"]);
    assert_eq!(db.texts("SELECT topic FROM oncebox_outbox").await.len(), 30);
    assert!(db.store().resume(&consumer).await.unwrap());
    let expected: Vec<&str> = std::iter::once("a").chain(ids.iter().map(String::as_str)).collect();
    applied(&db, &expected).await;
    nothing_waits(&db).await;
}

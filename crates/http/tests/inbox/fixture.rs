//! A service: an inbox with a database of its own, behind a server.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use oncebox::sqlite::SqliteStore;
use oncebox::testing::TemporarySqlite;
use oncebox::{Backoff, Inbox, Message, OnFailure, RetryPolicy, Selector};
use oncebox_core::source::CancellationToken;
use oncebox_http::{HttpInbox, ServerLimits, serve};
use oncebox_testkit::eventually;
use sqlx::SqliteConnection;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::client::{Answer, SOON, post};

/// Where most tests send to.
pub(crate) const PATH: &str = "/in/orders";

/// Where handlers wait that are told to.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    waiting: Arc<AtomicUsize>,
    open: Arc<Semaphore>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self { waiting: Arc::default(), open: Arc::new(Semaphore::new(0)) }
    }

    /// So many handlers have come to it since the beginning.
    pub(crate) async fn reached_by(&self, handlers: usize) {
        eventually("the handler waits", || self.waiting.load(Ordering::Relaxed) >= handlers).await;
    }

    /// Lets so many pass.
    pub(crate) fn open(&self, handlers: usize) {
        self.open.add_permits(handlers);
    }
}

/// What a message does: its payload says so.
pub(crate) async fn handle(tx: &mut SqliteConnection, message: &Message, gate: &Gate) -> oncebox::Result {
    match message.payload() {
        Some(b"reject") => return Err(oncebox::reject("there is no such\u{1b}[2J sku")),
        Some(b"fail") => return Err("canary: the details of the database".into()),
        Some(b"away") => return Err(sqlx::Error::PoolTimedOut.into()),
        Some(b"wait") => {
            gate.waiting.fetch_add(1, Ordering::Relaxed);
            gate.open.acquire().await?.forget();
        }
        _ => {}
    }
    sqlx::query("INSERT INTO effect (id, tenant, key, headers) VALUES (?, ?, ?, ?)")
        .bind(message.id().as_str())
        .bind(message.tenant().as_str())
        .bind(message.key().map(|key| String::from_utf8_lossy(key).into_owned()))
        .bind(message.record().headers.iter().map(|(name, _)| name).collect::<Vec<_>>().join(" "))
        .execute(tx)
        .await?;
    Ok(())
}

/// A database that outlives the services on it.
pub(crate) struct Database(TemporarySqlite);

impl Database {
    pub(crate) async fn new() -> Self {
        let db = Self(TemporarySqlite::new().await);
        db.execute(
            "CREATE TABLE effect (n INTEGER PRIMARY KEY, id TEXT, tenant TEXT, key TEXT, headers TEXT)",
        )
        .await;
        db
    }

    pub(crate) fn store(&self) -> SqliteStore {
        self.0.store()
    }

    pub(crate) async fn execute(&self, sql: &'static str) {
        sqlx::query(sql).execute(&mut self.0.connect().await).await.unwrap();
    }

    pub(crate) async fn texts(&self, sql: &'static str) -> Vec<String> {
        sqlx::query_scalar(sql).fetch_all(&mut self.0.connect().await).await.unwrap()
    }

    /// The ids of the effects, in the order in which they were applied.
    pub(crate) async fn effects(&self) -> Vec<String> {
        self.texts("SELECT id FROM effect ORDER BY n").await
    }

    /// An inbox on it, by `idempotency-key`, that tries a message twice.
    pub(crate) fn inbox(&self) -> Inbox<SqliteStore> {
        let retry = RetryPolicy {
            attempts: 2,
            backoff: Backoff::new(Duration::from_millis(1), Duration::from_millis(2)),
        };
        Inbox::new("test", self.0.store())
            .unwrap()
            .id(Selector::Header("idempotency-key".into()))
            .retry(retry)
            .on_failure(OnFailure::GiveBack)
    }
}

/// A description of what listens on [`PATH`].
pub(crate) fn http() -> HttpInbox {
    HttpInbox::apply(PATH.parse().unwrap())
}

/// A running service. Its two halves stop when told, or with the test.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    pub(crate) gate: Gate,
    stop_worker: CancellationToken,
    stop_server: CancellationToken,
    worker: Option<JoinHandle<()>>,
    server: Option<JoinHandle<()>>,
}

impl Service {
    pub(crate) async fn start(http: HttpInbox, inbox: Inbox<SqliteStore>) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), http, inbox, ServerLimits::default()).await
    }

    pub(crate) async fn start_at(
        address: SocketAddr,
        http: HttpInbox,
        inbox: Inbox<SqliteStore>,
        limits: ServerLimits,
    ) -> Self {
        let gate = Gate::new();
        let (router, source) = http.open().unwrap();
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop_worker, stop_server) = (CancellationToken::new(), CancellationToken::new());
        let server = tokio::spawn(serve(listener, router, limits, stop_server.clone()));
        let passed = gate.clone();
        let worker = inbox.each(async move |tx, message| handle(tx, message, &passed).await);
        let worker = tokio::spawn(worker.serve(source, stop_worker.clone()));
        let service =
            Self { address, gate, stop_worker, stop_server, worker: Some(worker), server: Some(server) };
        service.runs().await;
        service
    }

    /// Waits until the source runs: before, every request is told to come again.
    async fn runs(&self) {
        post(PATH, "").until_done(self.address).await;
    }

    /// Sends messages that wait until the queue takes no more, and returns them when there is nothing else: one that runs and two
    /// behind it. For inboxes whose batches have one message.
    pub(crate) async fn fill_the_queue(&self) -> (JoinHandle<Answer>, Vec<JoinHandle<Answer>>) {
        let address = self.address;
        let send = |id: &'static str| tokio::spawn(post(PATH, "wait").id(id).to(address));
        let running = send("a");
        self.gate.reached_by(1).await;
        let mut waiting: Vec<_> = ["b", "c", "d", "e", "f"].into_iter().map(send).collect();
        // Whoever comes when two are there is told to come again, whichever it is.
        for _ in 0..3 {
            let refused = first_of(&mut waiting).await;
            assert!(refused.problem(503).contains("too many messages wait"), "{refused:?}");
            assert_eq!(refused.header("retry-after"), Some("5"));
        }
        (running, waiting)
    }

    /// Tells the worker to stop, and does not wait for it.
    pub(crate) fn tell_worker_to_stop(&self) {
        self.stop_worker.cancel();
    }

    /// Tells the server to stop, and waits for both.
    pub(crate) async fn stop(mut self) {
        self.stop_worker.cancel();
        self.stop_server.cancel();
        for half in [self.worker.take(), self.server.take()].into_iter().flatten() {
            tokio::time::timeout(SOON, half).await.unwrap().unwrap();
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop_worker.cancel();
        self.stop_server.cancel();
    }
}

/// The answer that comes first; its call is taken out.
async fn first_of(calls: &mut Vec<JoinHandle<Answer>>) -> Answer {
    let (answer, at) = poll_fn(|cx| {
        let mut calls = calls.iter_mut().enumerate();
        let ready = calls.find_map(|(at, call)| match Pin::new(call).poll(cx) {
            Poll::Ready(answer) => Some((answer.unwrap(), at)),
            Poll::Pending => None,
        });
        ready.map_or(Poll::Pending, Poll::Ready)
    })
    .await;
    drop(calls.remove(at));
    answer
}

//! A network between the daemon and its database that can be cut.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Forwards connections until it is told not to.
pub(crate) struct Proxy {
    address: SocketAddr,
    rules: Arc<Rules>,
    cut: watch::Sender<u32>,
}

struct Rules {
    /// Every so many commits the answer is lost; 0 for never.
    lose_answers: AtomicU32,
    commits: AtomicU32,
    lost: AtomicU32,
    refuse: AtomicBool,
    /// Whether requests that a handler is known by are held up, and how many are.
    gate: watch::Sender<bool>,
    waiting: AtomicI64,
    connections: AtomicI64,
}

/// What a commit is known by: in SQL, and in the protocol of MongoDB.
const COMMITS: [&[u8]; 2] = [b"COMMIT", b"commitTransaction"];
/// What a handler of orders is known by: it inserts into the ledger.
const HANDLER: &[u8] = b"\x02insert\0\x07\0\0\0ledger\0";

/// Counts as long as it lives.
struct Counted<'a>(&'a AtomicI64);

impl<'a> Counted<'a> {
    fn new(counter: &'a AtomicI64) -> Self {
        counter.fetch_add(1, Ordering::SeqCst);
        Self(counter)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Proxy {
    /// A proxy in front of the server that a URL names.
    pub(crate) async fn before(url: &str) -> Self {
        let server: SocketAddr = authority(url).parse().expect("host and port as numbers");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let rules = Arc::new(Rules {
            lose_answers: AtomicU32::new(0),
            commits: AtomicU32::new(0),
            lost: AtomicU32::new(0),
            refuse: AtomicBool::new(false),
            gate: watch::Sender::new(false),
            waiting: AtomicI64::new(0),
            connections: AtomicI64::new(0),
        });
        let cut = watch::Sender::new(0);
        tokio::spawn(accept(listener, server, Arc::clone(&rules), cut.clone()));
        Self { address, rules, cut }
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// The URL with this proxy in place of the server.
    pub(crate) fn url(&self, url: &str) -> String {
        url.replacen(authority(url), &self.address.to_string(), 1)
    }

    /// Ends all connections that are open; returns how many.
    pub(crate) fn cut(&self) -> i64 {
        let open = self.rules.connections.load(Ordering::SeqCst);
        self.cut.send_modify(|cuts| *cuts += 1);
        open
    }

    /// Whether handlers are held up on their way (MongoDB only).
    pub(crate) fn close_gate(&self, closed: bool) {
        self.rules.gate.send_replace(closed);
    }

    /// How many stand before the gate.
    pub(crate) fn waiting(&self) -> i64 {
        self.rules.waiting.load(Ordering::SeqCst)
    }

    /// Whether new connections are ended at once.
    pub(crate) fn refuse(&self, refuse: bool) {
        self.rules.refuse.store(refuse, Ordering::SeqCst);
    }

    /// From now on every `nth` COMMIT reaches the server and its answer never comes back.
    pub(crate) fn lose_answers(&self, nth: u32) {
        self.rules.lose_answers.store(nth, Ordering::SeqCst);
    }

    /// How many answers were lost.
    pub(crate) fn lost(&self) -> u32 {
        self.rules.lost.load(Ordering::SeqCst)
    }
}

fn authority(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or(rest);
    authority.rsplit_once('@').map_or(authority, |(_, host)| host)
}

async fn accept(listener: TcpListener, server: SocketAddr, rules: Arc<Rules>, cut: watch::Sender<u32>) {
    while let Ok((client, _)) = listener.accept().await {
        if rules.refuse.load(Ordering::SeqCst) {
            continue;
        }
        let Ok(server) = TcpStream::connect(server).await else { continue };
        let (rules, mut cut) = (Arc::clone(&rules), cut.subscribe());
        tokio::spawn(async move {
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            let deaf = Arc::new(AtomicBool::new(false));
            let _one_more = Counted::new(&rules.connections);
            tokio::select! {
                () = requests(from_client, to_server, &rules, &deaf) => {}
                () = answers(from_server, to_client, &deaf) => {}
                _ = cut.changed() => {}
            }
        });
    }
}

async fn requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, rules: &Rules, deaf: &AtomicBool) {
    let mut buffer = vec![0; 64 * 1024];
    // What is looked for may be cut in two: the end of what came before is looked at again.
    let mut seen = Vec::new();
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let text = &buffer[..read];
        let before = seen.len();
        seen.extend_from_slice(text);
        let has_new = |word: &[u8]| {
            let from = before.saturating_sub(word.len() - 1);
            seen[from..].windows(word.len()).any(|window| window == word)
        };
        let nth = rules.lose_answers.load(Ordering::SeqCst);
        if nth > 0
            && COMMITS.into_iter().any(has_new)
            && (rules.commits.fetch_add(1, Ordering::SeqCst) + 1).is_multiple_of(nth)
        {
            deaf.store(true, Ordering::SeqCst);
            rules.lost.fetch_add(1, Ordering::SeqCst);
        }
        let mut gate = rules.gate.subscribe();
        if *gate.borrow() && has_new(HANDLER) {
            let _one_more = Counted::new(&rules.waiting);
            if gate.wait_for(|closed| !closed).await.is_err() {
                return;
            }
        }
        if to.write_all(text).await.is_err() {
            return;
        }
        seen.drain(..seen.len().saturating_sub(HANDLER.len()));
    }
}

/// Ends the connection instead of handing on the answer that must be lost: by then the server has committed.
async fn answers(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, deaf: &AtomicBool) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if deaf.load(Ordering::SeqCst) || to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

//! A proxy that loses what the test tells it to lose.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What happens to a message that contains `commitTransaction`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loses {
    /// It reaches the server, and its answer is lost with the connection.
    Answers,
    /// It does not reach the server; the connection is lost.
    Requests,
}

/// A proxy in front of the server of `ONCEBOX_TEST_MONGODB`.
pub(crate) struct Proxy {
    pub(crate) address: String,
    /// How many more commits are lost.
    left: Arc<AtomicI64>,
}

impl Proxy {
    pub(crate) async fn start(server: &str, loses: Loses) -> Self {
        let (_, rest) = server.split_once("//").expect("a URL");
        let host = rest.split(['/', '?', ',']).next().expect("a host").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let left = Arc::new(AtomicI64::new(0));
        let count = left.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, host.clone(), loses, count.clone()));
            }
        });
        Self { address, left }
    }

    /// Loses the next so many commits.
    pub(crate) fn lose(&self, commits: i64) {
        self.left.store(commits, Ordering::SeqCst);
    }

    pub(crate) fn left(&self) -> i64 {
        self.left.load(Ordering::SeqCst)
    }

    /// A URL through the proxy, to this one member.
    pub(crate) fn url(&self, database: &str) -> String {
        format!("mongodb://{}/{database}?directConnection=true", self.address)
    }
}

async fn serve(mut client: TcpStream, host: String, loses: Loses, left: Arc<AtomicI64>) {
    let Ok(mut server) = TcpStream::connect(host).await else { return };
    loop {
        let Some(request) = message(&mut client).await else { return };
        let commits = request.windows(17).any(|part| part == b"commitTransaction");
        let lost = commits
            && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| (n > 0).then(|| n - 1)).is_ok();
        if lost && loses == Loses::Requests {
            return;
        }
        if server.write_all(&request).await.is_err() {
            return;
        }
        loop {
            let Some(answer) = message(&mut server).await else { return };
            if lost {
                return;
            }
            if client.write_all(&answer).await.is_err() {
                return;
            }
            // The monitor's answers come without being asked for.
            let more = answer.get(16..20).is_some_and(|flags| flags[0] & 2 != 0);
            if !more {
                break;
            }
        }
    }
}

/// One message of the wire protocol: its length comes first.
async fn message(from: &mut TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length).await.ok()?;
    let mut message = vec![0; usize::try_from(u32::from_le_bytes(length)).ok()?];
    message[..4].copy_from_slice(&length);
    from.read_exact(&mut message[4..]).await.ok()?;
    Some(message)
}

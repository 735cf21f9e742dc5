//! Stands between a client and the broker, and can be as bad as a network.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub struct Proxy {
    address: SocketAddr,
    url: String,
    /// Whether what the client says reaches the broker.
    mute: watch::Sender<bool>,
    cut: Arc<Mutex<CancellationToken>>,
}

impl Proxy {
    /// To the broker behind this URL.
    pub async fn to(url: &str) -> Self {
        let (credentials, rest) = url.split_once('@').unwrap();
        let (target, vhost) = rest.split_once('/').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mute, muted) = watch::channel(false);
        let cut = Arc::new(Mutex::new(CancellationToken::new()));
        let url = format!("{credentials}@{address}/{vhost}");
        let (cuts, target) = (Arc::clone(&cut), target.to_owned());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&target).await else { continue };
                let cut = cuts.lock().unwrap().clone();
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::spawn(pass_on(from_client, to_server, cut.clone(), Some(muted.clone())));
                tokio::spawn(pass_on(from_server, to_client, cut, None));
            }
        });
        Self { address, url, mute, cut }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on the broker hears nothing of the clients.
    pub fn mute(&self) {
        self.mute.send(true).unwrap();
    }

    /// Ends all connections. New ones are as good as ever.
    pub fn cut(&self) {
        std::mem::replace(&mut *self.cut.lock().unwrap(), CancellationToken::new()).cancel();
        self.mute.send(false).unwrap();
    }
}

async fn pass_on(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    cut: CancellationToken,
    mute: Option<watch::Receiver<bool>>,
) {
    let mut buffer = vec![0; 64 * 1024];
    let passing = async {
        while let Ok(read @ 1..) = from.read(&mut buffer).await {
            if let Some(mut mute) = mute.clone() {
                mute.wait_for(|muted| !muted).await.ok();
            }
            if to.write_all(&buffer[..read]).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        biased;
        () = cut.cancelled() => {}
        () = passing => {}
    }
}

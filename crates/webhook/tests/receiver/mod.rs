//! A receiver on loopback that does what a test tells it, in plain TCP: real servers never misbehave so exactly.
#![allow(dead_code, reason = "each test program uses its part")]
#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use oncebox_core::message::Headers;
use oncebox_core::outbox::OutgoingEvent;
use oncebox_core::store::StoredEvent;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use uuid::Uuid;

/// Nothing here takes this long.
pub(crate) const AGES: Duration = Duration::from_secs(30);

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    /// Which connection it came on.
    pub(crate) connection: usize,
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Received {
    /// The value of the header, if it came once.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} came twice");
        value
    }
}

/// What the receiver does with a request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// Writes this and keeps the connection.
    Text(String),
    /// Writes the first and then the second for ever.
    Endless(String, String),
    /// Writes this and then nothing, keeping the connection.
    Stuck(String),
    /// Writes this and closes the connection.
    Close(String),
}

impl Reply {
    pub(crate) fn status(status: &str) -> Self {
        Self::with(status, "", "")
    }

    pub(crate) fn with(status: &str, headers: &str, body: &str) -> Self {
        Self::Text(format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len()))
    }
}

/// The receiver; it ends with the runtime of its test.
#[derive(Debug, Clone)]
pub(crate) struct Receiver {
    pub(crate) url: String,
    received: Arc<Mutex<Vec<Received>>>,
    open: Arc<AtomicUsize>,
    most_open: Arc<AtomicUsize>,
}

impl Receiver {
    pub(crate) async fn start(reply: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_with(None, reply).await
    }

    /// With TLS if there is an acceptor.
    pub(crate) async fn start_with(
        tls: Option<TlsAcceptor>,
        reply: impl Fn(&Received) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let receiver =
            Self { url, received: Arc::default(), open: Arc::default(), most_open: Arc::default() };
        let (this, reply) = (receiver.clone(), Arc::new(reply));
        tokio::spawn(async move {
            for connection in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                let (this, reply, tls) = (this.clone(), Arc::clone(&reply), tls.clone());
                tokio::spawn(async move {
                    let open = this.open.fetch_add(1, Ordering::SeqCst) + 1;
                    this.most_open.fetch_max(open, Ordering::SeqCst);
                    // An error here is the sender going away, which is its right.
                    match tls {
                        None => this.serve(connection, stream, &*reply).await.ok(),
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => this.serve(connection, stream, &*reply).await.ok(),
                            Err(_) => None,
                        },
                    };
                    this.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        receiver
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// The most connections that were open at the same time.
    pub(crate) fn most_open(&self) -> usize {
        self.most_open.load(Ordering::SeqCst)
    }

    pub(crate) async fn all_connections_are_closed(&self) {
        let closed = async {
            while self.open.load(Ordering::SeqCst) > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(AGES, closed).await.unwrap();
    }

    async fn serve(
        &self,
        connection: usize,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        reply: &(dyn Fn(&Received) -> Reply + Send + Sync),
    ) -> std::io::Result<()> {
        let mut stream = BufReader::new(stream);
        while let Some(request) = read(connection, &mut stream).await? {
            let reply = reply(&request);
            self.received.lock().unwrap().push(request);
            match reply {
                Reply::Text(text) => stream.write_all(text.as_bytes()).await?,
                Reply::Close(text) => return stream.write_all(text.as_bytes()).await,
                Reply::Stuck(text) => {
                    stream.write_all(text.as_bytes()).await?;
                    // Until the sender closes.
                    stream.read_u8().await?;
                }
                Reply::Endless(text, again) => {
                    stream.write_all(text.as_bytes()).await?;
                    loop {
                        stream.write_all(again.as_bytes()).await?;
                    }
                }
            }
        }
        Ok(())
    }
}

async fn read(
    connection: usize,
    stream: &mut BufReader<impl AsyncRead + Unpin>,
) -> std::io::Result<Option<Received>> {
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    let mut headers = Vec::new();
    loop {
        let mut text = String::new();
        stream.read_line(&mut text).await?;
        let Some((name, value)) = text.trim_end().split_once(": ") else { break };
        headers.push((name.to_owned(), value.to_owned()));
    }
    let mut received = Received { connection, line: line.trim_end().to_owned(), headers, body: Vec::new() };
    let len = received.header("content-length").map_or(0, |len| len.parse().unwrap());
    received.body.resize(len, 0);
    stream.read_exact(&mut received.body).await?;
    Ok(Some(received))
}

/// An event of the topic `orders`, with these headers.
pub(crate) fn event(key: Option<&str>, payload: Option<&str>, headers: &[(&str, &str)]) -> OutgoingEvent {
    let headers: Headers =
        headers.iter().map(|(n, v)| (*n, Some(Bytes::copy_from_slice(v.as_bytes())))).collect();
    let stored = StoredEvent {
        seq: 1,
        id: Uuid::now_v7(),
        topic: "orders".into(),
        key: key.map(|key| Bytes::copy_from_slice(key.as_bytes())),
        payload: payload.map(|payload| Bytes::copy_from_slice(payload.as_bytes())),
        headers,
        created_at_ms: 1_700_000_000_000,
        deliver_at_ms: None,
        causation_id: Some("m-1".to_owned()),
        attempts: 0,
    };
    OutgoingEvent::new(stored, "shop".into())
}

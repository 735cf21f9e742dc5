//! An HTTP client, and a raw connection for those who do not speak it.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// A bound for what must happen, and does at once.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// What a client got.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn is_replayed(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// Checks that it is a problem as RFC 9457 has it, and returns its detail.
    pub(crate) fn problem(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let document: serde_json::Value = serde_json::from_str(&self.body).unwrap();
        assert_eq!(document["status"], status);
        assert!(document["title"].as_str().is_some_and(|title| !title.is_empty()), "{self:?}");
        document["detail"].as_str().unwrap().to_owned()
    }
}

/// A request to be sent.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    method: Method,
    path: String,
    headers: Vec<(String, String)>,
    body: Bytes,
}

pub(crate) fn post(path: &str, body: impl Into<Bytes>) -> Call {
    Call { method: Method::POST, path: path.to_owned(), headers: Vec::new(), body: body.into() }
}

impl Call {
    pub(crate) fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    pub(crate) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// With this idempotency key.
    pub(crate) fn id(self, id: impl Into<String>) -> Self {
        self.header("Idempotency-Key", id)
    }

    /// On a connection of its own.
    pub(crate) async fn to(self, address: SocketAddr) -> Answer {
        self.try_to(address).await.unwrap()
    }

    /// Sent again and again, as long as it is told to come again.
    pub(crate) async fn until_done(self, address: SocketAddr) -> Answer {
        let deadline = Instant::now() + SOON;
        loop {
            let answer = self.clone().to(address).await;
            if answer.header("retry-after").is_none() {
                return answer;
            }
            assert!(Instant::now() < deadline, "never done: {answer:?}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub(crate) async fn try_to(self, address: SocketAddr) -> Result<Answer, oncebox::BoxError> {
        let mut connection = Connection::open(address).await?;
        connection.send(self).await
    }
}

/// A connection that is used for several requests.
pub(crate) struct Connection(SendRequest<Full<Bytes>>);

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Result<Self, oncebox::BoxError> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move { drop(connection.await) });
        Ok(Self(sender))
    }

    pub(crate) async fn send(&mut self, call: Call) -> Result<Answer, oncebox::BoxError> {
        let mut request = Request::builder().method(call.method).uri(call.path).header("host", "test");
        for (name, value) in call.headers {
            request = request.header(name, value);
        }
        self.0.ready().await?;
        let sent = self.0.send_request(request.body(Full::new(call.body))?);
        let response = tokio::time::timeout(SOON, sent).await??;
        let (head, body) = response.into_parts();
        let body = String::from_utf8(body.collect().await?.to_bytes().to_vec())?;
        Ok(Answer { status: head.status, headers: head.headers, body })
    }
}

/// A connection that says what it likes.
pub(crate) struct Raw(pub(crate) TcpStream);

impl Raw {
    pub(crate) async fn open(address: SocketAddr) -> Self {
        Self(TcpStream::connect(address).await.unwrap())
    }

    pub(crate) async fn say(&mut self, text: impl AsRef<[u8]>) {
        self.0.write_all(text.as_ref()).await.unwrap();
    }

    /// What the server says until it closes the connection.
    pub(crate) async fn rest(&mut self) -> String {
        let mut said = Vec::new();
        let read = async {
            let mut part = [0; 4096];
            // A server that closes while something is still being sent resets the connection.
            while let Ok(length) = self.0.read(&mut part).await {
                if length == 0 {
                    break;
                }
                said.extend_from_slice(&part[..length]);
            }
        };
        tokio::time::timeout(SOON, read).await.expect("the server closes the connection");
        String::from_utf8_lossy(&said).into_owned()
    }
}

//! The HTTP client: each connection serves one request at a time and is used again. A new one is opened only when none is
//! free, so that there are never more connections than requests under way at once.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::rt::{Read, Write};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector};
use hyper_util::client::legacy::connect::HttpConnector;
use oncebox_core::error::BoxError;
use rustls::ClientConfig;
use tokio::time::Instant;
use tower_service::Service;

use crate::error::Error;

/// Shorter than what servers and balancers usually allow, so that a request rarely meets a connection that is being closed.
const MAX_IDLE: Duration = Duration::from_secs(20);

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// There was no connection: nothing was sent.
    Connect(BoxError),
    /// The connection broke: nobody knows what the receiver has.
    Broken(hyper::Error),
}

/// A connection, and when it was used last.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    used: Instant,
}

/// Sends requests to one address. Knows no proxy and follows no redirect.
#[derive(Clone)]
pub(crate) struct Client {
    address: Uri,
    connector: Connector,
    idle: Arc<Mutex<Vec<Connection>>>,
}

#[derive(Clone)]
enum Connector {
    Plain(HttpConnector),
    Tls(HttpsConnector<HttpConnector>),
}

impl Client {
    /// Without `tls` it speaks plain HTTP.
    pub(crate) fn new(address: Uri, tls: Option<&Arc<ClientConfig>>, timeout: Duration) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        // Shared by the addresses of a name: one that does not answer leaves time for the next.
        tcp.set_connect_timeout(Some(timeout));
        let connector = match tls {
            None => Connector::Plain(tcp),
            Some(tls) => {
                tcp.enforce_http(false);
                Connector::Tls(HttpsConnector::from((tcp, Arc::clone(tls))))
            }
        };
        Self { address, connector, idle: Arc::default() }
    }

    /// Sends the request, once. The connection comes with the answer: give it to [`Client::keep`] when that is read.
    pub(crate) async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Connection), Failure> {
        loop {
            let (mut sender, fresh) = match self.free().await {
                Some(sender) => (sender, false),
                None => (self.connect().await?, true),
            };
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((response, Connection { sender, used: Instant::now() })),
                Err(mut failed) => match failed.take_message() {
                    // The receiver had closed the connection before anything was sent.
                    Some(unsent) if !fresh => request = unsent,
                    _ => return Err(Failure::Broken(failed.into_error())),
                },
            }
        }
    }

    /// Keeps a connection for the next request. If its answer was not read to the end, hyper closes it, and it is never ready
    /// again.
    pub(crate) fn keep(&self, connection: Connection) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
    }

    /// A connection that is open and free.
    async fn free(&self) -> Option<SendRequest<Full<Bytes>>> {
        loop {
            let last = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Connection { mut sender, used } = last?;
            if used.elapsed() < MAX_IDLE && sender.ready().await.is_ok() {
                return Some(sender);
            }
        }
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Failure> {
        match self.connector.clone() {
            Connector::Plain(connector) => shake_hands(open(connector, &self.address).await?).await,
            Connector::Tls(connector) => shake_hands(open(connector, &self.address).await?).await,
        }
    }
}

async fn open<C: Service<Uri, Error: Into<BoxError>>>(
    mut connector: C,
    address: &Uri,
) -> Result<C::Response, Failure> {
    poll_fn(|cx| connector.poll_ready(cx)).await.map_err(|e| Failure::Connect(e.into()))?;
    connector.call(address.clone()).await.map_err(|e| Failure::Connect(e.into()))
}

async fn shake_hands(
    stream: impl Read + Write + Unpin + Send + 'static,
) -> Result<SendRequest<Full<Bytes>>, Failure> {
    let (sender, connection) = http1::handshake(stream).await.map_err(Failure::Broken)?;
    // Ends with its sender. Its error is the error of the request.
    tokio::spawn(connection);
    Ok(sender)
}

/// TLS that trusts what this machine trusts.
pub(crate) fn tls() -> Result<Arc<ClientConfig>, Error> {
    // Named here, and not taken from the process: another crate may bring a second provider.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::Tls(e.to_string()))?
        .with_native_roots()
        .map_err(|e| Error::Tls(e.to_string()))?
        .with_no_client_auth();
    Ok(Arc::new(config))
}

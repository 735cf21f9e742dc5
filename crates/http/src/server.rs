//! A server that slow and hostile clients cannot hold: everything a connection may do is bounded.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service;
use tracing::warn;

/// What the connections of a server may cost. [`Default`] is right for most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerLimits {
    /// The most connections; others wait until one ends. Default: 1024.
    pub connections: usize,
    /// How long a client may take to send the head of a request, and how long a connection may be idle. Default: 30 seconds.
    pub head_within: Duration,
    /// The longest head of a request, in bytes, at least 8 KiB. Default: 64 KiB.
    pub head_bytes: usize,
    /// The most headers of a request. Default: 100.
    pub header_count: usize,
    /// How long requests under way may take once the server is told to stop. Default: 30 seconds.
    pub drain_within: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections: 1024,
            head_within: Duration::from_secs(30),
            head_bytes: 64 * 1024,
            header_count: 100,
            drain_within: Duration::from_secs(30),
        }
    }
}

/// What hyper needs for the head of a request.
const MIN_HEAD_BYTES: usize = 8 * 1024;

/// How long to wait when no connection can be accepted: mostly there are no file descriptors left.
const AFTER_ERROR: Duration = Duration::from_millis(100);

/// Serves these routes over HTTP/1.1 until `stop`; then lets the requests under way end, and returns. Routes find who asks in
/// [`ConnectInfo`].
///
/// Tell the sources of the routes to stop first, or at the same time: they answer what is under way.
pub async fn serve(listener: TcpListener, router: Router, limits: ServerLimits, stop: CancellationToken) {
    let places = Arc::new(Semaphore::new(limits.connections.clamp(1, Semaphore::MAX_PERMITS)));
    let (tasks, cut) = (TaskTracker::new(), CancellationToken::new());
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = accept(&listener, &places) => accepted,
        };
        match accepted {
            Some((stream, peer, place)) => {
                let (router, limits, stop) = (router.clone(), limits.clone(), stop.clone());
                let connection = serve_connection(stream, peer, router, limits, stop);
                let cut = cut.clone();
                tasks.spawn(async move {
                    let _place = place;
                    tokio::select! {
                        () = connection => {}
                        () = cut.cancelled() => {}
                    }
                });
            }
            None => tokio::time::sleep(AFTER_ERROR).await,
        }
    }
    drop(listener);
    tasks.close();
    if tokio::time::timeout(limits.drain_within, tasks.wait()).await.is_err() {
        warn!(connections = tasks.len(), "requests did not end in time; their connections are cut");
        cut.cancel();
        tasks.wait().await;
    }
}

/// The next connection, once there is a place for it; `None` if there was an error.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    // Nobody closes it.
    let place = Arc::clone(places).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, peer)) => {
            // An answer is small, and its sender waits for it.
            stream.set_nodelay(true).ok();
            Some((stream, peer, place))
        }
        Err(error) => {
            warn!(%error, "a connection could not be accepted");
            None
        }
    }
}

async fn serve_connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    limits: ServerLimits,
    stop: CancellationToken,
) {
    let service = service_fn(move |request: http::Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        let answered = router.clone().call(request);
        async move { Ok::<_, Infallible>(answered.await.unwrap_or_else(|never| match never {})) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_within)
        .max_headers(limits.header_count)
        .max_buf_size(limits.head_bytes.max(MIN_HEAD_BYTES))
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    // How a connection ends is its client's business: it has its answer, or does not want it.
    tokio::select! {
        biased;
        ended = connection.as_mut() => drop(ended),
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            drop(connection.await);
        }
    }
}

//! What the client runs on: tokio, with a connection that we make ourselves, and without its log.
//!
//! The connection is ours because the client has no time limit for making one, cannot be told to let go of one that does not
//! answer, and would speak plain text to an `amqps://` address unless it is built with a TLS stack of its own choice. Its log is
//! left out because it holds whole messages: whatever matters in it comes back to us as an error.

use std::cell::RefCell;
use std::future::Future;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use async_rs::Tokio;
use async_rs::traits::{Executor, Reactor, RuntimeKit};
use async_rs::util::Task;
use futures_io::{AsyncRead, AsyncWrite};
use futures_util::Stream;
use tokio_util::compat::Compat;
use tracing::Dispatch;
use tracing::dispatcher::DefaultGuard;
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

/// A connection of either kind.
pub(crate) trait Wire: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin {}

impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin> Wire for T {}

/// A connection as the client wants it.
pub(crate) type Socket = Compat<Box<dyn Wire>>;

/// Cuts a connection: what was not sent is not sent any more, and nobody is waited for.
#[derive(Debug)]
pub(crate) struct Cut(std::net::TcpStream);

impl Cut {
    pub(crate) fn of(socket: &tokio::net::TcpStream) -> io::Result<Self> {
        Ok(Self(socket.as_fd().try_clone_to_owned()?.into()))
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        // An error says that it is cut already.
        self.0.shutdown(Shutdown::Both).ok();
    }
}

/// Tokio, as the client sees it.
#[derive(Debug, Clone)]
pub(crate) struct OurTokio(Tokio);

impl OurTokio {
    /// The runtime that we are in.
    pub(crate) fn current() -> Self {
        Self(Tokio::current())
    }
}

impl RuntimeKit for OurTokio {}

impl Executor for OurTokio {
    type Task<T: Send + 'static> = <Tokio as Executor>::Task<T>;

    fn block_on<T, F: Future<Output = T>>(&self, f: F) -> T {
        self.0.block_on(f)
    }

    fn spawn<T: Send + 'static, F: Future<Output = T> + Send + 'static>(&self, f: F) -> Task<Self::Task<T>> {
        self.0.spawn(f.with_subscriber(NoSubscriber::default()))
    }

    fn spawn_blocking<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        &self,
        f: F,
    ) -> Task<Self::Task<T>> {
        self.0.spawn_blocking(f)
    }
}

impl Reactor for OurTokio {
    type TcpStream = Socket;
    type Sleep = <Tokio as Reactor>::Sleep;

    fn register<H: Read + Write + Send + 'static>(
        &self,
        _: H,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static> {
        Err::<Socket, _>(not_by_the_client())
    }

    fn sleep(&self, dur: Duration) -> Self::Sleep {
        self.0.sleep(dur)
    }

    fn interval(&self, dur: Duration) -> impl Stream<Item = Instant> + Send + 'static {
        self.0.interval(dur)
    }

    fn tcp_connect_addr(
        &self,
        _: SocketAddr,
    ) -> impl Future<Output = io::Result<Self::TcpStream>> + Send + 'static {
        std::future::ready(Err(not_by_the_client()))
    }
}

fn not_by_the_client() -> io::Error {
    io::Error::other("connections are made before the client is")
}

/// No log from the rest of this thread: the client has one of its own for each connection.
pub(crate) fn silence_this_thread() {
    thread_local!(static SILENCE: RefCell<Option<DefaultGuard>> = const { RefCell::new(None) });
    let silence = tracing::dispatcher::set_default(&Dispatch::new(NoSubscriber::default()));
    SILENCE.with(|kept| kept.replace(Some(silence)));
}

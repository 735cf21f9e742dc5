//! A connection to one of the nodes, made and closed within bounds.

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_rs::Runtime;
use lapin::{AsyncTcpStream, Channel, ConnectionProperties};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::compat::TokioAsyncReadCompatExt;

use crate::address::Address;
use crate::error::{Error, reason};
use crate::legible::Legible;
use crate::runtime::{Cut, OurTokio, Socket, Wire, silence_this_thread};
use crate::settings::Rabbitmq;
use crate::tls;

/// How long an answer on a connection that works may take. A broker that is busy answers late; one that is away is noticed by
/// its heartbeats.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// How long a goodbye may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(3);

/// A connection. Dropping it cuts it: what was not sent is not sent any more. [`Connection::close`] says goodbye first.
#[derive(Debug)]
pub(crate) struct Connection {
    // Dropped in this order: a client whose connection is cut does not wait for anybody.
    _cut: Cut,
    inner: lapin::Connection,
}

impl Rabbitmq {
    /// Connects to one of the nodes, under a name that the broker shows to people.
    pub(crate) async fn connect(&self, name: &str) -> Result<Connection, Error> {
        let first = fastrand::usize(..self.addresses.len());
        let (before, from) = self.addresses.split_at(first);
        let mut failures = Vec::new();
        for address in from.iter().chain(before) {
            let limit = address.connect_timeout.unwrap_or(self.connect_timeout);
            let failure = match timeout(limit, self.connect_to(address, name)).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(failure)) => self.secrets.removed_from(&failure),
                Err(_) => format!("no answer within {limit:?}"),
            };
            failures.push(format!("{address}: {failure}"));
        }
        Err(Error::Unreachable(failures.join("; ")))
    }

    async fn connect_to(&self, address: &Address, name: &str) -> Result<Connection, String> {
        let lost = |e: std::io::Error| e.to_string();
        let socket = TcpStream::connect((address.host.as_str(), address.port)).await.map_err(lost)?;
        socket.set_nodelay(true).map_err(lost)?;
        let cut = Cut::of(&socket).map_err(lost)?;
        let wire: Box<dyn Wire> = match &address.tls {
            None => Box::new(Legible::new(socket)),
            Some(files) => {
                let encrypted = tls::handshake(address, files, socket).await.map_err(|e| e.to_string())?;
                Box::new(Legible::new(encrypted))
            }
        };
        let properties = ConnectionProperties::default()
            .with_client_property("product".into(), "oncebox".into())
            .with_client_property("version".into(), env!("CARGO_PKG_VERSION").into())
            .with_connection_name(name.into());
        let wire: Mutex<Option<Socket>> = Mutex::new(Some(wire.compat()));
        // Called once, on the client's own thread.
        let hand_over = async move |_, _| {
            silence_this_thread();
            let wire = wire.lock().unwrap_or_else(PoisonError::into_inner).take();
            let gone = || std::io::Error::other("the connection is in use already").into();
            wire.map(AsyncTcpStream::Plain).ok_or_else(gone)
        };
        let runtime = Runtime::new(OurTokio::current());
        let handshake =
            lapin::Connection::connector(address.uri(self.heartbeat), runtime, hand_over, properties);
        let inner = handshake.await.map_err(|e| reason(&e))?;
        Ok(Connection { _cut: cut, inner })
    }
}

impl Connection {
    pub(crate) async fn channel(&self) -> Result<Channel, Error> {
        answer("opening a channel", self.inner.create_channel()).await
    }

    /// Whether it works, as far as is known.
    pub(crate) fn is_up(&self) -> bool {
        self.inner.status().connected()
    }

    /// Whether the broker has told publishers to wait.
    pub(crate) fn is_blocked(&self) -> bool {
        self.inner.status().blocked()
    }

    /// The largest frame that both sides take: the properties and headers of a message must fit into one.
    pub(crate) fn largest_frame(&self) -> usize {
        usize::try_from(self.inner.configuration().frame_max()).unwrap_or(usize::MAX)
    }

    /// Says goodbye, for a short while.
    pub(crate) async fn close(self) {
        if self.is_up() {
            // Whatever comes of it, the connection is cut.
            timeout(CLOSE_LIMIT, self.inner.close(200, "goodbye".into())).await.ok();
        }
    }
}

/// Waits for an answer of the broker, within bounds.
pub(crate) async fn answer<T>(
    what: &str,
    asking: impl Future<Output = Result<T, lapin::Error>>,
) -> Result<T, Error> {
    match timeout(ANSWER_LIMIT, asking).await {
        Ok(answer) => answer.map_err(|e| Error::request(what, &e)),
        Err(_) => Err(Error::Silent { what: what.to_owned(), limit: ANSWER_LIMIT }),
    }
}

//! The description of an inbox that requests are sent to.

use std::sync::Arc;

use axum::Router;
use axum::routing::post;
use http::{HeaderMap, StatusCode};
use oncebox_core::inbox::Selector;

use crate::clock::WallClock;
use crate::door::Door;
use crate::handshake::Handshake;
use crate::limits::Limits;
use crate::pattern::PathPattern;
use crate::problem::Problem;
use crate::reply::Reply;
use crate::request::{Entrance, receive};
use crate::source::HttpSource;
use crate::verify::Access;

/// An inbox that requests are sent to. See the [crate](crate) for an example.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HttpInbox {
    /// Where requests are sent to. It is also the topic of their messages.
    pub path: PathPattern,
    /// When requests are answered.
    pub mode: Mode,
    /// Whose requests are taken.
    pub access: Access,
    /// What a sender gets whose message is applied.
    pub reply: Reply,
    /// Where the key of a message is; messages of one key keep their order. A message that has none there has no key.
    pub key: Option<Selector>,
    /// Whether a request with an id that was used for another body is told so.
    pub compare_bodies: bool,
    /// What requests may cost, and how long senders wait.
    pub limits: Limits,
    /// Who may send, for senders that ask first.
    pub handshake: Option<Handshake>,
    /// The time of day.
    pub clock: WallClock,
}

/// When requests are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// When their message is applied.
    Apply,
    /// When their message is stored.
    Accept,
}

/// Why an inbox cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpInboxError {
    /// Requests are verified by a parameter that the path does not have.
    #[error("requests are verified by `{parameter}`, and the path {path} has no such parameter")]
    NoParameter {
        /// The parameter.
        parameter: String,
        /// The path.
        path: PathPattern,
    },
}

impl HttpInbox {
    /// Requests to this path are applied while their sender waits: the answer comes after the commit.
    #[must_use]
    pub fn apply(path: PathPattern) -> Self {
        Self {
            path,
            mode: Mode::Apply,
            access: Access::default(),
            reply: Reply::default(),
            key: None,
            compare_bodies: true,
            limits: Limits::default(),
            handshake: None,
            clock: WallClock::system(),
        }
    }

    /// Requests to this path are stored while their sender waits, answered with 202, and applied later, in order for each key: for
    /// senders that wait only for a moment. Its source is run [through](HttpSource::through) a queue. What fails is kept as a
    /// dead letter: nobody waits who could send it again.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    ///
    /// use oncebox::http::HttpInbox;
    /// use oncebox::sqlite::SqliteStore;
    /// use oncebox::{Inbox, LocalQueue, Relay, Selector};
    ///
    /// # #[tokio::main]
    /// # async fn main() -> oncebox::Result {
    /// let store = SqliteStore::connect("sqlite://shop.sqlite").await?;
    /// let (router, source) = HttpInbox::accept("/in/orders".parse()?).open()?;
    /// let queue = LocalQueue::new(store.clone(), "orders".parse()?, "/in/orders");
    /// let relay = Relay::new(store.clone()).route(queue.topic(), queue.sink());
    /// let worker = Inbox::new("orders", store)?.id(Selector::Header("webhook-id".into())).each(async |_tx, _message| Ok(()));
    ///
    /// let stop = async || tokio::signal::ctrl_c().await.unwrap_or_default();
    /// tokio::spawn(relay.run(stop()));
    /// // And serve the router.
    /// worker.run(Arc::new(source).through(queue), stop()).await?;
    /// # drop(router);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn accept(path: PathPattern) -> Self {
        Self { mode: Mode::Accept, ..Self::apply(path) }
    }

    /// Whose requests are taken. Default: everybody's.
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// What a sender gets whose message is applied. Default: 204 without a body. Where messages are only accepted, the status is
    /// always 202.
    #[must_use]
    pub fn reply(mut self, reply: Reply) -> Self {
        self.reply = reply;
        self
    }

    /// Where the key of a message is. Default: messages have no key.
    #[must_use]
    pub fn key(mut self, selector: Selector) -> Self {
        self.key = Some(selector);
        self
    }

    /// Whether a request with an id that was used for another body is told so, with 422. Without it, it gets the answer of the
    /// first, as for senders that change the body from one try to the next. Default: yes. CloudEvents with ids of their own
    /// ([`Selector::CloudEvents`]) are never compared: one event may be written in several ways.
    #[must_use]
    pub fn compare_bodies(mut self, compare: bool) -> Self {
        self.compare_bodies = compare;
        self
    }

    /// Whether bodies are compared, if this is where the id is. One event may be written in several ways, and its id is its own.
    pub(crate) fn compares_bodies(&self, id: &Selector) -> bool {
        self.compare_bodies && *id != Selector::CloudEvents
    }

    /// What requests may cost, and how long senders wait.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Who may send, for senders that ask first. Default: nobody is answered.
    #[must_use]
    pub fn handshake(mut self, handshake: Handshake) -> Self {
        self.handshake = Some(handshake);
        self
    }

    /// The time of day, for tests.
    #[must_use]
    pub fn clock(mut self, clock: WallClock) -> Self {
        self.clock = clock;
        self
    }

    /// Its two halves: routes for a server, and the source for the worker of the inbox. While the source does not run, requests
    /// are told to come again.
    pub fn open(self) -> Result<(Router, HttpSource), HttpInboxError> {
        if let Access::ByParameter { parameter, .. } = &self.access
            && !self.path.parameters().any(|known| known == parameter)
        {
            return Err(HttpInboxError::NoParameter { parameter: parameter.clone(), path: self.path });
        }
        let (inbox, door) = (Arc::new(self), Arc::new(Door::default()));
        let entrance = Entrance::new(Arc::clone(&inbox), Arc::clone(&door));
        let methods = match inbox.handshake.clone() {
            None => post(receive).fallback(async || not_allowed("POST")),
            Some(handshake) => post(receive)
                .options(move |headers: HeaderMap| std::future::ready(handshake.answer(&headers)))
                .fallback(async || not_allowed("OPTIONS, POST")),
        };
        let router = Router::new().route(inbox.path.as_str(), methods).with_state(Arc::new(entrance));
        Ok((router, HttpSource::new(inbox, door)))
    }
}

fn not_allowed(allowed: &'static str) -> Problem {
    let detail = "messages are sent with POST";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "Another method", detail).allow(allowed)
}

//! The HTTP source of oncebox: a request changes the database once, and is answered after the commit.
//!
//! A webhook or an API call becomes a message. It waits for its commit together with its neighbours, and its sender gets the
//! answer then. A copy of a request that was applied gets the same answer and changes nothing. Nothing of a request that
//! failed stays behind, so its sender just sends it again.
//!
//! ```no_run
//! use oncebox::http::verify::{Access, Secret, Verifier};
//! use oncebox::http::{HttpInbox, ServerLimits, serve};
//! use oncebox::source::CancellationToken;
//! use oncebox::sqlite::SqliteStore;
//! use oncebox::{Inbox, OnFailure, Selector};
//! use tokio::net::TcpListener;
//!
//! # #[tokio::main]
//! # async fn main() -> oncebox::Result {
//! let store = SqliteStore::connect("sqlite://shop.sqlite").await?;
//! store.migrate().await?;
//! let secret = Secret::new(std::env::var("WEBHOOK_SECRET")?);
//! let http = HttpInbox::apply("/in/orders".parse()?)
//!     .access(Access::Verified(Verifier::standard_webhooks([secret])?));
//! let (router, source) = http.open()?;
//! let worker = Inbox::new("orders", store)?
//!     .id(Selector::Header("webhook-id".into()))
//!     .on_failure(OnFailure::GiveBack)
//!     .each(async |tx, message| {
//!         sqlx::query("INSERT INTO orders (id) VALUES (?)").bind(message.id().as_str()).execute(tx).await?;
//!         Ok(())
//!     });
//!
//! let stop = CancellationToken::new();
//! let listener = TcpListener::bind("127.0.0.1:7878").await?;
//! let server = tokio::spawn(serve(listener, router, ServerLimits::default(), stop.clone()));
//! worker.run(source, async { tokio::signal::ctrl_c().await.unwrap_or_default() }).await?;
//! stop.cancel();
//! server.await?;
//! # Ok(())
//! # }
//! ```
//!
//! # The answers
//!
//! | what happened | status |
//! |---|---|
//! | applied | that of the [`Reply`]: 200, 201 or 204 |
//! | applied before | the same, with `idempotent-replayed: true` |
//! | stored, to be applied later ([`HttpInbox::accept`]) | 202 |
//! | kept as a dead letter (another [`OnFailure`](oncebox_core::inbox::OnFailure) than `GiveBack`) | 202 |
//! | no id, or a malformed one | 400 |
//! | not verified | 401 |
//! | not sent with `POST` | 405 |
//! | the body took too long | 408 |
//! | a copy whose first is still under way, after [`Limits::copy_within`] | 409, `retry-after` |
//! | too large | 413, headers 431 |
//! | a batch in another format than JSON | 415 |
//! | rejected by the handler, with its reason | 422 |
//! | the id was used for a request with another body ([`HttpInbox::compare_bodies`]) | 422 |
//! | failed as often as it may | 500 |
//! | the database is away, too much is under way, the process ends or begins, no answer in time | 503, `retry-after` |
//!
//! All but the first four are `application/problem+json` (RFC 9457). A batch of CloudEvents has one answer for all of its events: the
//! one that is most worth another try. Events that were applied stay applied, and are copies the next time.

mod body;
mod clock;
mod door;
mod echo;
mod handshake;
mod identity;
mod inbox;
mod limits;
mod mapping;
mod pattern;
mod problem;
mod reply;
mod request;
mod server;
mod source;
mod verdict;
pub mod verify;

pub use clock::WallClock;
pub use handshake::{Handshake, Origins};
pub use identity::with_lower_case_headers;
pub use inbox::{HttpInbox, HttpInboxError, Mode};
pub use limits::Limits;
pub use pattern::{MAX_PATH_BYTES, PathPattern, PatternError};
pub use reply::{Reply, ReplyError};
pub use server::{ServerLimits, serve};
pub use source::{AcceptSource, HttpSource};

//! Tests for handlers and relays, without a broker.
//!
//! [`TestInbox`] runs your worker in the real engine against a real store. Only the broker is replaced.
//!
//! ```
//! use oncebox::testing::{TemporarySqlite, TestInbox, message};
//! use oncebox::{Inbox, Message};
//! use sqlx::SqliteConnection;
//!
//! async fn book(tx: &mut SqliteConnection, message: &Message) -> oncebox::Result {
//!     sqlx::query("INSERT INTO ledger VALUES (?)").bind(message.id().as_str()).execute(tx).await?;
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> oncebox::Result {
//! let db = TemporarySqlite::new().await;
//! sqlx::query("CREATE TABLE ledger (id TEXT)").execute(&mut db.connect().await).await?;
//! let kit = TestInbox::new(Inbox::new("ledger", db.store())?.each(book));
//! kit.deliver(&message("order-1")).await.assert_applied();
//! kit.deliver_twice(&message("order-2")).await.assert_applied_once();
//! kit.crash_after_commit(&message("order-3")).await.assert_applied_once();
//! # Ok(())
//! # }
//! ```
//!
//! The guide `docs/guides/testing.md` goes through all of it.

#[doc(inline)]
#[cfg(feature = "postgres")]
pub use oncebox_postgres::TemporaryPostgres;
#[doc(inline)]
#[cfg(feature = "sqlite")]
pub use oncebox_sqlite::TemporarySqlite;
#[doc(inline)]
pub use oncebox_testkit::{
    Delivered, Events, FailedTry, FakeSink, Redelivered, TestEvent, TestInbox, TestMessage, drain, events,
    message, message_without_id,
};

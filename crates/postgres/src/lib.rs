//! The PostgreSQL store of oncebox: receipts, positions, dead letters and the outbox in the application's own database.
//!
//! ```no_run
//! use oncebox::postgres::PgStore;
//!
//! # async fn demo() -> oncebox::Result {
//! let store = PgStore::connect("postgres://erp@localhost/erp").await?;
//! store.migrate().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What it needs
//!
//! - PostgreSQL 14 or newer, and there the primary: a standby takes no writes.
//! - A role that may use the tables `oncebox_…` in its schema, and for [`migrate`](PgStore::migrate) one
//!   that may create them. Handlers in SQL also need `TEMPORARY` on the database.
//! - Connections: 10 by default for messages, and up to four beside them, so that purge, status and leases wait for nobody.
//! - Behind a pooler in transaction mode, [`PgStoreBuilder::pooler`].
//!
//! # Its limits
//!
//! - Every transaction is READ COMMITTED, whatever the server's default is: the claim relies on it.
//! - Text holds no NUL: errors are kept without it, and an event with a NUL in its headers is refused.
//! - Waits are bounded by the server: `statement_timeout`, `lock_timeout` and `idle_in_transaction_session_timeout` go with
//!   each transaction, and [`PgStoreBuilder`] sets them. A server that is silent for longer counts as away.
//!
//! # Where things are
//!
//! - `store`, `options`, `session`: how it connects. `txn`: how a transaction begins and ends.
//! - `claim`: receipts. `adopted`: receipts in a table of the application. `position`: who may advance, and by how much. `dead`: dead letters. `pause`: who is paused. `outbox`: events.
//! - `purge`, `partitions`: retention, row by row or by whole days.
//! - `migrate`, `check`, `status`: for those who look after the database.
//! - `classify`: what an error means. `sql_handler`: handlers from the configuration.

mod adopted;
mod audit;
mod check;
mod claim;
mod classify;
mod dead;
mod find;
mod migrate;
mod options;
mod outbox;
mod partitions;
mod pause;
mod position;
mod purge;
mod quote;
mod session;
#[cfg(feature = "sql")]
mod sql_handler;
mod status;
mod store;
#[cfg(feature = "testing")]
mod temporary;
mod time;
mod txn;
mod wording;

pub use options::PgStoreBuilder;
pub use partitions::Partitioned;
#[cfg(feature = "sql")]
pub use sql_handler::SqlHandler;
pub use store::PgStore;
#[cfg(feature = "testing")]
pub use temporary::TemporaryPostgres;
pub use txn::PgTxn;

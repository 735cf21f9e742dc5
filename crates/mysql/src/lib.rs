//! The MySQL and MariaDB store of oncebox: receipts, positions, dead letters and the outbox in the application's own database.
//!
//! ```no_run
//! use oncebox::mysql::MysqlStore;
//!
//! # async fn demo() -> oncebox::Result {
//! let store = MysqlStore::connect("mysql://erp@localhost/erp").await?;
//! store.migrate().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What it needs
//!
//! - MariaDB 10.6 or newer, or MySQL 8.0.19 or newer, and there the primary: a replica takes no writes.
//! - A user who may use the tables `oncebox_…` in the database of the URL, and for [`migrate`](MysqlStore::migrate) one that may
//!   create tables and routines in it.
//! - Connections: 10 by default for messages, and up to four beside them, so that purge, status and leases wait for nobody.
//! - TLS, or a user without `caching_sha2_password`: over a connection in the clear that plugin needs RSA, which is left out.
//!
//! # Its limits
//!
//! - Every transaction is READ COMMITTED, whatever the server's default is: the claim relies on it.
//! - A statement that commits by itself (`CREATE`, `ALTER`, `TRUNCATE`, `LOCK TABLES`, …) has no place in a handler. It ends the
//!   transaction: what stood before it is committed, what comes after it is undone, and the error says so.
//! - A lock wait that takes too long (1205) undoes only its statement. A handler that swallows this error commits the rest.
//! - Waits are bounded by the server: `innodb_lock_wait_timeout`, `wait_timeout` and on MariaDB `max_statement_time` go with each
//!   transaction, and [`MysqlStoreBuilder`] sets them. MySQL has no such limit for statements that write: there a server that is
//!   silent for longer counts as away.
//!
//! # Where things are
//!
//! - `store`, `options`, `session`: how it connects. `txn`: how a transaction begins and ends.
//! - `claim`: receipts. `adopted`: receipts in a table of the application. `position`: who may advance, and by how much. `dead`: dead letters. `pause`: who is paused. `outbox`: events.
//! - `purge`: retention. `migrate`, `check`, `status`: for those who look after the database.
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

pub use options::MysqlStoreBuilder;
#[cfg(feature = "sql")]
pub use sql_handler::SqlHandler;
pub use store::MysqlStore;
#[cfg(feature = "testing")]
pub use temporary::TemporaryMysql;
pub use txn::MysqlTxn;

//! The SQLite store of oncebox.
//!
//! One file, one writer. Writes of a process queue up on one connection, in order; several processes may share the file,
//! SQLite's own lock lets them take turns. The file must lie on a local disk: network file systems do not keep SQLite's
//! locks, and neither SQLite nor this crate can tell.
//!
//! The database runs in WAL mode with `synchronous = FULL`: what was committed survives a power cut.

mod check;
mod claim;
mod classify;
mod dead;
mod gate;
mod migrate;
mod outbox;
mod position;
mod purge;
#[cfg(feature = "sql")]
mod sql_handler;
mod status;
mod store;
mod time;
mod txn;
mod writer;

#[cfg(feature = "sql")]
pub use sql_handler::SqlHandler;
pub use store::SqliteStore;
pub use txn::SqliteTxn;

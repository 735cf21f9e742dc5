//! The SQLite store of oncebox: receipts, positions, dead letters and the outbox in the application's own file.
//!
//! ```
//! use oncebox_core::store::Status;
//! use oncebox_sqlite::SqliteStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().display();
//! let store = SqliteStore::connect(&format!("sqlite://{path}/erp.db")).await?;
//! store.migrate().await?;
//! assert_eq!(store.status(1000).await?.receipts_estimate, 0);
//! # Ok(())
//! # }
//! ```
//!
//! # What it needs
//!
//! - A file on a local disk: network file systems do not keep SQLite's locks, and neither SQLite nor this crate can tell.
//! - No server and no library: SQLite is built in.
//!
//! # Its limits
//!
//! - One file, one writer. Writes of a process queue up on one connection, in order; several processes may share the file,
//!   SQLite's own lock lets them take turns. A handler holds that lock for as long as it runs.
//! - Not in memory: each connection would see a database of its own.
//! - The database runs in WAL mode with `synchronous = FULL`: what was committed survives a power cut.
//!
//! # Where things are
//!
//! - `store`, `options`, `writer`: how it connects. `txn`, `gate`: how a transaction begins and ends.
//! - `claim`: receipts. `adopted`: receipts in a table of the application. `position`: who may advance, and by how much. `dead`: dead letters. `pause`: who is paused. `outbox`: events.
//! - `purge`: retention.
//! - `migrate`, `check`, `status`: for those who look after the database.
//! - `classify`: what an error means. `sql_handler`: handlers from the configuration.

mod adopted;
mod audit;
mod check;
mod claim;
mod classify;
mod dead;
mod find;
mod gate;
mod migrate;
mod options;
mod outbox;
mod pause;
mod position;
mod purge;
#[cfg(feature = "sql")]
mod sql_handler;
mod status;
mod store;
#[cfg(feature = "testing")]
mod temporary;
mod time;
mod txn;
mod wording;
mod writer;

pub use options::SqliteStoreBuilder;
#[cfg(feature = "sql")]
pub use sql_handler::SqlHandler;
pub use store::SqliteStore;
#[cfg(feature = "testing")]
pub use temporary::TemporarySqlite;
pub use txn::SqliteTxn;

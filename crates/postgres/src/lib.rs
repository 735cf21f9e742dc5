//! The PostgreSQL store of oncebox: receipts, positions, dead letters and the outbox in the application's own database.
//!
//! ```no_run
//! use oncebox_core::store::Admin;
//! use oncebox_postgres::PgStore;
//!
//! # async fn demo() -> Result<(), oncebox_core::store::StoreError> {
//! let store = PgStore::connect("postgres://erp@localhost/erp").await?;
//! store.migrate().await?;
//! # Ok(())
//! # }
//! ```

mod check;
mod claim;
mod classify;
mod dead;
mod migrate;
mod options;
mod outbox;
mod partitions;
mod position;
mod purge;
mod quote;
mod session;
#[cfg(feature = "sql")]
mod sql_handler;
mod status;
mod store;
mod txn;

pub use options::PgStoreBuilder;
pub use partitions::Partitioned;
#[cfg(feature = "sql")]
pub use sql_handler::SqlHandler;
pub use store::PgStore;
pub use txn::PgTxn;

//! The MongoDB store of oncebox: receipts, positions, dead letters and the outbox in the application's own database.
//!
//! ```no_run
//! use oncebox::mongodb::MongoStore;
//!
//! # async fn demo() -> oncebox::Result {
//! let store = MongoStore::connect("mongodb://localhost/shop?replicaSet=rs0").await?;
//! store.migrate().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What it needs
//!
//! - MongoDB 6.0 or newer, as a replica set: a server that stands alone has no transactions. One member is enough to begin with.
//! - A user with the role `readWrite` on the database of the URL, also for [`migrate`](MongoStore::migrate). Taking receipts over
//!   from a collection for good (`oncebox migrate adopt`) needs `dbAdmin` too.
//! - Connections: 10 by default for messages, and up to eight beside them, so that purge, status and leases wait for nobody.
//!
//! # Its limits
//!
//! - A document ends at 16 MB: an event must fit into one. A dead letter may be larger; it is kept in parts.
//! - A transaction ends after 60 s (`transactionLifetimeLimitSeconds`), whatever a handler does meanwhile.
//! - Two transactions that write the same document do not wait for each other: one of them fails at once and is run again.
//!   A handler is then called once more with the same messages.
//! - An error of an operation ends its transaction on the server. A handler that swallows it commits nothing, and is told.
//!
//! # Where things are
//!
//! - `store`, `options`: how it connects. `tx`: what handlers get. `txn`: how a transaction begins and ends.
//! - `claim`: receipts. `adopted`: receipts in a collection of the application. `position`: who may advance, and by how much. `dead`: dead letters. `pause`: who is paused. `outbox`: events.
//! - `purge`: retention. `migrate`, `check`, `status`: for those who look after the database.
//! - `orphans`: transactions of processes that are gone. `classify`: what an error means. `operations`: handlers from the configuration.

mod adopted;
mod audit;
mod check;
mod claim;
mod classify;
mod counter;
mod dead;
mod find;
mod migrate;
#[cfg(feature = "operations")]
pub mod operations;
mod options;
mod orphans;
mod outbox;
mod pause;
mod position;
mod purge;
mod rerun;
mod status;
mod store;
#[cfg(feature = "testing")]
mod temporary;
mod time;
mod tx;
mod txn;
mod wording;

pub use options::MongoStoreBuilder;
pub use store::MongoStore;
#[cfg(feature = "testing")]
pub use temporary::TemporaryMongo;
pub use tx::{MongoTx, Operation, TxCollection};
pub use txn::MongoTxn;

//! Handlers of oncebox written in SQL: statements with named parameters.
//!
//! A batch of messages takes a single round trip to the server, where a handler in Rust waits for one per statement and
//! message. The daemon reads such handlers from `oncebox.toml`; [`SqlInbox`] gives them to an inbox in Rust:
//!
//! ```
//! use oncebox::Inbox;
//! use oncebox::sql::{SqlInbox, Statement};
//! use oncebox::sqlite::SqliteStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> oncebox::Result {
//! # use sqlx::Connection;
//! # let directory = tempfile::tempdir()?;
//! # let url = format!("sqlite://{}/erp.db", directory.path().display());
//! let store = SqliteStore::connect(&url).await?;
//! store.migrate().await?;
//! # let mut conn = sqlx::SqliteConnection::connect(&url).await?;
//! # sqlx::raw_sql("CREATE TABLE stock (sku TEXT, on_hand INTEGER); CREATE TABLE ledger (message_id TEXT, sku TEXT)")
//! #     .execute(&mut conn).await?;
//!
//! let worker = Inbox::new("stock", store.clone())?
//!     .sql_each([
//!         Statement::new("UPDATE stock SET on_hand = on_hand - (:payload->>'qty') WHERE sku = :payload->>'sku'").rows(1),
//!         Statement::new("INSERT INTO ledger (message_id, sku) VALUES (:id, :payload->>'sku')"),
//!     ])
//!     .await?;
//! // worker.run(source, shutdown).await?;
//!
//! // The database has seen the statements, so a mistake shows up here and not with the first message.
//! let error = Inbox::new("stock", store)?.sql_each(["DELETE FROM stok"]).await.unwrap_err();
//! assert_eq!(error.to_string(), "statement 1: no such table: stok: DELETE FROM stok");
//! # drop(worker);
//! # Ok(())
//! # }
//! ```
//!
//! What a statement can refer to is listed at [`Param`]. A store runs statements in its own way ([`SqlStore`]) and owns what
//! only its database understands.

mod error;
mod handler;
mod inbox;
#[doc(hidden)]
pub mod lexer;
mod param;
mod refusal;
mod rows;
mod sql;
mod statement;
mod store;
#[doc(hidden)]
pub mod suggest;

pub use error::{BadStatement, SqlHandlerError};
pub use handler::{Handler, PayloadKind, Step};
pub use inbox::{Prepared, SqlInbox};
pub use param::Param;
pub use refusal::StatementError;
pub use rows::{RowRule, RowRuleError};
pub use sql::{MESSAGES, Sql};
pub use statement::Statement;
pub use store::SqlStore;

//! Handlers of oncebox written in SQL: statements with named parameters.
//!
//! The daemon reads them from `oncebox.toml`; [`SqlInbox`] gives them to an inbox in Rust. A store runs them in its own way
//! ([`SqlStore`]) and owns what only its database understands.

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

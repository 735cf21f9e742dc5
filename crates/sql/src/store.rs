//! Stores that run SQL.

use std::future::Future;

use oncebox_core::inbox::Apply;
use oncebox_core::store::Store;

use crate::{Handler, PayloadKind, Sql, SqlHandlerError, StatementError};

/// A store that can run handlers written in SQL.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot run handlers written in SQL",
    note = "the stores of PostgreSQL, MySQL and SQLite can, with their feature `sql`"
)]
pub trait SqlStore: Store {
    /// A handler made of statements.
    type Handler: Apply<Self>;

    /// Checks the statements against the database and makes them ready. `payload` says what `:payload` is.
    ///
    /// # Errors
    /// Every statement that the database refuses, or trouble with the database.
    fn prepare(
        &self,
        handler: &Handler,
        payload: PayloadKind,
    ) -> impl Future<Output = Result<Self::Handler, SqlHandlerError>> + Send;

    /// Refuses what this database would silently read in another way than it is meant. Asks nobody, so that a
    /// configuration can be checked without a database.
    ///
    /// # Errors
    /// What is wrong, and where.
    fn check_dialect(sql: &Sql) -> Result<(), StatementError>;
}

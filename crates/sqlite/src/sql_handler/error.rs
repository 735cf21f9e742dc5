//! What can be wrong with a statement: when it is prepared, and when it runs.

use std::error::Error;
use std::fmt;

use oncebox_core::BadStatement;
use oncebox_core::config::Step;

/// What SQLite says about a statement.
pub(super) fn bad_statement(at: usize, step: &Step, error: &sqlx::Error) -> BadStatement {
    let reason =
        error.as_database_error().map_or_else(|| error.to_string(), |error| error.message().to_owned());
    BadStatement { number: at + 1, sql: step.statement.source().to_owned(), reason }
}

/// A statement that failed on a message. Its cause decides who is to blame.
#[derive(Debug)]
pub(super) struct StatementFailed {
    pub(super) number: usize,
    pub(super) cause: sqlx::Error,
}

impl fmt::Display for StatementFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "statement {} failed", self.number)
    }
}

impl Error for StatementFailed {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.cause)
    }
}

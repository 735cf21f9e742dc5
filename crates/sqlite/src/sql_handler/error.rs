//! What can be wrong with a statement when it is prepared.

use oncebox_core::config::Step;
use oncebox_core::sql_handler::BadStatement;

/// What SQLite says about a statement.
pub(super) fn bad_statement(at: usize, step: &Step, error: &sqlx::Error) -> BadStatement {
    let reason =
        error.as_database_error().map_or_else(|| error.to_string(), |error| error.message().to_owned());
    BadStatement { number: at + 1, sql: step.statement.source().to_owned(), reason }
}

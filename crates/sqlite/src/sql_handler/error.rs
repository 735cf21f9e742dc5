//! What can be wrong with a statement when it is prepared.

use oncebox_sql::BadStatement;
use oncebox_sql::Step;

/// What SQLite says about a statement.
pub(super) fn bad_statement(at: usize, step: &Step, error: &sqlx::Error) -> BadStatement {
    let reason =
        error.as_database_error().map_or_else(|| error.to_string(), |error| error.message().to_owned());
    BadStatement { number: at + 1, sql: step.sql.source().to_owned(), reason }
}

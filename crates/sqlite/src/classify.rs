//! Tells errors apart, by SQLite's result code and never by text.

use std::error::Error;

use oncebox_core::store::{ErrorClass, StoreError, StoreResult};
use sqlx::error::DatabaseError;
use sqlx::sqlite::SqliteError;
use sqlx::{AssertSqlSafe, SqliteConnection};

use crate::wording::said;

const ERROR: i32 = 1;
const BUSY: i32 = 5;
const CANTOPEN: i32 = 14;

/// An input/output error that is a lack of memory.
const IOERR_NOMEM: i32 = 10 | 12 << 8;

/// The class of an error that user code returned, looking through its causes.
pub(crate) fn classify(error: &(dyn Error + 'static)) -> ErrorClass {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(class) = own_class(error) {
            return class;
        }
        next = error.source();
    }
    ErrorClass::Failed
}

fn own_class(error: &(dyn Error + 'static)) -> Option<ErrorClass> {
    if let Some(store) = error.downcast_ref::<StoreError>() {
        return Some(store.class);
    }
    if let Some(database) = error.downcast_ref::<SqliteError>() {
        return Some(by_code(code(database)));
    }
    // What is left of sqlx's error when a wrapper such as `anyhow` or `io::Error` hides the error itself.
    if let Some(database) = error.downcast_ref::<Box<dyn DatabaseError>>() {
        return Some(by_code(code(database.as_ref())));
    }
    match error.downcast_ref::<sqlx::Error>()? {
        sqlx::Error::Database(database) => Some(by_code(code(database.as_ref()))),
        sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => Some(ErrorClass::Away),
        sqlx::Error::Io(_) | sqlx::Error::WorkerCrashed | sqlx::Error::BeginFailed => {
            Some(ErrorClass::Transient)
        }
        _ => None,
    }
}

/// The class of a result code in user code.
fn by_code(code: Option<i32>) -> ErrorClass {
    match code {
        Some(IOERR_NOMEM) => ErrorClass::Transient,
        Some(code) => match code & 0xff {
            // Busy, locked, out of memory, interrupted, locking protocol: it was in the way, and passes.
            BUSY | 6 | 7 | 9 | 15 => ErrorClass::Transient,
            // A right is missing, the file is read-only, unreadable, damaged, full, not there, too large for the system,
            // no database, or its schema changes all the time. No message is to blame, and giving them up one by one
            // would hide it.
            3 | 8 | 10 | 11 | 13 | CANTOPEN | 17 | 22 | 23 | 26 => ErrorClass::Environment,
            // The rest counts as an attempt of the message: constraints, types, values that are too large. So does the
            // error without a better code, which may be a missing table as well as a value: see `class_of_statement`.
            _ => ErrorClass::Failed,
        },
        None => ErrorClass::Failed,
    }
}

/// The class of an error in oncebox's own statements. They fit our tables, so an error without a better code says that the
/// tables are not ours, or not of this version.
fn class_of_own(error: &sqlx::Error) -> ErrorClass {
    if is_plain_error(error) { ErrorClass::Environment } else { classify(error) }
}

/// The class of an error of a statement that is not ours. SQLite has one code for a missing table and for a value that a
/// function refuses, but only the former keeps the statement from being prepared, so that is tried again in the same
/// transaction.
pub(crate) async fn class_of_statement(
    conn: &mut SqliteConnection,
    sql: &str,
    error: &sqlx::Error,
) -> ErrorClass {
    if !is_plain_error(error) {
        return classify(error);
    }
    // Not persistent: the driver would find the statement that it prepared when all was well.
    let explain = sqlx::query(AssertSqlSafe(format!("EXPLAIN {sql}"))).persistent(false);
    match explain.execute(conn).await {
        Ok(_) => ErrorClass::Failed,
        Err(error) => class_of_own(&error),
    }
}

/// The result code with its extension, which lies in the bits above the lowest eight.
pub(crate) fn code(error: &dyn DatabaseError) -> Option<i32> {
    error.code()?.parse().ok()
}

fn is(error: &sqlx::Error, primary: i32) -> bool {
    error.as_database_error().and_then(code).is_some_and(|code| code & 0xff == primary)
}

/// Whether another process holds a lock that was not waited for.
pub(crate) fn is_busy(error: &sqlx::Error) -> bool {
    is(error, BUSY)
}

/// Whether it is an error for which SQLite has no better code.
pub(crate) fn is_plain_error(error: &sqlx::Error) -> bool {
    is(error, ERROR)
}

/// Says what the store was doing when an error came.
pub(crate) trait Context<T> {
    /// Wraps the error of a statement of ours, with its class.
    fn context(self, doing: &str) -> StoreResult<T>;

    /// The same where a transaction begins: nothing of a message has run yet, so whatever is in the way of it is in the
    /// way of all. A file that cannot be opened is a database that cannot be reached.
    fn context_of_begin(self, doing: &str) -> StoreResult<T>;

    /// The same for a statement that somebody wrote into the configuration.
    fn context_of_user(self, doing: &str) -> StoreResult<T>;
}

impl<T> Context<T> for sqlx::Result<T> {
    fn context(self, doing: &str) -> StoreResult<T> {
        self.map_err(|error| said(class_of_own(&error), doing, error))
    }

    fn context_of_begin(self, doing: &str) -> StoreResult<T> {
        self.map_err(|error| {
            let class = match class_of_own(&error) {
                ErrorClass::Transient => ErrorClass::Away,
                _ if is(&error, CANTOPEN) => ErrorClass::Away,
                class => class,
            };
            said(class, doing, error)
        })
    }

    fn context_of_user(self, doing: &str) -> StoreResult<T> {
        self.map_err(|error| said(classify(&error), doing, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_told_apart() {
        // BUSY_SNAPSHOT, LOCKED_SHAREDCACHE, NOMEM, INTERRUPT, PROTOCOL, IOERR_NOMEM
        for code in [5, 517, 6, 262, 7, 9, 15, 3082] {
            assert_eq!(by_code(Some(code)), ErrorClass::Transient, "{code}");
        }
        // READONLY_DBMOVED, IOERR_WRITE, CORRUPT_INDEX, CANTOPEN_ISDIR among their plain ones
        for code in [3, 8, 1032, 10, 778, 11, 779, 13, 14, 526, 17, 22, 23, 26] {
            assert_eq!(by_code(Some(code)), ErrorClass::Environment, "{code}");
        }
        // ERROR, TOOBIG, CONSTRAINT with UNIQUE and TRIGGER, MISMATCH, RANGE
        for code in [1, 18, 19, 2067, 1811, 20, 25] {
            assert_eq!(by_code(Some(code)), ErrorClass::Failed, "{code}");
        }
        assert_eq!(by_code(None), ErrorClass::Failed);
    }
}

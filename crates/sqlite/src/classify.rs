//! Tells errors apart, by SQLite's result code and never by text.

use std::error::Error;

use oncebox_core::{ErrorClass, StoreError, StoreResult};
use sqlx::error::DatabaseError;
use sqlx::sqlite::SqliteError;

const BUSY: i32 = 5;

/// Primary result codes that say something about the database, not about the message: busy, locked, out of memory,
/// read-only, interrupted, input/output error, damaged file, disk full, cannot open, locking protocol, not a database.
/// Whoever gets them must wait for an operator rather than give the message up.
const TROUBLE: [i32; 11] = [BUSY, 6, 7, 8, 9, 10, 11, 13, 14, 15, 26];

/// The class of an error, looking through its causes.
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
        return Some(by_code(database));
    }
    // What is left of sqlx's error when a wrapper such as `anyhow` or `io::Error` hides the error itself.
    if let Some(database) = error.downcast_ref::<Box<dyn DatabaseError>>() {
        return Some(by_code(database.as_ref()));
    }
    match error.downcast_ref::<sqlx::Error>()? {
        sqlx::Error::Database(database) => Some(by_code(database.as_ref())),
        sqlx::Error::Io(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed => Some(ErrorClass::Transient),
        _ => None,
    }
}

fn by_code(error: &dyn DatabaseError) -> ErrorClass {
    match primary_code(error) {
        Some(code) if TROUBLE.contains(&code) => ErrorClass::Transient,
        _ => ErrorClass::Failed,
    }
}

/// The result code without its extension, which lies in the bits above the lowest eight.
fn primary_code(error: &dyn DatabaseError) -> Option<i32> {
    error.code()?.parse::<i32>().ok().map(|code| code & 0xff)
}

/// Whether another process holds a lock that was not waited for.
pub(crate) fn is_busy(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(primary_code) == Some(BUSY)
}

/// Says what the store was doing when an error came.
pub(crate) trait Context<T> {
    /// Wraps the error, with its class.
    fn context(self, doing: &str) -> StoreResult<T>;
}

impl<T> Context<T> for sqlx::Result<T> {
    fn context(self, doing: &str) -> StoreResult<T> {
        self.map_err(|error| StoreError::new(classify(&error), doing, error))
    }
}

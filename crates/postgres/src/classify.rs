//! What an error means, told by SQLSTATE and never by text.

use std::error::Error;

use oncebox_core::{ErrorClass, StoreError};
use sqlx::error::DatabaseError;
use sqlx::postgres::PgDatabaseError;

/// Raised by `oncebox_advance` when the position belongs to a newer owner.
pub(crate) const FENCED: &str = "OBX01";
/// Raised by a SQL handler when a statement touched another number of rows than its rule allows.
pub(crate) const ROW_RULE: &str = "OBX02";

/// The class of an error that user code returned, looking through its causes.
pub(crate) fn classify(error: &(dyn Error + 'static)) -> ErrorClass {
    let mut cause = Some(error);
    while let Some(current) = cause {
        if let Some(known) = class_of_known(current) {
            return known;
        }
        cause = current.source();
    }
    ErrorClass::Failed
}

fn class_of_known(error: &(dyn Error + 'static)) -> Option<ErrorClass> {
    if let Some(store) = error.downcast_ref::<StoreError>() {
        return Some(store.class);
    }
    if let Some(driver) = error.downcast_ref::<sqlx::Error>() {
        return Some(class_of_driver(driver));
    }
    // anyhow and friends hide the outer error's type but show its cause.
    if let Some(database) = error.downcast_ref::<PgDatabaseError>() {
        return Some(class_of_state(database.code()));
    }
    error.downcast_ref::<Box<dyn DatabaseError>>().map(|database| class_of_database(&**database))
}

/// The class of an error of the driver.
pub(crate) fn class_of_driver(error: &sqlx::Error) -> ErrorClass {
    use sqlx::Error as E;
    match error {
        E::Database(database) => class_of_database(&**database),
        // The connection is gone or was never there. What it had done is undone, or was committed and its receipts
        // say so: both are found out by running the transaction again.
        E::Io(_)
        | E::Tls(_)
        | E::Protocol(_)
        | E::PoolTimedOut
        | E::PoolClosed
        | E::WorkerCrashed
        | E::BeginFailed => ErrorClass::Transient,
        // A type, a column or an argument does not fit: the handler or its message.
        _ => ErrorClass::Failed,
    }
}

fn class_of_database(database: &dyn DatabaseError) -> ErrorClass {
    database.code().map_or(ErrorClass::Failed, |state| class_of_state(&state))
}

/// The class of an error with this SQLSTATE in user code.
pub(crate) fn class_of_state(state: &str) -> ErrorClass {
    match state {
        FENCED => ErrorClass::Fenced,
        // Another transaction was in the way, or the wait for it was too long; a read-only server: a standby after a
        // failover, or a primary that its operator has stopped.
        "55P03" | "25006" => ErrorClass::Transient,
        // The server is going down, coming up, or was told to drop this connection.
        "57P01" | "57P02" | "57P03" | "57P04" | "57P05" => ErrorClass::Transient,
        // Damaged data. No message is to blame, and giving them up one by one would hide it.
        "XX001" | "XX002" => ErrorClass::Transient,
        // 40 serialization and deadlock, 08 connection, 53 disk, memory or connections used up, 58 the operating system.
        _ if matches!(state.get(..2), Some("40" | "08" | "53" | "58")) => ErrorClass::Transient,
        // The rest counts as an attempt of the message. That includes three that look like trouble of the database:
        // - 57014 (statement_timeout) and 25P03 (idle_in_transaction_session_timeout): a message that makes its
        //   statement or its handler take too long would otherwise be tried for ever and block its partition.
        // - XX000 (internal error): usually one statement with one input; a passing cause survives the retries.
        _ => ErrorClass::Failed,
    }
}

/// The class of an error in oncebox's own statements. No message is to blame for a missing table or privilege, so
/// everything is worth another try, except what the values of a message can cause.
pub(crate) fn class_of_own(error: &sqlx::Error) -> ErrorClass {
    let state = error.as_database_error().and_then(DatabaseError::code);
    match state.as_deref() {
        Some(FENCED) => ErrorClass::Fenced,
        // 22: a text that the database's encoding cannot hold. 54: a value too large.
        Some(state) if matches!(state.get(..2), Some("22" | "54")) => ErrorClass::Failed,
        _ => ErrorClass::Transient,
    }
}

/// Turns an error of oncebox's own statements into a [`StoreError`].
pub(crate) fn own(context: &'static str) -> impl Fn(sqlx::Error) -> StoreError {
    move |error| {
        let state = error.as_database_error().and_then(DatabaseError::code);
        // A prepared statement that is not there, or is there already, was prepared on another server connection.
        let context = match state.as_deref() {
            Some("26000" | "42P05") => format!(
                "{context} (a pooler in transaction mode seems to stand in between: turn on `pooler`, or add \
                 statement-cache-capacity=0 to the URL)"
            ),
            _ => context.to_owned(),
        };
        StoreError::new(class_of_own(&error), context, error)
    }
}

/// The same where tables are made: somebody waits for the answer, and a missing privilege will not come by waiting.
pub(crate) fn ddl(context: &'static str) -> impl Fn(sqlx::Error) -> StoreError {
    move |error| StoreError::new(class_of_driver(&error), context, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn states_are_told_apart() {
        for state in
            ["40001", "40P01", "55P03", "08006", "57P01", "53300", "53100", "25006", "58030", "XX001"]
        {
            assert_eq!(class_of_state(state), ErrorClass::Transient, "{state}");
        }
        for state in ["23505", "22P02", "42P01", "57014", "25P02", "25P03", "P0001", "XX000", ROW_RULE, ""] {
            assert_eq!(class_of_state(state), ErrorClass::Failed, "{state}");
        }
        assert_eq!(class_of_state(FENCED), ErrorClass::Fenced);
    }

    #[test]
    fn a_driver_error_is_found_behind_its_wrappers() {
        let wrapped: oncebox_core::BoxError =
            Err::<(), _>(sqlx::Error::PoolTimedOut).context("deducting").unwrap_err().into();
        assert_eq!(classify(&*wrapped), ErrorClass::Transient);
        let store = StoreError::new(ErrorClass::Fenced, "x", "y");
        assert_eq!(classify(&store), ErrorClass::Fenced);
        assert_eq!(classify(&std::fmt::Error), ErrorClass::Failed);
    }
}

//! What an error means, told by SQLSTATE and never by text.
//!
//! Three questions are asked of the same codes: what user code means by an error, what one of our own statements means by it
//! beside no handler, and what it means while a connection is made. What can only be the statement or the database is
//! [`ErrorClass::Environment`]: no message is given up for it.

use std::error::Error;

use oncebox_core::store::{ErrorClass, StoreError, StoreResult};
use sqlx::error::DatabaseError;
use sqlx::postgres::PgDatabaseError;

use crate::wording::said;

/// Raised by `oncebox_advance` when the position belongs to a newer owner.
pub(crate) const FENCED: &str = "OBX01";
/// Raised by a SQL handler when a statement touched another number of rows than its rule allows.
#[cfg(feature = "sql")]
pub(crate) const ROW_RULE: &str = "OBX02";
/// A right is missing.
pub(crate) const DENIED: &str = "42501";
/// A statement in a transaction that an earlier error has aborted.
const ABORTED: &str = "25P02";

/// Functions of the server that report an error of the environment's kind for what a message says: a row that a policy
/// refuses, or a `RAISE` in the application's own function.
const RAISED_FOR_A_MESSAGE: [&str; 2] = ["ExecWithCheckOptions", "exec_stmt_raise"];

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
        return Some(class_of_raised(database.code(), database.routine()));
    }
    error.downcast_ref::<Box<dyn DatabaseError>>().map(|database| class_of_database(&**database))
}

/// The class of an error of the driver, in user code or where user code may be the reason.
pub(crate) fn class_of_driver(error: &sqlx::Error) -> ErrorClass {
    use sqlx::Error as E;
    match error {
        E::Database(database) => class_of_database(&**database),
        E::PoolTimedOut | E::PoolClosed => ErrorClass::Away,
        // The connection broke in the middle, perhaps by what a message made the server do; or the driver refuses what it
        // was given, such as more than 65,535 values. What was done is undone, or was committed and its receipts say so:
        // both are found out by running the transaction again, with fewer messages.
        E::Io(_) | E::Tls(_) | E::Protocol(_) | E::WorkerCrashed | E::BeginFailed => ErrorClass::Transient,
        // A type that the statement names is not there.
        E::TypeNotFound { .. } => ErrorClass::Environment,
        // A column or an argument does not fit: the handler or its message.
        _ => ErrorClass::Failed,
    }
}

fn class_of_database(database: &dyn DatabaseError) -> ErrorClass {
    let routine = database.try_downcast_ref::<PgDatabaseError>().and_then(PgDatabaseError::routine);
    database.code().map_or(ErrorClass::Failed, |state| class_of_raised(&state, routine))
}

fn class_of_raised(state: &str, routine: Option<&str>) -> ErrorClass {
    match class_of_state(state) {
        ErrorClass::Environment if routine.is_some_and(|by| RAISED_FOR_A_MESSAGE.contains(&by)) => {
            ErrorClass::Failed
        }
        class => class,
    }
}

/// The class of an error with this SQLSTATE in user code.
pub(crate) fn class_of_state(state: &str) -> ErrorClass {
    match state {
        FENCED => ErrorClass::Fenced,
        // The server is going down, coming up, or was told to drop this connection or database; it is read-only (a standby
        // after a failover, or a primary that its operator has stopped), or has no connection left. And a server that this
        // one reads from cannot be reached.
        "57P01" | "57P02" | "57P03" | "57P04" | "57P05" | "25006" | "53300" | "08001" | "08004" => {
            ErrorClass::Away
        }
        // Names that are not there: a table, a column, a parameter, a function or operator of these types, a type, a schema,
        // a database. Names that became ambiguous with a new column or function.
        "42P01" | "42703" | "42P02" | "42883" | "42704" | "3F000" | "3D000" | "42702" | "42725" => {
            ErrorClass::Environment
        }
        // A right is missing, or the role may not log in.
        "42501" | "28000" | "28P01" => ErrorClass::Environment,
        // What the statement says does not fit the tables as they are: types, a table that is a view now, a generated
        // column, a unique index that ON CONFLICT relied on, something that this server or this kind of table cannot do.
        "42804" | "42846" | "42P18" | "42809" | "428C9" | "42P10" | "0A000" => ErrorClass::Environment,
        // A prepared statement that is not there, or is there already: a pooler stands in between.
        "26000" | "42P05" => ErrorClass::Environment,
        // The disk is full, or the data are damaged. Giving messages up one by one would hide it.
        "53100" | "XX001" | "XX002" => ErrorClass::Environment,
        // Another transaction was in the way, or the wait for it was too long; something is in use; an old snapshot.
        "55P03" | "55006" | "72000" => ErrorClass::Transient,
        _ => match state.get(..2) {
            // The operating system failed the server.
            Some("58") => ErrorClass::Environment,
            // 40 serialization and deadlock, 08 connection, 53 memory and other limits.
            Some("40" | "08" | "53") => ErrorClass::Transient,
            // The rest counts as an attempt of the message. That includes some that look like trouble of the database:
            // - 57014 (statement_timeout), 25P03 and 25P04 (a transaction that is idle or open for too long): a message
            //   that makes its statement or its handler take too long would otherwise block its partition forever.
            // - XX000 (internal error): usually one statement with one input; a passing cause survives the retries.
            // - 42601 (syntax error): texts that messages carry are also parsed, as a search query or a path.
            // - 23514 for a row without a partition: the message may have a wrong date.
            _ => ErrorClass::Failed,
        },
    }
}

/// The class of an error in oncebox's own statements, where no handler has run in the transaction: a message is to blame only
/// for what its values can cause.
pub(crate) fn class_of_own(error: &sqlx::Error) -> ErrorClass {
    let state = error.as_database_error().and_then(DatabaseError::code);
    match state.as_deref() {
        // 22: a text that the database's encoding cannot hold. 54: a value too large.
        Some(state) if matches!(state.get(..2), Some("22" | "54")) => ErrorClass::Failed,
        _ => match class_of_driver(error) {
            ErrorClass::Failed => ErrorClass::Transient,
            class => class,
        },
    }
}

/// The class of an error while connecting or beginning: whatever it is, no message has a part in it.
fn class_of_begin(error: &sqlx::Error) -> ErrorClass {
    match class_of_driver(error) {
        ErrorClass::Environment => ErrorClass::Environment,
        _ => ErrorClass::Away,
    }
}

/// Says what the store was doing when an error came.
pub(crate) trait Context<T> {
    /// Wraps the error of a statement of ours, with its class.
    fn context(self, doing: &str) -> StoreResult<T>;

    /// The same where a connection is made or a transaction begins: nothing of a message has run yet.
    fn context_of_begin(self, doing: &str) -> StoreResult<T>;

    /// The same where somebody else's statements may be the reason: those of a handler in the same transaction, by an error
    /// that it swallowed, by a deferred constraint, by a trigger of the application on one of our tables; or those that
    /// somebody wrote into the configuration.
    fn context_of_user(self, doing: &str) -> StoreResult<T>;

    /// The same where such a transaction commits. If the answer is missing, nobody knows whether it did.
    fn context_of_commit(self, doing: &str) -> StoreResult<T>;

    /// The same where tables are made: somebody waits for the answer, and a missing privilege will not come by waiting.
    fn context_of_ddl(self, doing: &str) -> StoreResult<T>;
}

impl<T> Context<T> for sqlx::Result<T> {
    fn context(self, doing: &str) -> StoreResult<T> {
        self.map_err(|error| of_class(class_of_own(&error), doing, error))
    }

    fn context_of_begin(self, doing: &str) -> StoreResult<T> {
        self.map_err(|error| of_class(class_of_begin(&error), doing, error))
    }

    fn context_of_user(self, doing: &str) -> StoreResult<T> {
        self.map_err(|error| of_class(class_of_driver(&error), doing, error))
    }

    fn context_of_commit(self, doing: &str) -> StoreResult<T> {
        self.map_err(|error| {
            let class = if is_outcome_unknown(&error) { ErrorClass::Away } else { class_of_driver(&error) };
            of_class(class, doing, error)
        })
    }

    fn context_of_ddl(self, doing: &str) -> StoreResult<T> {
        self.map_err(|error| {
            let class = match class_of_driver(&error) {
                ErrorClass::Environment => ErrorClass::Failed,
                class => class,
            };
            let denied = error.as_database_error().and_then(DatabaseError::code).as_deref() == Some(DENIED);
            let advice = if denied {
                " (the role may not make them: GRANT CREATE, USAGE ON SCHEMA … TO …, or let somebody who may run what `oncebox migrate \
                 sql` prints)"
            } else {
                ""
            };
            said(class, format!("{doing}{advice}"), error)
        })
    }
}

/// Whether the connection broke, here or behind a pooler, so that the answer to a COMMIT is missing.
fn is_outcome_unknown(error: &sqlx::Error) -> bool {
    use sqlx::Error as E;
    match error {
        E::Io(_) | E::Tls(_) | E::Protocol(_) | E::WorkerCrashed => true,
        E::Database(database) => {
            database.code().is_some_and(|state| state.starts_with("08") || state == "40003")
        }
        _ => false,
    }
}

fn of_class(class: ErrorClass, doing: &str, error: sqlx::Error) -> StoreError {
    let doing = with_advice(doing, &error);
    said(class, doing, error)
}

fn with_advice(doing: &str, error: &sqlx::Error) -> String {
    let state = error.as_database_error().and_then(DatabaseError::code);
    match state.as_deref() {
        Some("26000" | "42P05") => format!(
            "{doing} (a pooler in transaction mode seems to stand in between: turn on `pooler`, or add \
             statement-cache-capacity=0 to the URL)"
        ),
        Some(DENIED) => format!(
            "{doing} (the role lacks a right: GRANT USAGE ON SCHEMA … TO …; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN \
             SCHEMA … TO …; GRANT USAGE ON ALL SEQUENCES IN SCHEMA … TO …)"
        ),
        Some(ABORTED) => format!(
            "{doing} (the handler has swallowed an error of an earlier statement, and PostgreSQL undoes the whole \
             transaction then: return the error, or run that statement in a savepoint, by `begin` on the connection)"
        ),
        _ => doing.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AWAY: [&str; 9] = ["57P01", "57P02", "57P03", "57P04", "57P05", "25006", "53300", "08001", "08004"];
    const TRANSIENT: [&str; 9] =
        ["40001", "40P01", "40003", "55P03", "55006", "53200", "53400", "08006", "08P01"];
    const ENVIRONMENT: [&str; 28] = [
        "42P01", "42703", "42P02", "42883", "42704", "3F000", "3D000", "42702", "42725", "42501", "28000",
        "28P01", "42804", "42846", "42P18", "42809", "428C9", "42P10", "0A000", "26000", "42P05", "53100",
        "58000", "58030", "58P01", "XX001", "XX002", "58P02",
    ];
    const FAILED: [&str; 18] = [
        "23505", "23503", "23514", "22P02", "22001", "54000", "42601", "57014", "25P02", "25P03", "25P04",
        "P0001", "P0002", "XX000", "42P07", "55000", ROW_RULE, "",
    ];

    #[test]
    fn states_are_told_apart() {
        let tables: [(&[&str], ErrorClass); 5] = [
            (&AWAY, ErrorClass::Away),
            (&TRANSIENT, ErrorClass::Transient),
            (&ENVIRONMENT, ErrorClass::Environment),
            (&FAILED, ErrorClass::Failed),
            (&[FENCED], ErrorClass::Fenced),
        ];
        for (states, class) in tables {
            for state in states {
                assert_eq!(class_of_state(state), class, "{state}");
            }
        }
    }

    #[test]
    fn what_a_message_raises_is_not_the_environment() {
        assert_eq!(class_of_raised("42501", Some("aclcheck_error")), ErrorClass::Environment);
        assert_eq!(class_of_raised("42501", Some("ExecWithCheckOptions")), ErrorClass::Failed);
        assert_eq!(class_of_raised("42704", Some("exec_stmt_raise")), ErrorClass::Failed);
        assert_eq!(class_of_raised("40001", Some("exec_stmt_raise")), ErrorClass::Transient);
    }

    #[test]
    fn the_same_error_means_another_thing_in_another_phase() {
        let broken = || sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into());
        assert_eq!(class_of_begin(&broken()), ErrorClass::Away);
        assert_eq!(class_of_own(&broken()), ErrorClass::Transient);
        assert_eq!(class_of_driver(&broken()), ErrorClass::Transient);
        let protocol = sqlx::Error::Protocol("too many values".to_owned());
        assert_eq!(class_of_driver(&protocol), ErrorClass::Transient);
        assert_eq!(class_of_own(&sqlx::Error::PoolTimedOut), ErrorClass::Away);
        assert_eq!(class_of_own(&sqlx::Error::RowNotFound), ErrorClass::Transient);
        assert_eq!(class_of_driver(&sqlx::Error::RowNotFound), ErrorClass::Failed);
    }

    #[test]
    fn a_driver_error_is_found_behind_its_wrappers() {
        let wrapped: oncebox_core::error::BoxError =
            anyhow::Context::context(Err::<(), _>(sqlx::Error::PoolTimedOut), "deducting")
                .unwrap_err()
                .into();
        assert_eq!(classify(&*wrapped), ErrorClass::Away);
        let store = StoreError::new(ErrorClass::Fenced, "x", "y");
        assert_eq!(classify(&store), ErrorClass::Fenced);
        assert_eq!(classify(&std::fmt::Error), ErrorClass::Failed);
    }
}

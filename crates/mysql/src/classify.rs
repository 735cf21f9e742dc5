//! What an error means, told by the server's number and never by text.
//!
//! Three questions are asked of the same numbers: what user code means by an error, what one of our own statements means by it
//! beside no handler, and what it means while a connection is made. What can only be the statement or the database is
//! [`ErrorClass::Environment`]: no message is given up for it.

use std::error::Error;

use oncebox_core::store::{ErrorClass, StoreError, StoreResult};
use sqlx::error::DatabaseError;
use sqlx::mysql::MySqlDatabaseError;

use crate::wording::said;

/// Raised by a SQL handler when a statement touched another number of rows than its rule allows.
#[cfg(feature = "sql")]
pub(crate) const ROW_RULE: u16 = 31001;
/// A subquery with two rows where one is allowed: how the commit says that the position belongs to a newer owner. See
/// [`crate::position::advance`].
const FENCED: u16 = 1242;
/// The connection is gone after it.
pub(crate) const PACKET_TOO_LARGE: u16 = 1153;
/// MySQL's last word before it closes a connection that nobody has used for a while. MariaDB says nothing.
const IDLE_FOR_TOO_LONG: u16 = 4031;
/// The user may not use the database.
const DENIED_DATABASE: u16 = 1044;
/// There is no such savepoint, or no such routine.
pub(crate) const DOES_NOT_EXIST: u16 = 1305;

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
    if let Some(database) = error.downcast_ref::<MySqlDatabaseError>() {
        return Some(class_of_number(database.number()));
    }
    error.downcast_ref::<Box<dyn DatabaseError>>().map(|database| class_of_database(&**database))
}

/// The class of an error of the driver, in user code or where user code may be the reason.
pub(crate) fn class_of_driver(error: &sqlx::Error) -> ErrorClass {
    use sqlx::Error as E;
    match error {
        E::Database(database) => class_of_database(&**database),
        E::PoolTimedOut | E::PoolClosed => ErrorClass::Away,
        // The connection broke in the middle, perhaps by what a message made the server do, or because a packet was too large
        // for it. What was done is undone, or was committed and its receipts say so: both are found out by running the
        // transaction again, with fewer messages.
        E::Io(_) | E::Tls(_) | E::Protocol(_) | E::WorkerCrashed | E::BeginFailed => ErrorClass::Transient,
        // A column or an argument does not fit: the handler or its message.
        _ => ErrorClass::Failed,
    }
}

fn class_of_database(database: &dyn DatabaseError) -> ErrorClass {
    database
        .try_downcast_ref::<MySqlDatabaseError>()
        .map_or(ErrorClass::Failed, |error| class_of_number(error.number()))
}

pub(crate) fn number_of(error: &sqlx::Error) -> Option<u16> {
    Some(error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>()?.number())
}

/// The class of an error with this number in user code.
pub(crate) fn class_of_number(number: u16) -> ErrorClass {
    match number {
        // The server is going down, has no connection left, or was told to end this one.
        1040 | 1053 | 1129 | 1203 | 1226 | 1927 | 3032 => ErrorClass::Away,
        // It is read-only: a primary that was demoted, or that its operator has stopped.
        1290 | 1792 | 1836 => ErrorClass::Away,
        // A node that is not part of its cluster (Galera, group replication).
        1047 | 3168 => ErrorClass::Away,
        // Names that are not there: a database, a table, a column, a routine, a key. A name that became ambiguous.
        1049 | 1051 | 1146 | 1054 | DOES_NOT_EXIST | 1176 | 1052 | 1356 | 1449 => ErrorClass::Environment,
        // A right is missing, or the user may not log in.
        1044 | 1045 | 1095 | 1130 | 1142 | 1143 | 1227 | 1370 | 1419 | 1698 | 3118 => ErrorClass::Environment,
        // What the statement says does not fit the tables as they are: the number of columns, a column that needs a value, a
        // generated column, a view, collations, arguments of a routine, something that this server cannot do.
        1136 | 1364 | 1471 | 1288 | 1348 | 1906 | 3105 | 1267 | 1270 | 1271 | 1318 | 1235 | 1289 => {
            ErrorClass::Environment
        }
        // The binary log cannot hold what READ COMMITTED writes (`binlog_format = STATEMENT`).
        1665 => ErrorClass::Environment,
        // Prepared statements that are not there or are too many: a proxy stands in between, or many clients.
        1243 | 1461 => ErrorClass::Environment,
        // The disk or a tablespace is full, or the data are damaged. Giving messages up one by one would hide it.
        3 | 5 | 23 | 28 | 1014 | 1016 | 1021 | 1026 | 1030 | 1034 | 1035 | 1036 | 1114 | 1194 | 1195
        | 1712 | 1812 | 1814 | 1874 | 1877 | 1932 => ErrorClass::Environment,
        // Another transaction was in the way, or the wait for it was too long. The first ends the transaction, the second only
        // its statement: for us both end the transaction.
        1213 | 1205 => ErrorClass::Transient,
        // The same in XA, with NOWAIT, with MariaDB's snapshots, in group replication, in Galera, in TiDB.
        1614 | 3572 | 1020 | 3100 | 3101 | 1180 | 8022 | 8028 | 9001..=9007 => ErrorClass::Transient,
        // Locks or memory have run out.
        1037 | 1038 | 1041 | 1206 => ErrorClass::Transient,
        // A packet that is too large goes with fewer messages; the connection is gone. Other trouble of the connection.
        PACKET_TOO_LARGE | 1152 | 1154..=1161 | 1184 | IDLE_FOR_TOO_LONG => ErrorClass::Transient,
        // A statement was killed, or must be prepared anew; a table was changed meanwhile.
        1317 | 1412 | 1615 => ErrorClass::Transient,
        // The rest counts as an attempt of the message: constraints, values that do not fit, SIGNAL. That includes some that
        // look like trouble of the database:
        // - 1969, 3024 (a statement took too long): a message that makes its statement take too long would otherwise block
        //   its partition forever.
        // - 1064 (syntax error): texts that messages carry are also parsed, as a search query or a path.
        _ => ErrorClass::Failed,
    }
}

/// The class of an error in oncebox's own statements, where no handler has run in the transaction: a message is to blame only
/// for what its values can cause.
pub(crate) fn class_of_own(error: &sqlx::Error) -> ErrorClass {
    match number_of(error) {
        // A value too long, or a text that is none.
        Some(1406 | 1366 | 1300 | 3854) => ErrorClass::Failed,
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

    /// The same where a transaction begins with its receipts: a connection that breaks is nobody's fault, and a message is to
    /// blame only for what its id can cause.
    fn context_of_claim(self, doing: &str) -> StoreResult<T>;

    /// The same where somebody else's statements may be the reason: those of a handler in the same transaction, by an error
    /// that it swallowed, by a trigger of the application on one of our tables; or those that somebody wrote into the
    /// configuration.
    fn context_of_user(self, doing: &str) -> StoreResult<T>;

    /// The same for a statement that compares values of messages with columns of the application, whose character sets may lack
    /// what a message says.
    fn context_of_values(self, doing: &str) -> StoreResult<T>;

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

    fn context_of_claim(self, doing: &str) -> StoreResult<T> {
        self.map_err(|error| {
            let class = if is_broken(&error) { ErrorClass::Away } else { class_of_own(&error) };
            of_class(class, doing, error)
        })
    }

    fn context_of_user(self, doing: &str) -> StoreResult<T> {
        self.map_err(|error| of_class(class_of_driver(&error), doing, error))
    }

    fn context_of_values(self, doing: &str) -> StoreResult<T> {
        self.map_err(|error| {
            let class = match number_of(&error) {
                Some(1267 | 1270 | 1271 | 3854) => ErrorClass::Failed,
                _ => class_of_driver(&error),
            };
            of_class(class, doing, error)
        })
    }

    fn context_of_commit(self, doing: &str) -> StoreResult<T> {
        self.map_err(|error| match number_of(&error) {
            Some(FENCED) => StoreError::fenced(doing),
            Some(DOES_NOT_EXIST) => StoreError::new(
                ErrorClass::Failed,
                format!(
                    "{doing} (the handler has ended the transaction that oncebox began, by ROLLBACK or because it has \
                     swallowed a deadlock: nothing is committed. Return errors, and use a savepoint: `begin` on the connection)"
                ),
                error,
            ),
            _ if is_broken(&error) => of_class(ErrorClass::Away, doing, error),
            _ => of_class(class_of_driver(&error), doing, error),
        })
    }

    fn context_of_ddl(self, doing: &str) -> StoreResult<T> {
        self.map_err(|error| {
            let class = match class_of_driver(&error) {
                ErrorClass::Environment => ErrorClass::Failed,
                class => class,
            };
            let denied = matches!(number_of(&error), Some(DENIED_DATABASE | 1142 | 1143 | 1227 | 1370 | 1419));
            let advice = if denied {
                " (the user may not make them: GRANT CREATE, ALTER, INDEX, CREATE ROUTINE, ALTER ROUTINE ON `…`.* TO …, or let \
                 somebody who may run what `oncebox migrate sql` prints)"
            } else {
                ""
            };
            said(class, format!("{doing}{advice}"), error)
        })
    }
}

/// The handler has committed the transaction of a batch.
pub(crate) fn torn(doing: &str) -> StoreError {
    let why = "the handler has committed the transaction that oncebox began, with the receipts of the batch: by COMMIT, or by a \
               statement that commits by itself, such as CREATE, ALTER or TRUNCATE, perhaps in a procedure that it calls. \
               What stood before is committed, and what came after is undone";
    StoreError::new(ErrorClass::Torn, doing, why)
}

/// Whether the connection broke, here or behind a proxy, so that an answer is missing.
fn is_broken(error: &sqlx::Error) -> bool {
    use sqlx::Error as E;
    matches!(error, E::Io(_) | E::Tls(_) | E::Protocol(_) | E::WorkerCrashed)
        || matches!(number_of(error), Some(1053 | 1158..=1161 | 1184 | 1927 | IDLE_FOR_TOO_LONG))
}

fn of_class(class: ErrorClass, doing: &str, error: sqlx::Error) -> StoreError {
    let doing = with_advice(doing, &error);
    said(class, doing, error)
}

fn with_advice(doing: &str, error: &sqlx::Error) -> String {
    match number_of(error) {
        Some(DENIED_DATABASE | 1142 | 1143) => {
            format!(
                "{doing} (the user lacks a right: GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE ON `…`.* TO …)"
            )
        }
        Some(1243) => {
            format!(
                "{doing} (a proxy that shares connections seems to stand in between: turn that off for this user)"
            )
        }
        Some(PACKET_TOO_LARGE) => {
            format!("{doing} (raise max_allowed_packet of the server, or make batches smaller)")
        }
        _ => doing.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AWAY: [u16; 8] = [1040, 1053, 1203, 1290, 1792, 1836, 1047, 1927];
    const TRANSIENT: [u16; 10] = [1213, 1205, 1020, 1153, 1158, 1317, 1206, 3572, 4031, 9007];
    const ENVIRONMENT: [u16; 16] =
        [1146, 1054, 1049, 1305, 1044, 1045, 1142, 1370, 1136, 1364, 1267, 1235, 1243, 1021, 1114, 1030];
    const FAILED: [u16; 15] =
        [1062, 1048, 1451, 1452, 1264, 1366, 1406, 1292, 1644, 3819, 4025, 1969, 3024, 1064, 1242];

    #[test]
    fn numbers_are_told_apart() {
        let tables: [(&[u16], ErrorClass); 4] = [
            (&AWAY, ErrorClass::Away),
            (&TRANSIENT, ErrorClass::Transient),
            (&ENVIRONMENT, ErrorClass::Environment),
            (&FAILED, ErrorClass::Failed),
        ];
        for (numbers, class) in tables {
            for number in numbers {
                assert_eq!(class_of_number(*number), class, "{number}");
            }
        }
    }

    #[test]
    fn the_same_error_means_another_thing_in_another_phase() {
        let broken = || sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into());
        let class = |result: StoreResult<()>| result.unwrap_err().class;
        assert_eq!(class(Err(broken()).context_of_begin("x")), ErrorClass::Away);
        assert_eq!(class(Err(broken()).context_of_claim("x")), ErrorClass::Away);
        assert_eq!(class(Err(broken()).context_of_commit("x")), ErrorClass::Away);
        assert_eq!(class(Err(broken()).context("x")), ErrorClass::Transient);
        assert_eq!(class(Err(broken()).context_of_user("x")), ErrorClass::Transient);
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

//! What an error means, told by the server's code and never by text.
//!
//! Three questions are asked of the same codes: what user code means by an error, what one of our own operations means by it
//! beside no handler, and what it means while a transaction begins. What can only be the operation or the database is
//! [`ErrorClass::Environment`]: no message is given up for it.

use std::error::Error as StdError;
use std::fmt;

use mongodb::error::{
    Error, ErrorKind, Result, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT, WriteFailure,
};
use oncebox_core::store::{ErrorClass, StoreError, StoreResult};

use crate::wording::store_error;

/// Something that this server cannot do: it stands alone, and is asked for a transaction.
pub(crate) const ILLEGAL_OPERATION: i32 = 20;
/// The user lacks a right.
const UNAUTHORIZED: i32 = 13;
/// A document with this key is there already. In a transaction it is the end of it.
pub(crate) const DUPLICATE_KEY: i32 = 11000;
/// Another transaction has written the document, and is open or has committed since we began.
pub(crate) const WRITE_CONFLICT: i32 = 112;
/// The collection of this name is not the one that the command means.
pub(crate) const OTHER_COLLECTION: i32 = 361;
/// The server does not know the transaction: it was ended by an error before, took too long, or its primary is gone.
pub(crate) const NO_SUCH_TRANSACTION: i32 = 251;

/// The class of an error that user code returned, looking through its causes.
pub(crate) fn classify(error: &(dyn StdError + 'static)) -> ErrorClass {
    let mut cause = Some(error);
    while let Some(current) = cause {
        if let Some(store) = current.downcast_ref::<StoreError>() {
            return store.class;
        }
        if let Some(driver) = current.downcast_ref::<Error>() {
            return class_of_driver(driver);
        }
        cause = current.source();
    }
    ErrorClass::Failed
}

/// The code of the server, wherever the driver has put it.
pub(crate) fn code_of(error: &Error) -> Option<i32> {
    match error.kind.as_ref() {
        ErrorKind::Command(command) => Some(command.code),
        ErrorKind::Write(WriteFailure::WriteError(write)) => Some(write.code),
        ErrorKind::Write(WriteFailure::WriteConcernError(concern)) => Some(concern.code),
        ErrorKind::InsertMany(many) => many
            .write_errors
            .as_ref()
            .and_then(|errors| errors.first().map(|error| error.code))
            .or_else(|| many.write_concern_error.as_ref().map(|concern| concern.code)),
        _ => None,
    }
}

/// The class of an error of the driver, in user code or where user code may be the reason.
pub(crate) fn class_of_driver(error: &Error) -> ErrorClass {
    if let Some(code) = code_of(error) {
        return match class_of_code(code) {
            // The server says that the same may pass: codes that nobody has heard of yet.
            ErrorClass::Failed if error.contains_label(TRANSIENT_TRANSACTION_ERROR) => ErrorClass::Transient,
            class => class,
        };
    }
    match error.kind.as_ref() {
        ErrorKind::ServerSelection { .. } | ErrorKind::DnsResolve { .. } | ErrorKind::Shutdown => {
            ErrorClass::Away
        }
        ErrorKind::Authentication { .. } | ErrorKind::InvalidTlsConfig { .. } => ErrorClass::Environment,
        ErrorKind::SessionsNotSupported | ErrorKind::IncompatibleServer { .. } => ErrorClass::Environment,
        // The connection broke in the middle, perhaps by what a message made the server do. What was done is undone, or was
        // committed and its receipts say so: both are found out by running the transaction again, with fewer messages.
        ErrorKind::Io(_) | ErrorKind::ConnectionPoolCleared { .. } | ErrorKind::InvalidResponse { .. } => {
            ErrorClass::Transient
        }
        // An operation on a transaction that is over.
        ErrorKind::Transaction { .. } => ErrorClass::Transient,
        // A value or an argument does not fit: the handler or its message.
        _ => ErrorClass::Failed,
    }
}

/// The class of an error with this code in user code.
pub(crate) fn class_of_code(code: i32) -> ErrorClass {
    match code {
        // The server cannot be reached, is going down, or is not the primary any more.
        6 | 7 | 89 | 91 | 189 | 9001 | 10058 | 10107 | 11600 | 11602 | 13388 | 13435 | 13436 => {
            ErrorClass::Away
        }
        // Not enough members confirm what is written.
        64 | 100 | 202 | 262 => ErrorClass::Away,
        // Another transaction was in the way, or the transaction is over: by an error that was swallowed, by its lifetime,
        // by a new primary. Counts as an attempt of a message that is alone.
        24 | WRITE_CONFLICT | 117 | 225 | 239 | 244 | 246 | NO_SUCH_TRANSACTION | 256 | 290 => {
            ErrorClass::Transient
        }
        // Something grew larger than the server takes, or memory has run out: it may go with fewer messages.
        10334 | 17280 | 17419 | 17420 | 146 | 257 | 292 | 365 | 16945 => ErrorClass::Transient,
        // An operation was killed, or its cursor is gone.
        43 | 237 | 11601 => ErrorClass::Transient,
        // A right is missing, or the user may not log in.
        11 | 13 | 18 | 31 | 33 | 334 => ErrorClass::Environment,
        // Names that are not there, or mean something else now: a collection, a command, a stage; a view; something this server cannot do in a transaction,
        // or a server that stands alone.
        ILLEGAL_OPERATION | 26 | 59 | 73 | 115 | 166 | 167 | 235 | 263 | 40324 | 40415 | 72 | 79 | 93
        | OTHER_COLLECTION => ErrorClass::Environment,
        // The disk is full, or the data are damaged. Giving messages up one by one would hide it.
        39 | 14031 | 4890 | 101 => ErrorClass::Environment,
        // The rest counts as an attempt of the message: a key that is there already, a validator, values that do not fit. That
        // includes an operation that took too long (50): a message that makes it so would block its partition forever.
        _ => ErrorClass::Failed,
    }
}

/// The class of an error in oncebox's own operations, where no handler has run in the transaction: a message is to blame only
/// for what its values can cause.
pub(crate) fn class_of_own(error: &Error) -> ErrorClass {
    match class_of_driver(error) {
        ErrorClass::Failed => match error.kind.as_ref() {
            ErrorKind::Bson(_) => ErrorClass::Failed,
            // Also a number that was taken already: the next one is free.
            _ => ErrorClass::Transient,
        },
        class => class,
    }
}

/// The class of an error while a transaction begins: whatever it is, no message has a part in it.
fn class_of_begin(error: &Error) -> ErrorClass {
    match class_of_driver(error) {
        ErrorClass::Environment => ErrorClass::Environment,
        _ => ErrorClass::Away,
    }
}

/// What the server says and its code. The driver would add the bytes of the whole answer.
pub(crate) fn said(error: &Error) -> String {
    let text = match error.kind.as_ref() {
        ErrorKind::Command(error) => Some(&error.message),
        ErrorKind::Write(WriteFailure::WriteError(error)) => Some(&error.message),
        ErrorKind::Write(WriteFailure::WriteConcernError(error)) => Some(&error.message),
        ErrorKind::InsertMany(many) => {
            many.write_errors.as_ref().and_then(|errors| errors.first().map(|error| &error.message))
        }
        _ => None,
    };
    match (text, code_of(error)) {
        // What follows repeats the command with everything in it.
        (Some(text), Some(code)) => {
            format!("{} ({code})", text.split(" to execute command {").next().unwrap_or(text))
        }
        _ => error.kind.to_string(),
    }
}

/// An error of the driver, told shortly.
#[derive(Debug)]
pub(crate) struct Said(pub(crate) Error);

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&said(&self.0))
    }
}

impl StdError for Said {}

/// The error of the driver behind one of the store.
pub(crate) fn driver_of(error: &StoreError) -> Option<&Error> {
    error.source.downcast_ref::<Said>().map(|said| &said.0)
}

/// Whether the same transaction, run again, may well pass: somebody else has written the same document.
pub(crate) fn is_conflict(error: &StoreError) -> bool {
    driver_of(error).is_some_and(|error| {
        error.contains_label(TRANSIENT_TRANSACTION_ERROR)
            || matches!(code_of(error), Some(WRITE_CONFLICT | DUPLICATE_KEY | NO_SUCH_TRANSACTION))
    })
}

/// Whether nobody knows if a commit took place.
pub(crate) fn is_unknown(error: &Error) -> bool {
    error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT)
}

/// Says what the store was doing when an error came.
pub(crate) trait Context<T> {
    /// Wraps the error of an operation of ours, with its class.
    fn context(self, doing: &str) -> StoreResult<T>;

    /// The same where a transaction begins: nothing of a message has run yet.
    fn context_of_begin(self, doing: &str) -> StoreResult<T>;

    /// The same where a transaction begins with its receipts: a connection that breaks is nobody's fault.
    fn context_of_claim(self, doing: &str) -> StoreResult<T>;

    /// The same where somebody else's operations may be the reason: those of a handler in the same transaction, by an error
    /// that it swallowed; or those that somebody wrote into the configuration.
    fn context_of_user(self, doing: &str) -> StoreResult<T>;

    /// The same where collections are made: somebody waits for the answer, and a missing right will not come by waiting.
    fn context_of_ddl(self, doing: &str) -> StoreResult<T>;
}

impl<T> Context<T> for Result<T> {
    fn context(self, doing: &str) -> StoreResult<T> {
        self.map_err(|error| store_error(class_of_own(&error), with_advice(doing, &error), error))
    }

    fn context_of_begin(self, doing: &str) -> StoreResult<T> {
        self.map_err(|error| store_error(class_of_begin(&error), doing, error))
    }

    fn context_of_claim(self, doing: &str) -> StoreResult<T> {
        self.map_err(|error| {
            let class = match class_of_own(&error) {
                // Another transaction holds a receipt, for longer than we wait: nobody's fault either.
                ErrorClass::Transient if code_of(&error) == Some(WRITE_CONFLICT) => ErrorClass::Away,
                _ if is_broken(&error) => ErrorClass::Away,
                class => class,
            };
            store_error(class, doing, error)
        })
    }

    fn context_of_user(self, doing: &str) -> StoreResult<T> {
        self.map_err(|error| store_error(class_of_driver(&error), doing, error))
    }

    fn context_of_ddl(self, doing: &str) -> StoreResult<T> {
        self.map_err(|error| {
            let class = match class_of_driver(&error) {
                ErrorClass::Environment => ErrorClass::Failed,
                class => class,
            };
            let denied = code_of(&error) == Some(UNAUTHORIZED);
            let advice = if denied {
                " (the user may not make them: grant the role dbOwner, or readWrite and dbAdmin)"
            } else {
                ""
            };
            store_error(class, format!("{doing}{advice}"), error)
        })
    }
}

fn with_advice(doing: &str, error: &Error) -> String {
    match code_of(error) {
        Some(UNAUTHORIZED) => {
            format!("{doing} (the user lacks a right: grant the role readWrite in this database)")
        }
        _ => doing.to_owned(),
    }
}

/// Whether the driver could not write or read a value, or was asked for something that does not exist. The server knows nothing of it.
pub(crate) fn is_of_values(error: &Error) -> bool {
    matches!(
        error.kind.as_ref(),
        ErrorKind::Bson(_)
            | ErrorKind::BsonSerialization(_)
            | ErrorKind::BsonDeserialization(_)
            | ErrorKind::InvalidArgument { .. }
    )
}

/// Whether the connection broke, so that an answer is missing.
pub(crate) fn is_broken(error: &Error) -> bool {
    matches!(
        error.kind.as_ref(),
        ErrorKind::Io(_) | ErrorKind::ConnectionPoolCleared { .. } | ErrorKind::InvalidResponse { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_told_apart() {
        let tables: [(&[i32], ErrorClass); 4] = [
            (&[6, 91, 189, 10107, 11600, 11602, 13435, 13436, 64, 262], ErrorClass::Away),
            (&[112, 251, 24, 246, 10334, 257, 146, 290], ErrorClass::Transient),
            (&[13, 18, 26, 20, 263, 166, 14031, 40324], ErrorClass::Environment),
            (&[11000, 121, 2, 9, 14, 50, 28, 52], ErrorClass::Failed),
        ];
        for (codes, class) in tables {
            for code in codes {
                assert_eq!(class_of_code(*code), class, "{code}");
            }
        }
    }

    #[test]
    fn the_same_error_means_another_thing_in_another_phase() {
        let broken = || Error::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        let class = |result: StoreResult<()>| result.unwrap_err().class;
        assert_eq!(class(Err(broken()).context_of_begin("x")), ErrorClass::Away);
        assert_eq!(class(Err(broken()).context_of_claim("x")), ErrorClass::Away);
        assert_eq!(class(Err(broken()).context("x")), ErrorClass::Transient);
        assert_eq!(class(Err(broken()).context_of_user("x")), ErrorClass::Transient);
    }

    #[test]
    fn an_error_says_what_the_server_said_and_no_more() {
        let answer = r#"{"code": 13, "codeName": "Unauthorized",
            "errmsg": "not authorized on shop to execute command { find: \"stock\", filter: { _id: \"secret\" } }"}"#;
        let error = Error::from(ErrorKind::Command(serde_json::from_str(answer).unwrap()));
        assert_eq!(said(&error), "not authorized on shop (13)");
        let broken = Error::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        assert_eq!(said(&broken), "I/O error: connection reset");
    }

    #[test]
    fn a_driver_error_is_found_behind_its_wrappers() {
        let broken = Error::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        let wrapped: oncebox_core::error::BoxError =
            anyhow::Context::context(Err::<(), _>(broken), "deducting").unwrap_err().into();
        assert_eq!(classify(&*wrapped), ErrorClass::Transient);
        assert_eq!(classify(&StoreError::new(ErrorClass::Fenced, "x", "y")), ErrorClass::Fenced);
        assert_eq!(classify(&fmt::Error), ErrorClass::Failed);
    }
}

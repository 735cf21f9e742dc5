//! Why a call of the library failed.

use crate::names::NameError;
use crate::outbox::EventError;
use crate::store::{ErrorClass, StoreError};

/// Why a call of the library failed. In a function that returns [`Result`](crate::error::Result) `?` takes it.
///
/// | [`code`](Error::code) | what happened | what to do |
/// |---|---|---|
/// | `name` | a consumer, a message id or a tenant is empty, too long, or has a character that is not allowed | give another one |
/// | `event` | an event has no valid topic, or is too large | change the event; a handler that returns this error rejects its message |
/// | `away` | the database cannot be reached, is going down, or takes no writes | try again |
/// | `transient` | something was in the way: a deadlock, a lock, a connection that broke | roll back and try again |
/// | `environment` | a table, a column, a function or a right is missing, a disk is full | mend it; `migrate` makes the tables of oncebox |
/// | `fenced` | another process has taken over the partition | nothing: it goes on there |
/// | `torn` | the handler has committed by itself, so the receipt is there and the effect may not be | compare the message with your tables: a copy of it would be skipped |
/// | `failed` | the database refused a statement or a value, or the URL of the store is not usable | read the cause |
/// | `panic` | a task of a worker or a relay panicked | read the cause, and run it anew |
///
/// ```
/// use oncebox::sqlite::SqliteStore;
///
/// # #[tokio::main]
/// # async fn main() {
/// let error = SqliteStore::connect("sqlite://").await.unwrap_err();
/// assert_eq!(error.code(), "failed");
/// assert_eq!(error.to_string(), "the store url \"sqlite://\" is not usable: it names no file");
/// assert!(!error.is_transient());
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name or an id that is not allowed.
    #[error(transparent)]
    Name(#[from] NameError),
    /// An event that cannot be written.
    #[error("{0}")]
    Event(#[from] EventError),
    /// The database, or what it thinks of our statements.
    #[error("{}{}", .0, advice(.0.class))]
    Store(#[from] StoreError),
    /// A task panicked, and the rest of what it belonged to has ended.
    #[error("a task of the {what} panicked, so all of it has ended; run it anew: {source}")]
    Panic {
        /// Worker or relay.
        what: &'static str,
        /// The panic.
        source: tokio::task::JoinError,
    },
}

fn advice(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::Away => "; the database cannot be reached or takes no writes: try again",
        ErrorClass::Transient => "; something was in the way: roll back and try again",
        ErrorClass::Environment => {
            "; no message is to blame: mend the database (`migrate` makes the tables of oncebox)"
        }
        ErrorClass::Fenced => "; it goes on there",
        ErrorClass::Torn => {
            "; compare what the message should have done with your tables: a copy of it would be skipped"
        }
        ErrorClass::Failed => "",
    }
}

impl Error {
    /// A short name for what happened. The names stay as they are: match on them, count them, look them up in the table above.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Name(_) => "name",
            Self::Event(_) => "event",
            Self::Store(error) => match error.class {
                ErrorClass::Away => "away",
                ErrorClass::Transient => "transient",
                ErrorClass::Environment => "environment",
                ErrorClass::Fenced => "fenced",
                ErrorClass::Torn => "torn",
                ErrorClass::Failed => "failed",
            },
            Self::Panic { .. } => "panic",
        }
    }

    /// Whether the same call may work in a moment, although nobody changes anything: `away` and `transient`.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Store(error) if matches!(error.class, ErrorClass::Away | ErrorClass::Transient))
    }

    /// Whether another process has taken over the partition, so that this one must not go on.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        matches!(self, Self::Store(error) if error.class == ErrorClass::Fenced)
    }
}

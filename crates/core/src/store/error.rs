//! Errors of a store, with the class that decides what happens next.

use crate::error::BoxError;

/// How the engine reacts to an error of a store or a handler.
///
/// Stores derive it from SQLSTATE or vendor codes, never from the text of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorClass {
    /// The database cannot be reached, is going down, or takes no writes: tried again for as long as it takes. No message
    /// is ever blamed for it.
    Away,
    /// Something was in the way (a deadlock, a lock, memory, a connection that broke in the middle): the transaction is
    /// tried again, with fewer messages if it happens again, and counts as an attempt of a message that fails so alone.
    Transient,
    /// The statement or the database is wrong, not the message: a table, a column, a function or a right is missing, a disk
    /// is full. Nothing is parked; the lane stands still, red, and goes on when it is mended.
    Environment,
    /// Another process owns the partition now: stop, do not retry.
    Fenced,
    /// The handler has committed by itself: the receipts of the batch are there, and of the effects nobody knows which. Nothing
    /// is tried again, because all of it would be taken for copies; the partition stops.
    Torn,
    /// The message or its handler is to blame; counts as an attempt.
    Failed,
}

impl ErrorClass {
    /// Whether the same is worth another try although nobody changes anything about the message.
    #[must_use]
    pub fn may_pass(self) -> bool {
        matches!(self, Self::Away | Self::Transient | Self::Environment)
    }
}

/// An error of a store, with the class that decides what happens next.
#[derive(Debug, thiserror::Error)]
#[error("{context}: {source}")]
#[non_exhaustive]
pub struct StoreError {
    /// What the engine does about it.
    pub class: ErrorClass,
    /// What the store was doing.
    pub context: String,
    /// The cause.
    #[source]
    pub source: BoxError,
    /// The cause without the values that it quotes, if it quotes any.
    plain: Option<String>,
}

impl StoreError {
    /// An error of the given class.
    pub fn new(class: ErrorClass, context: impl Into<String>, source: impl Into<BoxError>) -> Self {
        Self { class, context: context.into(), source: source.into(), plain: None }
    }

    /// The same error, whose cause quotes values of a message: this is what may be said of it in the log.
    #[must_use]
    pub fn worded(self, plain: impl Into<String>) -> Self {
        Self { plain: Some(plain.into()), ..self }
    }

    /// What may be said of the cause in the log, if that is not all of it.
    pub(crate) fn plain(&self) -> Option<&str> {
        self.plain.as_deref()
    }

    /// The same error, of another class.
    #[must_use]
    pub fn with_class(self, class: ErrorClass) -> Self {
        Self { class, ..self }
    }

    /// A pool has waited in vain for one of its connections. It only says that; one more connection, which was tried within a bounded
    /// time, says why: `None` if nobody answered.
    pub fn no_connection(context: &str, connections: u32, tried: Option<StoreResult<()>>) -> Self {
        match tried {
            Some(Err(error)) => error,
            Some(Ok(())) => {
                Self::new(ErrorClass::Away, context, format!("all {connections} connections are in use"))
            }
            None => Self::new(ErrorClass::Away, context, "the server does not answer"),
        }
    }

    /// The position belongs to a newer owner.
    pub fn fenced(context: impl Into<String>) -> Self {
        Self::new(ErrorClass::Fenced, context, "another process has taken over this partition")
    }
}

/// What store operations return.
pub type StoreResult<T> = Result<T, StoreError>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_there_is_no_connection() {
        let said = |tried| StoreError::no_connection("connecting", 7, tried).to_string();
        assert_eq!(said(Some(Ok(()))), "connecting: all 7 connections are in use");
        assert_eq!(said(None), "connecting: the server does not answer");
        let refused = StoreError::new(ErrorClass::Environment, "connecting", "no such user");
        let told = StoreError::no_connection("connecting", 7, Some(Err(refused)));
        assert_eq!(
            (told.class, told.to_string().as_str()),
            (ErrorClass::Environment, "connecting: no such user")
        );
    }
}

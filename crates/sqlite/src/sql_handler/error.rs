//! What can be wrong with a statement: when it is prepared, and when it runs.

use std::error::Error;
use std::fmt;

use oncebox_core::StoreError;
use oncebox_core::config::Step;

/// Why a handler in SQL cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum SqlHandlerError {
    /// The database could not be asked.
    Store(StoreError),
    /// These statements are wrong.
    Statements(Vec<BadStatement>),
}

/// A statement that the database refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadStatement {
    /// Its place in the handler, counted from 1.
    pub number: usize,
    /// As it is written.
    pub sql: String,
    /// What the database says.
    pub reason: String,
}

impl BadStatement {
    pub(super) fn new(at: usize, step: &Step, error: &sqlx::Error) -> Self {
        let reason =
            error.as_database_error().map_or_else(|| error.to_string(), |error| error.message().to_owned());
        Self { number: at + 1, sql: step.statement.source().to_owned(), reason }
    }
}

impl fmt::Display for SqlHandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Statements(bad) => {
                for (at, BadStatement { number, sql, reason }) in bad.iter().enumerate() {
                    let separator = if at == 0 { "" } else { "\n" };
                    write!(f, "{separator}statement {number}: {reason}: {sql}")?;
                }
                Ok(())
            }
        }
    }
}

impl Error for SqlHandlerError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            Self::Statements(_) => None,
        }
    }
}

impl From<StoreError> for SqlHandlerError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// A statement that failed on a message. Its cause decides who is to blame.
#[derive(Debug)]
pub(super) struct StatementFailed {
    pub(super) number: usize,
    pub(super) cause: sqlx::Error,
}

impl fmt::Display for StatementFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "statement {} failed", self.number)
    }
}

impl Error for StatementFailed {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.cause)
    }
}

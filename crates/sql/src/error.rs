//! Why a handler in SQL cannot be used.

use std::fmt;

use oncebox_core::error::Error;
use oncebox_core::store::{ErrorClass, StoreError};

/// Why a handler in SQL cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum SqlHandlerError {
    /// There is no statement.
    Empty,
    /// The database could not be asked.
    Store(StoreError),
    /// These statements are wrong.
    Statements(Vec<BadStatement>),
    /// Each statement is right, but the database refuses them inside of a function; why.
    Function(String),
}

/// A statement that oncebox or the database refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadStatement {
    /// Its place in the handler, counted from 1.
    pub number: usize,
    /// As it is written.
    pub sql: String,
    /// Why.
    pub reason: String,
}

impl SqlHandlerError {
    /// The same as an error of the store: of its own class if the database could not be asked, otherwise
    /// [`ErrorClass::Failed`].
    #[must_use]
    pub fn into_store_error(self) -> StoreError {
        match self {
            Self::Store(error) => error,
            wrong => StoreError::new(ErrorClass::Failed, "the SQL of the handler is wrong", wrong),
        }
    }
}

impl fmt::Display for SqlHandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a handler needs at least one statement"),
            Self::Store(error) => error.fmt(f),
            Self::Function(reason) => {
                write!(f, "the handler's statements cannot run in a function: {reason}")
            }
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

impl std::error::Error for SqlHandlerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            _ => None,
        }
    }
}

impl From<StoreError> for SqlHandlerError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<SqlHandlerError> for Error {
    fn from(error: SqlHandlerError) -> Self {
        error.into_store_error().into()
    }
}

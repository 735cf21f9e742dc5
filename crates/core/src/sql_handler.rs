//! Why a handler in SQL cannot be used. The stores that run SQL from the configuration share it.

use std::error::Error;
use std::fmt;

use crate::store::StoreError;

/// Why a handler in SQL cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum SqlHandlerError {
    /// The database could not be asked.
    Store(StoreError),
    /// These statements are wrong.
    Statements(Vec<BadStatement>),
    /// Each statement is right, but the database refuses them inside of a function; why.
    Function(String),
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

impl fmt::Display for SqlHandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
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

impl Error for SqlHandlerError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
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

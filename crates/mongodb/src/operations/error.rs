//! Why operations cannot be used.

use std::fmt;

use oncebox_core::error::Error;
use oncebox_core::store::{ErrorClass, StoreError};

/// Why a handler of operations cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum OperationsError {
    /// There is no operation.
    Empty,
    /// The database could not be asked.
    Store(StoreError),
    /// These operations are wrong.
    Operations(Vec<BadOperation>),
}

/// An operation that oncebox or the database refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadOperation {
    /// Its place in the handler, counted from 1.
    pub number: usize,
    /// Why, and what to do.
    pub reason: String,
}

impl OperationsError {
    /// The same as an error of the store: of its own class if the database could not be asked, otherwise
    /// [`ErrorClass::Failed`].
    #[must_use]
    pub fn into_store_error(self) -> StoreError {
        match self {
            Self::Store(error) => error,
            wrong => StoreError::new(ErrorClass::Failed, "the operations of the handler are wrong", wrong),
        }
    }
}

impl fmt::Display for OperationsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a handler needs at least one operation"),
            Self::Store(error) => error.fmt(f),
            Self::Operations(bad) => {
                for (at, BadOperation { number, reason }) in bad.iter().enumerate() {
                    let separator = if at == 0 { "" } else { "\n" };
                    write!(f, "{separator}operation {number}: {reason}")?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for OperationsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            _ => None,
        }
    }
}

impl From<StoreError> for OperationsError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<OperationsError> for Error {
    fn from(error: OperationsError) -> Self {
        error.into_store_error().into()
    }
}

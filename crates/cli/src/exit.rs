//! Exit codes, and errors that know theirs.

use std::fmt;
use std::process::ExitCode;

use oncebox_core::error::{Error, describe_whole};
use oncebox_core::printable::printable;
use oncebox_core::store::{ErrorClass, StoreError};

/// The meaning of an exit code. Part of the contract with scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// A negative answer: unhealthy, verdict failed, nothing matched.
    Negative = 1,
    /// The command line does not say what is meant.
    Usage = 2,
    /// The configuration is wrong.
    Config = 3,
    /// A dependency cannot be reached.
    Unreachable = 4,
    /// A data problem.
    Data = 5,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// An error with its exit code. The text says what happened and what to do.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) text: String,
}

/// What commands return: whether the answer is positive.
pub(crate) type CommandResult = Result<Answer, Failure>;

/// A command that worked may still say no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Yes,
    No,
}

impl Failure {
    pub(crate) fn config(text: impl Into<String>) -> Self {
        Self { exit: Exit::Config, text: text.into() }
    }

    pub(crate) fn data(text: impl Into<String>) -> Self {
        Self { exit: Exit::Data, text: text.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Store(error) => error.into(),
            other => Self::data(printable(&describe_whole(&other))),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let exit = if is_unreachable(&error) { Exit::Unreachable } else { Exit::Data };
        // One line, whatever the database says of a message.
        Self { exit, text: printable(&describe_whole(&error)).into_owned() }
    }
}

/// Whether the database is away, or too busy to answer: another try may do.
pub(crate) fn is_unreachable(error: &StoreError) -> bool {
    matches!(error.class, ErrorClass::Away | ErrorClass::Transient)
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::data(error.to_string())
    }
}

//! Why a statement is refused, with the place and the way out.

use std::fmt;

use crate::{Param, suggest};

/// Why a statement of a handler is refused. `Display` gives [`message`](Self::message) and [`fix`](Self::fix).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StatementError {
    /// `:name` with a name that does not exist.
    UnknownParam {
        /// The name without the colon.
        name: String,
        /// A parameter of a similar name.
        nearest: Option<Param>,
        /// Where, in bytes.
        offset: usize,
    },
    /// A string, a quoted name or a comment without an end.
    Unterminated {
        /// What kind of thing.
        what: &'static str,
        /// Where it begins, in bytes.
        offset: usize,
    },
    /// Something after the `;`.
    SecondStatement {
        /// Where the second one begins, in bytes.
        offset: usize,
    },
    /// Nothing but blanks and comments.
    Empty,
    /// Transaction control, or a command that cannot run inside a transaction.
    Refused {
        /// The keyword in upper case.
        keyword: String,
        /// Where, in bytes.
        offset: usize,
    },
    /// `$1` and the like, which would collide with the placeholders oncebox writes; `?`, and in SQLite `@name`.
    Positional {
        /// As written.
        text: String,
        /// Where, in bytes.
        offset: usize,
    },
    /// A `:name` in a statement that runs once for many messages.
    ParamInBatch {
        /// The name without the colon.
        name: String,
        /// Where, in bytes.
        offset: usize,
    },
    /// A batch statement whose effect would depend on how messages happened to be batched.
    WithoutMessages,
    /// A rule about rows for a statement that runs once for many messages.
    RowsInBatch,
    /// What this database reads in another way than it is meant.
    Foreign {
        /// What it reads.
        message: String,
        /// What to write instead.
        fix: String,
        /// Where, in bytes.
        offset: usize,
    },
}

impl StatementError {
    pub(crate) fn unknown_param(name: &str, offset: usize) -> Self {
        let nearest = suggest::nearest(name, Param::ALL.map(Param::name)).and_then(Param::from_name);
        Self::UnknownParam { name: name.to_owned(), nearest, offset }
    }

    /// Where in the statement, in bytes; 0 when it is about the whole.
    #[must_use]
    pub fn offset(&self) -> usize {
        match self {
            Self::UnknownParam { offset, .. }
            | Self::Unterminated { offset, .. }
            | Self::SecondStatement { offset }
            | Self::Refused { offset, .. }
            | Self::Positional { offset, .. }
            | Self::ParamInBatch { offset, .. }
            | Self::Foreign { offset, .. } => *offset,
            Self::Empty | Self::WithoutMessages | Self::RowsInBatch => 0,
        }
    }

    /// What is wrong.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::UnknownParam { name, .. } => format!("there is no parameter `:{name}`"),
            Self::Unterminated { what, offset } => {
                format!("the {what} that begins at byte {offset} is not closed")
            }
            Self::SecondStatement { .. } => "there is a second statement after the `;`".to_owned(),
            Self::Empty => "the statement is empty".to_owned(),
            Self::Refused { keyword, .. } => {
                format!("{keyword} is refused, since the statement runs inside oncebox's transaction")
            }
            Self::Positional { text, .. } => format!("`{text}` is a placeholder that nobody binds"),
            Self::ParamInBatch { name, .. } => {
                format!("`:{name}` belongs to one message, but a batch statement runs once for many")
            }
            Self::WithoutMessages => {
                "without the relation `messages` this runs once per batch, whatever is in it".to_owned()
            }
            Self::RowsInBatch => {
                "`rows` is about one message, but a batch statement runs once for many".to_owned()
            }
            Self::Foreign { message, .. } => message.clone(),
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn fix(&self) -> String {
        match self {
            Self::UnknownParam { nearest: Some(near), .. } => {
                format!("did you mean `{near}`? There are {}", all_params())
            }
            Self::UnknownParam { nearest: None, .. } | Self::Positional { .. } => {
                format!("use one of {}", all_params())
            }
            Self::Unterminated { .. } => "close it".to_owned(),
            Self::SecondStatement { .. } => "write one statement per list entry".to_owned(),
            Self::Empty => "write a statement or remove the entry".to_owned(),
            Self::Refused { .. } => "remove it".to_owned(),
            Self::ParamInBatch { .. } => {
                "use the columns of the relation `messages`, such as messages.id and messages.payload"
                    .to_owned()
            }
            Self::WithoutMessages => "select from `messages`".to_owned(),
            Self::RowsInBatch => "remove it, or move the statement to `each`".to_owned(),
            Self::Foreign { fix, .. } => fix.clone(),
        }
    }
}

impl fmt::Display for StatementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message(), self.fix())
    }
}

impl std::error::Error for StatementError {}

fn all_params() -> String {
    Param::ALL.map(|param| param.to_string()).join(" ")
}

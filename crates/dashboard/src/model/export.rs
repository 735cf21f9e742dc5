//! Dead letters for a file: a line for each.

use oncebox_core::store::StoredDeadLetter;
use schemars::JsonSchema;
use serde::Serialize;

use super::letters::Letter;
use crate::fields::Fields;

/// So many are written unless another number is asked for, and so many at most.
const LETTERS: u64 = 10_000;
const MOST_LETTERS: u64 = 100_000;

/// A line of an export.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum ExportLine {
    /// A dead letter.
    Letter(Box<Letter>),
    /// The last line, where something is missing.
    Cut(Cut),
}

/// Why an export ends before the end.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Cut {
    /// Why.
    pub(crate) cut: String,
    /// Go on from here: the value of `before`.
    pub(crate) next: Option<i64>,
}

/// How many letters are wanted.
pub(crate) fn limit(fields: &Fields) -> Result<u64, String> {
    Ok(fields.number("limit")?.unwrap_or(LETTERS).clamp(1, MOST_LETTERS))
}

impl ExportLine {
    pub(crate) fn letter(stored: &StoredDeadLetter, with_content: bool) -> Self {
        Self::Letter(Box::new(Letter::of(stored, with_content)))
    }

    pub(crate) fn cut(why: impl Into<String>, next: Option<i64>) -> Self {
        Self::Cut(Cut { cut: why.into(), next })
    }

    /// As it is written.
    pub(crate) fn written(&self) -> String {
        // What is derived cannot fail.
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }
}

//! How an error reads: whole, where the message itself may be seen, and without the values that it quotes, where it may not.
//!
//! Databases quote what they refuse (`invalid input syntax for type integer: "…"`), and so does the reader of JSON. In a dead letter
//! that stands beside the payload anyway. The log and `/healthz` are read by others, and kept elsewhere.

use std::error::Error as StdError;
use std::fmt;
use std::iter::from_fn;

use super::BoxError;
use crate::store::{ErrorClass, Store, StoreError};

/// The target under which the whole text of an error is logged, at `debug`: off unless somebody asks for it.
pub(crate) const VALUES: &str = "oncebox::values";

type AnyError = dyn StdError + 'static;

/// How an error reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wording {
    /// All of it.
    pub whole: String,
    /// Without values that a message may have brought: codes, names of tables and constraints, fixed texts.
    pub plain: String,
}

/// An error that quotes values, and can be told without them.
#[derive(Debug)]
pub struct WithValues {
    wording: Wording,
    source: BoxError,
}

impl WithValues {
    /// An error with both of its texts, and what it stands for.
    pub fn new(wording: Wording, source: impl Into<BoxError>) -> Self {
        Self { wording, source: source.into() }
    }
}

impl fmt::Display for WithValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.wording.whole)
    }
}

impl StdError for WithValues {
    fn source(&self) -> Option<&AnyError> {
        Some(self.source.as_ref())
    }
}

/// Writes an error with its causes, each once, separated by `: `, and without the values that it quotes: for the log and for
/// `/healthz`. What an error says that is neither a store's nor a reader's of JSON is its author's own, and stays.
#[must_use]
pub fn describe(error: &AnyError) -> String {
    compose(error, plain_of)
}

/// The same with everything that it quotes: for a dead letter, and for who asked.
#[must_use]
pub fn describe_whole(error: &AnyError) -> String {
    compose(error, |error| error.downcast_ref::<WithValues>().map(|error| error.wording.whole.clone()))
}

/// [`describe`], for a log line. The whole text is logged as well, where nobody reads it who has not asked for it.
pub(crate) fn describe_in_log(error: &AnyError) -> String {
    let (plain, whole) = (describe(error), describe_whole(error));
    if plain != whole {
        tracing::debug!(target: VALUES, reason = whole, "the whole reason of what is logged next");
    }
    plain
}

/// Gives what user code returned its two texts, if an error of the driver is among its causes.
pub(crate) fn with_values<S: Store>(error: BoxError, class: ErrorClass) -> BoxError {
    let known = |e: &AnyError| S::wording(e, class);
    let top: &AnyError = error.as_ref();
    if !chain(top).any(|e| known(e).is_some()) {
        return error;
    }
    let wording = Wording {
        whole: compose(top, |e| known(e).map(|wording| wording.whole)),
        plain: compose(top, |e| plain_of(e).or_else(|| known(e).map(|wording| wording.plain))),
    };
    Box::new(WithValues::new(wording, error))
}

/// The text without values of an error that has one of its own.
fn plain_of(error: &AnyError) -> Option<String> {
    if let Some(error) = error.downcast_ref::<WithValues>() {
        return Some(error.wording.plain.clone());
    }
    if let Some(error) = error.downcast_ref::<StoreError>() {
        return error.plain().map(|plain| format!("{}: {plain}", error.context));
    }
    // Its other errors are about signs, and quote nothing.
    let json = error.downcast_ref::<serde_json::Error>().filter(|error| error.is_data())?;
    Some(format!("the JSON does not fit at line {} column {}", json.line(), json.column()))
}

fn chain(error: &AnyError) -> impl Iterator<Item = &AnyError> {
    let mut next = Some(error);
    from_fn(move || {
        let current = next?;
        next = current.source();
        Some(current)
    })
}

/// Joins an error and its causes. The first that `known` has another text for gets that text, also where the errors around it
/// repeat it; its own causes are part of it.
fn compose(error: &AnyError, known: impl Fn(&AnyError) -> Option<String>) -> String {
    let mut texts: Vec<String> = Vec::new();
    for error in chain(error) {
        let said = error.to_string();
        let Some(other) = known(error) else {
            texts.push(said);
            continue;
        };
        if !said.is_empty() {
            texts.iter_mut().for_each(|text| *text = text.replace(&said, &other));
        }
        texts.push(other);
        break;
    }
    let mut parts = texts.into_iter();
    let first = parts.next().unwrap_or_default();
    parts.fold(first, |text, part| if text.contains(&part) { text } else { format!("{text}: {part}") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, Outcome};

    fn refused() -> StoreError {
        StoreError::new(ErrorClass::Failed, "statement 1", "bad value \"4711\" (22P02)")
            .worded("a value does not fit (22P02)")
    }

    #[test]
    fn values_stay_out_of_the_plain_text_however_deep_they_are() {
        #[derive(Debug, thiserror::Error)]
        #[error("deducting")]
        struct Deducting(#[source] Error);
        let error = Deducting(refused().into());
        assert_eq!(describe(&error), "deducting: statement 1: a value does not fit (22P02)");
        assert_eq!(describe_whole(&error), "deducting: statement 1: bad value \"4711\" (22P02)");
    }

    #[test]
    fn an_error_that_repeats_its_cause_repeats_the_plain_text() {
        #[derive(Debug, thiserror::Error)]
        #[error("line 7 of the order: {0}")]
        struct Line(#[from] StoreError);
        let error = Line(refused());
        assert_eq!(describe(&error), "line 7 of the order: statement 1: a value does not fit (22P02)");
        assert!(describe_whole(&error).contains("4711"));
    }

    #[test]
    fn json_is_told_by_its_place() {
        let error = serde_json::from_str::<u8>("\"secret\"").unwrap_err();
        assert_eq!(describe(&error), "the JSON does not fit at line 1 column 8");
        assert!(describe_whole(&error).contains("secret"));
        let syntax = serde_json::from_str::<Vec<u8>>("[1").unwrap_err();
        assert_eq!(describe(&syntax), describe_whole(&syntax));
    }

    #[test]
    fn what_it_stands_for_is_still_found() {
        let wording = Wording { whole: "sku 4711".to_owned(), plain: "a sku".to_owned() };
        let reject = Outcome::Reject { reason: "what a driver says of sku 4711".to_owned() };
        let error = WithValues::new(wording, reject.clone());
        assert_eq!(Outcome::of(&error), Some(reject));
        assert_eq!((describe(&error).as_str(), describe_whole(&error).as_str()), ("a sku", "sku 4711"));
    }
}

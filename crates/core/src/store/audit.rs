//! Who did what, when, with which parameters, and what came of it.

use std::future::Future;
use std::time::Duration;

use serde_json::Value;

use super::{Store, StoreResult};

/// The most characters of a name in the audit. What is longer is cut: it is for people.
const MAX_NAME_CHARS: usize = 200;
/// The most characters of an error in the audit.
const MAX_ERROR_CHARS: usize = 2_000;
/// The longest parameters, or the longest result, as JSON.
const MAX_JSON_BYTES: usize = 16 * 1024;

/// Something that an operator is about to do. It holds no payload, no key and no value of a header: those go with the letter,
/// and this stays.
#[derive(Debug, Clone, PartialEq)]
pub struct Action {
    who: String,
    action: String,
    consumer: Option<String>,
    parameters: Value,
}

impl Action {
    /// `who` does this: a word or two, such as `replay` or `position move`.
    pub fn by(who: impl AsRef<str>, action: impl AsRef<str>) -> Self {
        let (who, action) = (name(who.as_ref()), name(action.as_ref()));
        Self { who, action, consumer: None, parameters: Value::Object(serde_json::Map::new()) }
    }

    /// To this consumer.
    #[must_use]
    pub fn to(mut self, consumer: &str) -> Self {
        self.consumer = Some(name(consumer)).filter(|consumer| !consumer.is_empty());
        self
    }

    /// With these parameters.
    #[must_use]
    pub fn with(mut self, parameters: Value) -> Self {
        self.parameters = storable(parameters);
        self
    }

    /// Who it is.
    #[must_use]
    pub fn who(&self) -> &str {
        &self.who
    }

    /// What is done.
    #[must_use]
    pub fn action(&self) -> &str {
        &self.action
    }

    /// To which consumer, if it is to one.
    #[must_use]
    pub fn consumer(&self) -> Option<&str> {
        self.consumer.as_deref()
    }

    /// How.
    #[must_use]
    pub fn parameters(&self) -> &Value {
        &self.parameters
    }
}

/// What came of an action, so far or in the end.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ActionNote {
    result: Option<Value>,
    error: Option<String>,
    over: bool,
}

impl ActionNote {
    /// So far: it goes on.
    #[must_use]
    pub fn so_far(result: Value) -> Self {
        Self { result: Some(storable(result)), error: None, over: false }
    }

    /// It has ended.
    #[must_use]
    pub fn ended(result: Value) -> Self {
        Self { result: Some(storable(result)), error: None, over: true }
    }

    /// It has failed. What it had done before stays as it was noted.
    pub fn failed(error: impl AsRef<str>) -> Self {
        let error = error.as_ref().chars().filter(|c| *c != '\0').take(MAX_ERROR_CHARS).collect();
        Self { result: None, error: Some(error), over: true }
    }

    /// What was done; `None` leaves what was noted before.
    #[must_use]
    pub fn result(&self) -> Option<&Value> {
        self.result.as_ref()
    }

    /// Why it failed.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Whether it is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over
    }
}

/// Every database can keep it.
fn name(text: &str) -> String {
    text.trim().chars().filter(|c| *c != '\0').take(MAX_NAME_CHARS).collect()
}

/// What is too long is left out, and what no database keeps is replaced.
fn storable(value: Value) -> Value {
    let text = value.to_string();
    if text.len() > MAX_JSON_BYTES {
        return serde_json::json!({ "left_out": format!("{} bytes", text.len()) });
    }
    if text.contains("\\u0000") {
        return serde_json::from_str(&text.replace("\\u0000", "")).unwrap_or(Value::Null);
    }
    value
}

/// An action as it is written down.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditEntry {
    /// Its number, ascending.
    pub number: i64,
    /// When it began, in milliseconds since 1970, by the clock of the database.
    pub at_ms: i64,
    /// When it ended; `None` if it is under way, or its process has died.
    pub ended_at_ms: Option<i64>,
    /// Who did it.
    pub who: String,
    /// What.
    pub action: String,
    /// To which consumer, if it was to one.
    pub consumer: Option<String>,
    /// How.
    pub parameters: Value,
    /// What came of it, if that is known.
    pub result: Option<Value>,
    /// Why it failed.
    pub error: Option<String>,
}

/// Which entries are meant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Only by this one.
    pub who: Option<String>,
    /// Only this action.
    pub action: Option<String>,
    /// Only to this consumer.
    pub consumer: Option<String>,
    /// Only below this number: the next page.
    pub before: Option<i64>,
    /// At most this many.
    pub limit: u32,
}

/// The audit of a database: what operators have done to it through oncebox.
pub trait Audit: Store {
    /// Writes down what is about to be done, and returns its number.
    fn begin_action(&self, action: &Action) -> impl Future<Output = StoreResult<i64>> + Send;

    /// Writes down what came of it.
    fn note_action(&self, number: i64, note: &ActionNote) -> impl Future<Output = StoreResult<()>> + Send;

    /// What was done, the newest first.
    fn actions(&self, filter: &AuditFilter) -> impl Future<Output = StoreResult<Vec<AuditEntry>>> + Send;

    /// Removes what is older than that, in bounded steps. Returns how much.
    fn purge_actions(&self, keep: Duration) -> impl Future<Output = StoreResult<u64>> + Send;
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_action_is_something_that_every_database_can_keep() {
        let action = Action::by(" cli:a\0na ", "ü".repeat(5_000)).with(json!({ "reason": "a\0b" }));
        assert_eq!(action.who(), "cli:ana");
        assert_eq!(action.action().chars().count(), MAX_NAME_CHARS);
        assert_eq!(action.parameters(), &json!({ "reason": "ab" }));
        let long = Action::by("a", "b").with(json!({ "reason": "x".repeat(100_000) }));
        assert!(long.parameters().to_string().len() < 100, "{}", long.parameters());
        assert_eq!(Action::by("a", "b").to("").consumer(), None);
        assert_eq!(
            ActionNote::failed("ü".repeat(5_000)).error().map(|e| e.chars().count()),
            Some(MAX_ERROR_CHARS)
        );
    }
}

//! Acts that are written down.

use std::future::Future;

use serde_json::{Value, json};
use tracing::warn;

use crate::error::describe;
use crate::store::{Action, ActionNote, Audit, DeadFilter, StoreResult};

/// How many numbers of a filter are written down.
pub(super) const MAX_NUMBERS: usize = 100;

/// Somebody who changes something.
#[derive(Debug, Clone)]
pub struct Operator<S> {
    pub(super) store: S,
    pub(super) who: String,
}

impl<S: Audit> Operator<S> {
    /// `who` acts on this store: `cli:ana`, or the name of a token.
    pub fn new(store: &S, who: impl Into<String>) -> Self {
        Self { store: store.clone(), who: who.into() }
    }

    /// Who it is.
    #[must_use]
    pub fn who(&self) -> &str {
        &self.who
    }

    /// An act of this operator.
    #[must_use]
    pub fn action(&self, action: &str) -> Action {
        Action::by(&self.who, action)
    }

    /// Writes down what is about to be done. What is not written down is not done.
    pub async fn begin(&self, action: Action) -> StoreResult<Ongoing<S>> {
        let number = self.store.begin_action(&action).await?;
        Ok(Ongoing { store: self.store.clone(), number })
    }

    /// Does something, and writes it down: what `told` says of it, or why it failed.
    pub async fn act<T>(
        &self,
        action: Action,
        work: impl Future<Output = StoreResult<T>>,
        told: impl FnOnce(&T) -> Value,
    ) -> StoreResult<T> {
        let ongoing = self.begin(action).await?;
        let done = work.await;
        match &done {
            Ok(done) => ongoing.ended(told(done)).await,
            Err(error) => ongoing.failed(describe(error)).await,
        }
        done
    }
}

/// An act that is under way. One that is dropped has not ended, as if its process had died.
#[derive(Debug)]
pub struct Ongoing<S> {
    store: S,
    number: i64,
}

impl<S: Audit> Ongoing<S> {
    /// Its number in the audit.
    #[must_use]
    pub fn number(&self) -> i64 {
        self.number
    }

    /// What was done so far.
    pub async fn so_far(&self, result: Value) {
        self.note(&ActionNote::so_far(result)).await;
    }

    /// What was done in the end.
    pub async fn ended(self, result: Value) {
        self.note(&ActionNote::ended(result)).await;
    }

    /// Why it failed, without the values of a message.
    pub async fn failed(self, error: impl AsRef<str>) {
        self.note(&ActionNote::failed(error)).await;
    }

    /// It is done, whether or not that can be written down.
    async fn note(&self, note: &ActionNote) {
        if let Err(e) = self.store.note_action(self.number, note).await {
            warn!(number = self.number, error = describe(&e), "the audit does not say what came of it");
        }
    }
}

/// Which letters are meant, as the audit keeps it. A key may be somebody's name, so only that there was one.
#[must_use]
pub fn as_parameters(filter: &DeadFilter) -> Value {
    let mut parameters = json!({});
    let texts = [
        ("topic", &filter.topic),
        ("tenant", &filter.tenant),
        ("message_id", &filter.message_id),
        ("group", &filter.group),
        ("error", &filter.error),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            parameters[name] = json!(text);
        }
    }
    for (name, ms) in [("from_ms", filter.failed_from_ms), ("until_ms", filter.failed_until_ms)] {
        if let Some(ms) = ms {
            parameters[name] = json!(ms);
        }
    }
    if filter.key.is_some() {
        parameters["by_key"] = json!(true);
    }
    if !filter.numbers.is_empty() {
        parameters["numbers"] = json!(filter.numbers.iter().take(MAX_NUMBERS).collect::<Vec<_>>());
    }
    if filter.numbers.len() > MAX_NUMBERS {
        parameters["numbers_in_all"] = json!(filter.numbers.len());
    }
    parameters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_told_without_its_key() {
        let filter = DeadFilter {
            numbers: (0..200).collect(),
            group: Some("abc".to_owned()),
            key: Some(b"ana@example.org".to_vec()),
            ..DeadFilter::default()
        };
        let told = as_parameters(&filter);
        assert_eq!(
            (&told["group"], &told["by_key"], &told["numbers_in_all"]),
            (&json!("abc"), &json!(true), &json!(200))
        );
        assert_eq!(told["numbers"].as_array().map(Vec::len), Some(MAX_NUMBERS));
        assert!(!told.to_string().contains("ana"), "{told}");
        assert_eq!(as_parameters(&DeadFilter::default()), json!({}));
    }
}

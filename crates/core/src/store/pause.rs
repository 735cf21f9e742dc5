//! Consumers that an operator has paused.

use std::future::Future;

use super::{Store, StoreResult};
use crate::names::ConsumerName;

/// The most characters of a text that says who paused a consumer, or why. What is longer is cut: it is for people.
const MAX_NOTE_CHARS: usize = 500;

/// The most pauses that are read.
pub const MAX_PAUSES: usize = 10_000;

/// Who pauses a consumer, and why: for whoever finds it paused.
///
/// ```
/// use oncebox::store::PauseNote;
///
/// let note = PauseNote::by("ana").because("the warehouse is being counted");
/// assert_eq!(note.reason(), Some("the warehouse is being counted"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PauseNote {
    by: String,
    reason: Option<String>,
}

impl PauseNote {
    /// Who it is.
    pub fn by(who: impl AsRef<str>) -> Self {
        Self { by: storable(who.as_ref()), reason: None }
    }

    /// Why. An empty text says nothing.
    #[must_use]
    pub fn because(mut self, reason: impl AsRef<str>) -> Self {
        self.reason = Some(storable(reason.as_ref())).filter(|reason| !reason.is_empty());
        self
    }

    /// Who it is.
    #[must_use]
    pub fn who(&self) -> &str {
        &self.by
    }

    /// Why, if that was said.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }
}

/// Every database can keep it.
fn storable(text: &str) -> String {
    text.trim().chars().filter(|c| *c != '\0').take(MAX_NOTE_CHARS).collect()
}

/// A consumer that is paused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// The consumer.
    pub consumer: String,
    /// Since when, in milliseconds since 1970, by the clock of the database.
    pub since_ms: i64,
    /// Who paused it.
    pub by: String,
    /// Why, if that was said.
    pub reason: Option<String>,
}

/// The pauses of a database. They outlive processes: a paused consumer stays paused until somebody resumes it.
///
/// Every process that runs an inbox of the consumer sees it within some seconds (see
/// [`PauseWatch`](crate::inbox::PauseWatch)): the transaction in flight ends, and none is begun until the consumer is resumed.
pub trait Pauses: Store {
    /// Pauses a consumer. False if it is paused already: then it stays as it was, with its first note.
    fn pause(
        &self,
        consumer: &ConsumerName,
        note: &PauseNote,
    ) -> impl Future<Output = StoreResult<bool>> + Send;

    /// Lets a consumer go on. False if it was not paused.
    fn resume(&self, consumer: &ConsumerName) -> impl Future<Output = StoreResult<bool>> + Send;

    /// All consumers that are paused, by name, up to [`MAX_PAUSES`].
    fn paused(&self) -> impl Future<Output = StoreResult<Vec<Pause>>> + Send;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_something_that_every_database_can_keep() {
        let note = PauseNote::by(" a\0na ").because("ü".repeat(5_000));
        assert_eq!(note.who(), "ana");
        assert_eq!(note.reason().map(|reason| reason.chars().count()), Some(MAX_NOTE_CHARS));
        assert_eq!(PauseNote::by("ana").because(" ").reason(), None);
    }
}

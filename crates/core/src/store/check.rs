//! Health: does the database answer, and is it set up so that the promise holds?

use std::future::Future;
use std::time::Duration;

use super::StoreResult;

/// One finding of a health check, for `oncebox check`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub level: FindingLevel,
    /// What was looked at.
    pub subject: String,
    /// What was found, and what to do.
    pub detail: String,
}

impl Finding {
    /// Something that is as it should be.
    pub fn ok(subject: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { level: FindingLevel::Ok, subject: subject.into(), detail: detail.into() }
    }

    /// Something that works, with a risk.
    pub fn warning(subject: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { level: FindingLevel::Warning, ..Self::ok(subject, detail) }
    }

    /// Something that does not work.
    pub fn error(subject: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { level: FindingLevel::Error, ..Self::ok(subject, detail) }
    }
}

/// How bad a [`Finding`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FindingLevel {
    /// As it should be.
    Ok,
    /// Works, with a risk.
    Warning,
    /// Does not work.
    Error,
}

/// What `oncebox check` and the health loop ask a database.
pub trait Check: Clone + Send + Sync + 'static {
    /// Whether the database answers and takes writes.
    fn ping(&self) -> impl Future<Output = StoreResult<()>> + Send;

    /// Looks at schema, durability settings, roles, and limits that a batch of so many bytes would meet.
    fn check(&self, largest_batch: usize) -> impl Future<Output = StoreResult<Vec<Finding>>> + Send;

    /// The transactions that have been open for longer than this, whoever opened them, and for how long: until they end, what is
    /// removed from tables stays in the way of those who look for what is left. The oldest first, a few of them, and only what
    /// the database can tell, and tells this user.
    fn old_transactions(
        &self,
        older_than: Duration,
    ) -> impl Future<Output = StoreResult<Vec<(String, Duration)>>> + Send;
}

//! What a source hears of each message that it delivered.

use std::sync::Arc;

use crate::store::Cause;

/// See [`OpenStream::on_answer`](super::OpenStream::on_answer).
pub type OnAnswer = Box<dyn Fn(&[Answered]) + Send + Sync>;

/// The inbox is done with a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answered {
    /// Its number, as the source gave it: the offset of the record. What the source acknowledges by.
    pub delivery: i64,
    /// What became of it.
    pub answer: Answer,
    /// Why it came, if it was settled before.
    pub cause: Option<Cause>,
}

impl Answered {
    pub(crate) fn new(delivery: i64, answer: Answer) -> Self {
        Self { delivery, answer, cause: None }
    }
}

/// What became of a message. All but the last mean that it is settled and may be acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// Its effect is in the database.
    Applied,
    /// It was settled before, and skipped now.
    Duplicate,
    /// Its id was settled before, with another payload, and it was skipped now. Only where payloads are compared: see
    /// [`OpenStream::compare_payloads`](super::OpenStream::compare_payloads).
    Differs,
    /// It was given up and is kept as a dead letter.
    Parked,
    /// The inbox does not want it: see [`Filter`](crate::inbox::Filter).
    Filtered,
    /// Nothing of it stays behind: it may be delivered again. Only queues hear this.
    GivenBack(GivenBack),
}

/// Why a message was given back.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GivenBack {
    /// In a word.
    pub why: Why,
    /// In a sentence. May quote the handler's error, and with it the message.
    pub reason: Arc<str>,
}

impl GivenBack {
    pub(crate) fn new(why: Why, reason: impl Into<Arc<str>>) -> Self {
        Self { why, reason: reason.into() }
    }
}

/// Why a message was given back, in a word. All but [`Why::Closing`] only under
/// [`OnFailure::GiveBack`](crate::inbox::OnFailure::GiveBack).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// The stream closed before the message was settled.
    Closing,
    /// The database is away, in trouble, or not as the handler needs it. The message is not to blame.
    Unavailable,
    /// The handler rejected it: no retry can help.
    Rejected,
    /// It failed as often as it may.
    Failed,
}

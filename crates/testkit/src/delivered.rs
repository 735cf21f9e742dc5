//! What became of a delivery, with assertions that say what happened instead.

use std::fmt;
use std::time::Duration;

use crate::crash::CrashPoint;

/// A try of the handler that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedTry {
    /// The handler's error, with its causes.
    pub error: String,
    /// Whether the handler has rejected the message.
    pub rejected: bool,
    /// How long the handler asked to wait. The kit writes it down and does not wait.
    pub retry_after: Option<Duration>,
}

/// How a delivery ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// Its effect is in the database.
    Applied,
    /// It was applied before, and skipped now.
    Duplicate,
    /// The inbox does not want it.
    Filtered,
    /// It is kept as a dead letter.
    Parked { reason: String },
    /// The process died, at the commit of a transaction that was to apply it or not.
    Crashed { at: CrashPoint, applies: bool },
    /// It is not settled, because the partition stands still.
    StandsStill { reason: String },
}

/// What became of one delivery of a message. Assert what you expect.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "assert what became of the message"]
pub struct Delivered {
    pub(crate) place: String,
    pub(crate) end: End,
    pub(crate) failed: Vec<FailedTry>,
}

impl Delivered {
    /// The tries that failed, in their order. What fails in a batch is cut out and tried again alone; only that counts.
    #[must_use]
    pub fn failed_tries(&self) -> &[FailedTry] {
        &self.failed
    }

    /// Why the message was given up, if it was.
    #[must_use]
    pub fn dead_letter(&self) -> Option<&str> {
        match &self.end {
            End::Parked { reason } => Some(reason),
            _ => None,
        }
    }

    /// The effect is in the database.
    ///
    /// # Panics
    /// If it is not.
    #[track_caller]
    pub fn assert_applied(&self) -> &Self {
        assert!(self.end == End::Applied, "expected: applied\n{self}");
        self
    }

    /// It was applied before, and skipped now.
    ///
    /// # Panics
    /// If it was not.
    #[track_caller]
    pub fn assert_duplicate(&self) -> &Self {
        assert!(self.end == End::Duplicate, "expected: a duplicate\n{self}");
        self
    }

    /// The filter of the inbox does not want it: it is settled, and nothing stays behind.
    ///
    /// # Panics
    /// If it does.
    #[track_caller]
    pub fn assert_filtered(&self) -> &Self {
        assert!(self.end == End::Filtered, "expected: filtered\n{self}");
        self
    }

    /// The handler has rejected it, with a reason that contains this text; it is a dead letter after one try.
    ///
    /// # Panics
    /// If it has not.
    #[track_caller]
    pub fn assert_rejected(&self, reason: &str) -> &Self {
        let rejected = self.failed.last().is_some_and(|failed| failed.rejected);
        assert!(rejected && self.is_parked_for(reason), "expected: rejected for {reason:?}\n{self}");
        self
    }

    /// It was given up for a reason that contains this text, whoever gave it up: the handler, the attempts that are used up,
    /// or the inbox because it has no id.
    ///
    /// # Panics
    /// If it was not.
    #[track_caller]
    pub fn assert_parked(&self, reason: &str) -> &Self {
        assert!(self.is_parked_for(reason), "expected: parked for {reason:?}\n{self}");
        self
    }

    /// It failed so many times before it ended as it did.
    ///
    /// # Panics
    /// If it did not.
    #[track_caller]
    pub fn assert_failed_tries(&self, times: usize) -> &Self {
        assert!(self.failed.len() == times, "expected: {times} tries that failed\n{self}");
        self
    }

    /// It is not settled, because the partition stands still for a reason that contains this text: `on_failure` is to halt,
    /// or a table is missing.
    ///
    /// # Panics
    /// If it does not.
    #[track_caller]
    pub fn assert_stands_still(&self, part: &str) -> &Self {
        let stands = matches!(&self.end, End::StandsStill { reason } if reason.contains(part));
        assert!(stands, "expected: stands still for {part:?}\n{self}");
        self
    }

    fn is_parked_for(&self, part: &str) -> bool {
        self.dead_letter().is_some_and(|reason| reason.contains(part))
    }

    /// Whether the process died at the commit of the effect.
    pub(crate) fn was_to_apply(&self) -> bool {
        matches!(self.end, End::Crashed { applies: true, .. })
    }

    /// Whether this delivery has put its effect into the database, although nobody may have heard of it.
    pub(crate) fn has_applied(&self) -> bool {
        matches!(self.end, End::Applied | End::Crashed { at: CrashPoint::AfterCommit, applies: true })
    }
}

impl fmt::Display for Delivered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        match &self.end {
            End::Applied => f.write_str("applied")?,
            End::Duplicate => f.write_str("a duplicate of what was applied before")?,
            End::Filtered => f.write_str("filtered: the inbox does not want it")?,
            End::Parked { reason } => write!(f, "given up: {reason}")?,
            End::Crashed { at: CrashPoint::BeforeCommit, .. } => {
                f.write_str("the process died before the commit")?;
            }
            End::Crashed { at: CrashPoint::AfterCommit, .. } => {
                f.write_str("the process died after the commit")?;
            }
            End::StandsStill { reason } => write!(f, "not settled, the partition stands still: {reason}")?,
        }
        for (at, failed) in self.failed.iter().enumerate() {
            let verdict = if failed.rejected { "rejected" } else { "failed" };
            write!(f, "\n  try {} {verdict}: {}", at + 1, failed.error)?;
            if let Some(delay) = failed.retry_after {
                write!(f, " (again after {delay:?})")?;
            }
        }
        Ok(())
    }
}

/// What became of a message that was delivered twice.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "assert what became of the message"]
pub struct Redelivered {
    /// The first delivery.
    pub first: Delivered,
    /// The second one, to the next process if the first one died.
    pub second: Delivered,
}

impl Redelivered {
    /// One delivery was applied, and only one; the message is settled.
    ///
    /// # Panics
    /// If it was not.
    #[track_caller]
    pub fn assert_applied_once(&self) -> &Self {
        let applied =
            [&self.first, &self.second].into_iter().filter(|delivered| delivered.has_applied()).count();
        let settled = matches!(self.second.end, End::Applied | End::Duplicate);
        assert!(applied == 1 && settled, "expected: applied once\n{self}");
        self
    }
}

impl fmt::Display for Redelivered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "first: {}\nthen: {}", self.first, self.second)
    }
}

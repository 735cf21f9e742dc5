//! What was asked for, and what became of it.

use schemars::JsonSchema;
use serde::Serialize;

use super::Time;
use crate::jobs::Job;

/// Something that was asked for in this process.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct JobReport {
    pub(crate) number: u64,
    pub(crate) action: &'static str,
    pub(crate) by: String,
    pub(crate) since: Time,
    pub(crate) state: JobState,
    pub(crate) dry_run: bool,
    pub(crate) done: u64,
    /// 0 if nobody knows.
    pub(crate) total: u64,
    /// What came of it until now, while it goes on.
    pub(crate) so_far: String,
    /// In a sentence, once it is over.
    pub(crate) said: Option<String>,
    /// How many things were changed, or would be.
    pub(crate) count: u64,
    pub(crate) details: Vec<String>,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JobState {
    /// It goes on.
    Running,
    /// All of it was done.
    Done,
    /// Some of it was not done: see the details.
    Incomplete,
    /// It failed.
    Failed,
}

impl JobState {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Incomplete => "incomplete",
            Self::Failed => "failed",
        }
    }
}

impl JobReport {
    pub(crate) fn of(job: &Job) -> Self {
        let (done, total) = job.progress.get();
        let (state, said, count, details) = match &job.end {
            None => (JobState::Running, None, 0, Vec::new()),
            Some(Ok(outcome)) => {
                let state = if outcome.incomplete { JobState::Incomplete } else { JobState::Done };
                (state, Some(outcome.said.clone()), outcome.count, outcome.details.clone())
            }
            Some(Err(trouble)) => (JobState::Failed, Some(trouble.to_string()), 0, Vec::new()),
        };
        Self {
            number: job.number,
            action: job.action.name(),
            by: job.by.clone(),
            since: Time(job.since_ms),
            state,
            dry_run: job.action.is_dry_run(),
            done,
            total,
            so_far: job.progress.so_far(),
            said,
            count,
            details,
        }
    }
}

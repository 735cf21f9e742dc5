//! Every check with what to do.

use oncebox_core::monitor::LoopReport;
use oncebox_core::store::{Finding, FindingLevel};
use schemars::JsonSchema;
use serde::Serialize;

use super::overview::STALL_LIMIT;
use super::{Level, Time};
use crate::backend::Look;

/// Of the loops so many are shown, the unhealthy ones first.
const SHOWN_LOOPS: usize = 200;

/// How the process and the database are.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Health {
    pub(crate) at: Time,
    pub(crate) level: Level,
    /// What was found in the database.
    pub(crate) checks: Vec<CheckResult>,
    /// The loops of this process; none if it only looks.
    pub(crate) loops: Vec<Loop>,
    /// How many healthy loops are not in the list.
    pub(crate) loops_left_out: usize,
    pub(crate) notes: Vec<String>,
}

/// What one check found.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct CheckResult {
    pub(crate) level: Level,
    pub(crate) subject: String,
    /// What was found, and what to do.
    pub(crate) detail: String,
}

/// A loop of this process.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Loop {
    pub(crate) name: String,
    pub(crate) detail: String,
    pub(crate) level: Level,
    /// How long it has had work without success.
    pub(crate) last_success_age_seconds: f64,
    pub(crate) problems: Vec<String>,
}

impl Health {
    pub(crate) fn of(look: &Look, findings: Vec<Finding>) -> Self {
        let checks: Vec<CheckResult> = findings.into_iter().map(CheckResult::of).collect();
        let mut loops: Vec<Loop> = look.loops.iter().map(Loop::of).collect();
        loops.sort_by_key(|one| std::cmp::Reverse(one.level));
        let levels = checks.iter().map(|check| check.level).chain(loops.iter().map(|one| one.level));
        let level = levels.max().unwrap_or(Level::Ok);
        let left_out = loops.len().saturating_sub(SHOWN_LOOPS);
        loops.truncate(SHOWN_LOOPS);
        let notes = look.notes.clone();
        Self { at: Time(look.at_ms), level, checks, loops, loops_left_out: left_out, notes }
    }
}

impl CheckResult {
    fn of(finding: Finding) -> Self {
        let level = match finding.level {
            FindingLevel::Ok => Level::Ok,
            FindingLevel::Warning => Level::Look,
            FindingLevel::Error => Level::Wrong,
        };
        Self { level, subject: finding.subject, detail: finding.detail }
    }
}

impl Loop {
    fn of(report: &LoopReport) -> Self {
        let level = match (report.is_unhealthy(STALL_LIMIT), &report.error) {
            (true, _) => Level::Wrong,
            (false, Some(_)) => Level::Look,
            (false, None) => Level::Ok,
        };
        let mut problems: Vec<String> = report.error.iter().cloned().collect();
        problems.extend(report.problems.iter().cloned());
        Self {
            name: report.name.clone(),
            detail: report.detail.clone(),
            level,
            last_success_age_seconds: report.age.as_secs_f64(),
            problems,
        }
    }
}

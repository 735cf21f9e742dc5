//! The page `/healthz`: what an operator should look at, and never more than fits on a page.

use std::collections::BTreeMap;
use std::time::Duration;

use oncebox_core::monitor::LoopReport;
use serde::Serialize;

/// A loop that has work and no success for this long is stalled.
pub(super) const STALL_LIMIT: Duration = Duration::from_secs(30);
/// Of the loops of one name so many are shown, the unhealthy ones first.
const SHOWN_OF_A_NAME: usize = 50;
/// Of the problems of one loop so many are shown.
const SHOWN_PROBLEMS: usize = 10;
/// Longer texts are cut.
const TEXT_CHARS: usize = 1_000;

/// The page.
#[derive(Serialize)]
pub(super) struct Health {
    pub(super) healthy: bool,
    /// Somebody wants them to stand still, so they are no reason to be red.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) paused: Vec<serde_json::Value>,
    loops: Vec<LoopHealth>,
    /// What is left out of `loops`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    more: Vec<More>,
}

#[derive(Serialize)]
struct LoopHealth {
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    detail: String,
    healthy: bool,
    last_success_age_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alarm: Option<String>,
}

/// `and 9,950 more`, in numbers.
#[derive(Serialize)]
struct More {
    name: String,
    healthy: usize,
    unhealthy: usize,
}

impl Health {
    pub(super) fn of(reports: Vec<LoopReport>) -> Self {
        let mut by_name: BTreeMap<String, Vec<LoopReport>> = BTreeMap::new();
        for report in reports {
            by_name.entry(report.name.clone()).or_default().push(report);
        }
        let unhealthy = |report: &LoopReport| report.is_unhealthy(STALL_LIMIT);
        let mut health = Self { healthy: true, paused: Vec::new(), loops: Vec::new(), more: Vec::new() };
        for (name, mut reports) in by_name {
            // Those that only have an error so far come next; the rest stays as it came.
            reports.sort_by_key(|report| (!unhealthy(report), report.error.is_none()));
            health.healthy &= !reports.first().is_some_and(unhealthy);
            let left_out = reports.split_off(reports.len().min(SHOWN_OF_A_NAME));
            health.loops.extend(reports.into_iter().map(shown));
            if !left_out.is_empty() {
                let bad = left_out.iter().filter(|report| unhealthy(report)).count();
                health.more.push(More { name, healthy: left_out.len() - bad, unhealthy: bad });
            }
        }
        health
    }
}

fn shown(report: LoopReport) -> LoopHealth {
    LoopHealth {
        healthy: !report.is_unhealthy(STALL_LIMIT),
        last_success_age_seconds: report.age.as_secs_f64(),
        name: report.name,
        detail: report.detail,
        error: report.error.map(cut),
        alarm: alarm(&report.problems),
    }
}

fn alarm(problems: &[String]) -> Option<String> {
    let mut shown: Vec<String> = problems.iter().take(SHOWN_PROBLEMS).cloned().map(cut).collect();
    if let Some(more) = problems.len().checked_sub(SHOWN_PROBLEMS).filter(|more| *more > 0) {
        shown.push(format!("and {more} more"));
    }
    (!shown.is_empty()).then(|| shown.join("; "))
}

fn cut(text: String) -> String {
    match text.char_indices().nth(TEXT_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use oncebox_core::monitor::Monitor;

    use super::*;
    use crate::output;

    #[test]
    fn ten_thousand_partitions_fit_on_a_page_and_the_bad_one_is_on_it() {
        let monitor = Monitor::default();
        let loops: Vec<_> = (0..10_000)
            .map(|partition| monitor.register("inbox:stock", format!("orders/{partition}")))
            .collect();
        loops.iter().for_each(|one| one.idle());
        loops[7_777].stopped(format!("halted at {}", "x".repeat(100_000)));
        let source = monitor.register("kafka:stock", "");
        for partition in 0..10_000 {
            source.problem(&format!("orders/{partition}"), format!("orders/{partition} has no leader"));
        }
        let page = Health::of(monitor.report());
        assert!(!page.healthy);
        assert_eq!((page.loops[0].detail.as_str(), page.loops[0].healthy), ("orders/7777", false));
        assert_eq!((page.more[0].healthy, page.more[0].unhealthy), (9_950, 0));
        let text = output::json_text(&page).unwrap();
        assert!(text.contains("orders/0 has no leader; ") && text.contains("; and 9990 more"), "{text}");
        assert!(text.len() < 20_000, "{} bytes", text.len());
    }

    #[test]
    fn what_is_left_out_counts() {
        let monitor = Monitor::default();
        let loops: Vec<_> = (0..60).map(|n| monitor.register("inbox:stock", n.to_string())).collect();
        loops.iter().for_each(|one| one.stopped("halted"));
        let page = Health::of(monitor.report());
        assert_eq!((page.loops.len(), page.more[0].unhealthy, page.more[0].healthy), (50, 10, 0));
    }
}

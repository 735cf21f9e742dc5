//! What was asked for, and what became of it.

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};

use super::{Ask, see};
use crate::action::Action;
use crate::html::{segment, state, table};
use crate::model::Level;
use crate::model::jobs::{JobReport, JobState};
use crate::text::{grouped, shown, when};

pub(super) async fn page(ask: Ask, Path(number): Path<u64>) -> Response {
    match ask.asked_for(number) {
        Ok(job) => {
            let (back, here) = back(&job.action);
            let job = JobReport::of(&job);
            let said = title(&job);
            let running = job.state == JobState::Running;
            let body = html! {
                section.panel.verdict.(level(job.state).class()) #job data-live data-again[running] {
                    h1 { (said) }
                    p.fine { (job.action) ", asked for by " (shown(&job.by)) " " (when(job.since.0, now())) }
                    @if running && job.total > 0 {
                        progress max=(job.total) value=(job.done) { (grouped(job.done)) " of " (grouped(job.total)) }
                        p { (grouped(job.done)) " of " (grouped(job.total)) }
                    } @else if running && job.done > 0 {
                        p { (grouped(job.done)) " so far" }
                    }
                    @if running && !job.so_far.is_empty() { p { (shown(&job.so_far)) } }
                    @if !job.details.is_empty() {
                        ul.details { @for line in &job.details { li { (shown(line)) } } }
                    }
                }
                @if running && ask.may_act() {
                    form method="post" action=(format!("/jobs/{number}/cancel")) {
                        button { "Stop it" }
                        span.help { "It ends between two steps; what was done stays done." }
                    }
                }
                p { a href=(back) { "Back" } }
            };
            ask.show(&said, here, true, body)
        }
        Err(trouble) => ask.trouble("/health", &trouble),
    }
}

pub(super) async fn cancel(ask: Ask, Path(number): Path<u64>) -> Response {
    match ask.cancel(number) {
        Ok(()) => see(&format!("/jobs/{number}")),
        Err(trouble) => ask.trouble("/health", &trouble),
    }
}

/// The last ones.
pub(super) fn list(jobs: &[JobReport], now_ms: i64) -> Markup {
    let rows = jobs.iter().map(|job| {
        html! {
            tr {
                th scope="row" { a href=(format!("/jobs/{}", job.number)) { (job.number) } }
                td { (when(job.since.0, now_ms)) }
                td { (shown(&job.by)) }
                td { (job.action) @if job.dry_run { " " span.tag { "dry run" } } }
                td { (state(level(job.state), job.state.as_str())) }
                td.why { (shown(job.said.as_deref().unwrap_or_default())) }
            }
        }
    });
    table("Asked for here", &["Number", "When", "By", "What", "State", "What became of it"], rows.collect())
}

fn title(job: &JobReport) -> String {
    match &job.said {
        Some(said) => said.clone(),
        None => "It goes on".to_owned(),
    }
}

fn level(state: JobState) -> Level {
    match state {
        JobState::Running | JobState::Done => Level::Ok,
        JobState::Incomplete => Level::Look,
        JobState::Failed => Level::Wrong,
    }
}

/// The page that it was asked for on, and its entry in the menu.
fn back(action: &Action) -> (String, &'static str) {
    match action {
        Action::EditDead(edit) if !edit.replay => (format!("/dead/{}?payload=show", edit.number), "/dead"),
        Action::ReplayDead(_) | Action::EditDead(_) | Action::DropDead { .. } => {
            ("/dead".to_owned(), "/dead")
        }
        Action::PublishNow { .. } | Action::ParkEvents { .. } | Action::DropEvents { .. } => {
            ("/outbox".to_owned(), "/outbox")
        }
        Action::Purge { .. } => ("/retention".to_owned(), "/retention"),
        Action::Pause { consumer, .. } | Action::Resume { consumer } => {
            (format!("/consumers/{}", segment(consumer)), "/")
        }
        Action::MovePosition(wanted) => (format!("/consumers/{}", segment(&wanted.consumer)), "/"),
    }
}

fn now() -> i64 {
    oncebox_core::clock::Clock::system().now_ms()
}

//! Health: every check with what to do, and who did what.

use axum::response::Response;
use maud::{Markup, html};

use super::Ask;
use super::job;
use crate::html::{empty, notes, or_dash, plain, state, table};
use crate::model::Level;
use crate::model::audit::AuditList;
use crate::model::health::{Health, Loop};
use crate::model::jobs::JobReport;
use crate::text::{duration, shown, when};

/// So many of the last things that were asked for are shown.
const SHOWN_JOBS: usize = 20;

pub(super) async fn page(ask: Ask) -> Response {
    let asked = tokio::try_join!(ask.site.look(), ask.site.read(|backend| backend.checks()), ask.audit());
    let (look, checks, audit) = match asked {
        Ok(answers) => answers,
        Err(trouble) => return ask.trouble("/health", &trouble),
    };
    let seen = Health::of(&look, checks);
    let jobs: Vec<JobReport> = ask.site.jobs.latest(SHOWN_JOBS).iter().map(JobReport::of).collect();
    let said = match seen.level {
        Level::Ok => "Everything that was checked is as it should be",
        Level::Look => "Something wants a look",
        Level::Wrong => "Something does not work",
    };
    let body = html! {
        section.panel.verdict.(seen.level.class()) #health-verdict data-live { h1 { (said) } }
        (notes(&seen.notes))
        section aria-labelledby="checks" {
            h2 #checks { "Database" }
            ul.checks #check-list data-live {
                @for check in &seen.checks {
                    li { (state(check.level, &shown(&check.subject))) span { (shown(&check.detail)) } }
                }
            }
        }
        section aria-labelledby="loops" {
            h2 #loops { "Loops of this process" }
            div #loop-table data-live { (loops(&seen)) }
        }
        section aria-labelledby="audit" {
            h2 #audit { "Who did what" }
            div #audit-table data-live { (done(&audit, look.at_ms)) }
        }
        section aria-labelledby="jobs" {
            h2 #jobs { "Asked for here" }
            div #job-table data-live {
                @if jobs.is_empty() { (empty("Nothing was asked for in this process.")) } @else { (job::list(&jobs, look.at_ms)) }
            }
        }
    };
    ask.show("Health", "/health", true, body)
}

fn done(audit: &AuditList, now_ms: i64) -> Markup {
    if audit.actions.is_empty() {
        return empty("Nobody has changed anything.");
    }
    let rows = audit.actions.iter().map(|one| {
        html! {
            tr {
                td { (when(one.at.0, now_ms)) }
                td { (shown(&one.who)) }
                td { (shown(&one.action)) }
                td { (or_dash(one.consumer.as_deref(), |consumer| plain(shown(consumer)))) }
                td.why { (shown(&one.parameters)) }
                td.why {
                    @if let Some(error) = &one.error { (state(Level::Wrong, "failed")) " " (shown(error)) " " }
                    @if one.ended_at.is_none() { (state(Level::Look, "not ended")) " " }
                    (shown(&one.result))
                }
            }
        }
    });
    html! {
        (table("Who did what", &["When", "Who", "What", "Consumer", "How", "What came of it"], rows.collect()))
        @if let Some(next) = audit.next { p { a rel="next" href=(format!("/health?before={next}#audit")) { "Earlier" } } }
    }
}

fn loops(seen: &Health) -> Markup {
    if seen.loops.is_empty() {
        return empty("This process only looks: a daemon has loops, and its own dashboard shows them.");
    }
    let rows = seen.loops.iter().map(|one| {
        html! {
            tr {
                th scope="row" { (shown(&one.name)) }
                td.id { (shown(&one.detail)) }
                td { (word(one)) }
                td.number { (duration(std::time::Duration::from_secs_f64(one.last_success_age_seconds.max(0.0)))) }
                td.why { @for problem in &one.problems { div { (shown(problem)) } } }
            }
        }
    });
    html! {
        (table("Loops", &["Loop", "Of", "State", "Without success for", "Problem"], rows.collect()))
        @if seen.loops_left_out > 0 { p.fine { "And " (seen.loops_left_out) " more that are not shown." } }
    }
}

fn word(one: &Loop) -> Markup {
    let word = match one.level {
        Level::Ok => "well",
        Level::Look => "fails, tries again",
        Level::Wrong => "unhealthy",
    };
    state(one.level, word)
}

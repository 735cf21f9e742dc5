//! Overview: in five seconds whether every message changes the database once.

use axum::response::Response;
use maud::{Markup, html};

use super::Ask;
use crate::chart::chart;
use crate::history::History;
use crate::html::{empty, figure, notes, or_dash, plain, segment, state};
use crate::model::Level;
use crate::model::overview::{Consumer, Outbox, Overview, State, Verdict};
use crate::text::{capped, duration, grouped, rate, share, shown, when};

pub(super) async fn page(ask: Ask) -> Response {
    let look = match ask.site.look().await {
        Ok(look) => look,
        Err(trouble) => return ask.trouble("/", &trouble),
    };
    let body = {
        let history = ask.site.history();
        let seen = Overview::of(&look, &history);
        html! {
            (verdict(&seen.verdict))
            (notes(&seen.notes))
            section aria-labelledby="consumers" {
                h2 #consumers { "Consumers" }
                div.cards #consumer-cards data-live {
                    @if seen.consumers.is_empty() {
                        (empty("No consumer yet: add an [[inbox]] to the configuration, and start a daemon with oncebox run."))
                    }
                    @for one in &seen.consumers { (card(one, &history, look.at_ms)) }
                }
            }
            section aria-labelledby="outbox" {
                h2 #outbox { a href="/outbox" { "Outbox" } }
                div.cards #outbox-card data-live { (outbox(&seen.outbox, &history, look.at_ms, look.runs)) }
            }
            p.fine #overview-foot data-live {
                "About " (grouped(seen.receipts_estimate)) " receipts. Numbers are those of the database, for all processes together; "
                "rates and charts are what this process has seen since "
                (or_dash(seen.history_since, |since| when(since.0, look.at_ms))) "."
            }
        }
    };
    ask.show("Overview", "/", true, body)
}

fn verdict(verdict: &Verdict) -> Markup {
    html! {
        section.panel.verdict.(verdict.level.class()) #verdict data-live {
            h1 { (verdict.said) }
            @if !verdict.reasons.is_empty() {
                ul.reasons {
                    @for reason in &verdict.reasons {
                        li {
                            @let word = if reason.level == Level::Wrong { "wrong" } else { "look" };
                            (state(reason.level, word)) " " a href=(reason.page) { (shown(&reason.said)) }
                        }
                    }
                }
            }
        }
    }
}

pub(super) fn state_of(one: &Consumer) -> Markup {
    let level = match one.state {
        State::Running | State::New => Level::Ok,
        State::Paused => Level::Look,
        State::Stopped => Level::Wrong,
    };
    state(level, one.state.as_str())
}

fn card(one: &Consumer, history: &History, now_ms: i64) -> Markup {
    let window = history.window(now_ms);
    let (applied, duplicates) = (
        history.rates(&one.consumer, |counts| counts.applied),
        history.rates(&one.consumer, |counts| counts.duplicates),
    );
    let label = format!("{}: applied per second, and duplicates as a line", shown(&one.consumer));
    html! {
        article.panel.card {
            header {
                h3 { a href=(format!("/consumers/{}", segment(&one.consumer))) { (shown(&one.consumer)) } }
                (state_of(one))
                @if let Some(reads) = &one.reads { span.reads { (shown(reads)) } }
            }
            dl.figures { (figures(one, now_ms)) }
            figure.plot {
                (chart(&label, window, &applied, Some(&duplicates)))
                figcaption { "applied/s, " span.key-over { "duplicates/s" } ", last " (minutes(window)) }
            }
        }
    }
}

/// The numbers of a consumer.
pub(super) fn figures(one: &Consumer, now_ms: i64) -> Markup {
    let whole = one.applied + one.duplicates_suppressed;
    let suppressed = html! {
        @if let Some(share) = share(one.duplicates_suppressed, whole) { (share) " of all" }
        @for (cause, number) in one.duplicates_by_cause.shown() {
            ", " (grouped(number)) " " (cause.in_words())
        }
    };
    let behind = html! {
        @match one.oldest_unapplied_seconds {
            Some(0.0) => "nothing waits",
            Some(seconds) => { "oldest " (duration(std::time::Duration::from_secs_f64(seconds.max(0.0)))) },
            None if one.lag == Some(0) => "nothing waits",
            None => { @if let Some(at) = one.caught_up_at { "caught up " (when(at.0, now_ms)) } @else { "never caught up" } },
        }
    };
    let letters = format!("/dead?consumer={}", segment(&one.consumer));
    html! {
        (figure("Applied per second", &or_dash(one.applied_per_second, |r| plain(rate(r))),
            Some(html! { (grouped(one.applied)) " in all" })))
        (figure("Duplicates suppressed", &plain(grouped(one.duplicates_suppressed)), Some(suppressed)))
        (figure("Lag", &or_dash(one.lag, |lag| plain(grouped(lag))), Some(behind)))
        (figure("Dead letters", &html! {
            @if one.dead_letters > 0 { a.attention href=(letters) { (capped(one.dead_letters)) } } @else { "0" }
        }, None))
    }
}

fn outbox(outbox: &Outbox, history: &History, now_ms: i64, runs: bool) -> Markup {
    let window = history.window(now_ms);
    let (published, waiting) = (history.publishing_rates(), history.waiting());
    let oldest =
        outbox.oldest_seconds.map(|seconds| duration(std::time::Duration::from_secs_f64(seconds.max(0.0))));
    html! {
        article.panel.card {
            dl.figures {
                (figure("Waiting", &plain(capped(outbox.waiting)), Some(html! {
                    (capped(outbox.held)) " held, " (capped(outbox.delayed)) " delayed"
                })))
                (figure("Oldest", &or_dash(oldest, plain), None))
                (figure("Published per second", &or_dash(outbox.published_per_second, |r| plain(rate(r))),
                    Some(html! { @if runs { "by this process" } @else { "known to processes that run a relay" } })))
                (figure("Parked", &html! {
                    @if outbox.parked > 0 { a.attention href="/outbox?state=parked" { (capped(outbox.parked)) } } @else { "0" }
                }, None))
            }
            figure.plot {
                @if published.is_empty() {
                    (chart("Events that wait", window, &waiting, None))
                    figcaption { "waiting, last " (minutes(window)) }
                } @else {
                    (chart("Events published per second by this process", window, &published, None))
                    figcaption { "published/s, last " (minutes(window)) }
                }
            }
        }
    }
}

fn minutes((from, to): (i64, i64)) -> String {
    duration(std::time::Duration::from_millis(to.abs_diff(from)))
}

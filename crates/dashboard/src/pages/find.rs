//! Find: one message by its id.

use axum::response::Response;
use maud::{Markup, html};

use super::Ask;
use crate::html::{empty, or_dash, plain, segment, state, table};
use crate::model::Level;
use crate::model::events::EventRow;
use crate::model::find::{FoundConsumer, FoundMessage, FoundState};
use crate::text::{short, shown, when};

pub(super) async fn page(ask: Ask) -> Response {
    let found = match ask.find().await {
        Ok(found) => found,
        Err(trouble) => return ask.trouble("/find", &trouble),
    };
    let body = html! {
        h1 { "Find a message" }
        (asking(&ask))
        @match &found {
            Some(found) => (answer(&ask, found)),
            None => (empty("Type the id of a message: its receipt, its dead letter and the events that it caused are looked for.")),
        }
    };
    ask.show("Find", "/find", false, body)
}

fn asking(ask: &Ask) -> Markup {
    let value = |name: &str| ask.fields.maybe(name).unwrap_or_default();
    html! {
        form.filters method="get" action="/find" role="search" aria-label="Message" {
            label { "Message id" input name="id" value=(value("id")) required; }
            label { "Tenant" input name="tenant" value=(value("tenant")); }
            label { "Consumer" input name="consumer" value=(value("consumer")) placeholder="all"; }
            button { "Find" }
        }
    }
}

fn answer(ask: &Ask, found: &FoundMessage) -> Markup {
    let now_ms = oncebox_core::clock::Clock::system().now_ms();
    html! {
        (verdict(found))
        @if !found.consumers.is_empty() {
            section aria-labelledby="consumers" {
                h2 #consumers { "Consumers" }
                (consumers(&found.consumers, now_ms))
            }
        }
        @if found.seen {
            section aria-labelledby="events" {
                h2 #events { "Events it caused" }
                @if found.events.is_empty() {
                    (empty("None is in the outbox. What is published leaves it, unless the configuration keeps it for a while."))
                } @else { (events(&found.events, now_ms)) }
            }
        }
        dl.facts {
            @for trace in &found.traces {
                div { dt { "Trace" } dd { (trace_of(ask, trace)) } }
            }
            div { dt { "Asked" } dd { (asked(&found.asked)) } }
            div { dt { "On the command line" } dd { code.copy { (shown(&found.command)) } } }
        }
        @if !found.all_tenants {
            p.note { "Messages of this configuration have tenants. A receipt is found by its tenant only: type that too." }
        }
        @if !found.whole_outbox { p.note { "Only the newest events of the outbox were looked at." } }
    }
}

fn verdict(found: &FoundMessage) -> Markup {
    let given_up = found.consumers.iter().any(|at| at.state == FoundState::GivenUp);
    let (level, said) = match (found.seen, given_up) {
        (false, _) => (Level::Look, "Not seen"),
        (true, true) => (Level::Wrong, "Given up"),
        (true, false) if found.consumers.is_empty() => (Level::Look, "Only its events are known"),
        (true, false) => (Level::Ok, "Settled"),
    };
    html! {
        section.panel.verdict.(level.class()) #verdict {
            h2 { (said) ": " span.id { (shown(&found.message_id)) } }
            @if !found.seen { p { "No consumer has a receipt or a dead letter of it, and no event in the outbox was caused by it." } }
            @else if given_up { p { "It has a dead letter: it was not applied." } }
        }
    }
}

fn consumers(found: &[FoundConsumer], now_ms: i64) -> Markup {
    let rows = found.iter().map(|at| {
        let (level, word) = match at.state {
            FoundState::Settled => (Level::Ok, "settled"),
            FoundState::GivenUp => (Level::Wrong, "given up"),
        };
        html! {
            tr {
                th scope="row" { a href=(format!("/consumers/{}", segment(&at.consumer))) { (shown(&at.consumer)) } }
                td.id { (or_dash(Some(&at.tenant).filter(|tenant| !tenant.is_empty()), |tenant| plain(short(tenant)))) }
                td { (state(level, word)) }
                td { (or_dash(at.receipt_at, |time| when(time.0, now_ms))) }
                td.why {
                    @for letter in &at.dead_letters {
                        div { a href=(format!("/dead/{}", letter.number)) { "Dead letter " (letter.number) } " " (when(letter.failed_at.0, now_ms)) ": " (short(&letter.error)) }
                    }
                }
            }
        }
    });
    table("Consumers", &["Consumer", "Tenant", "State", "Receipt", "Dead letters"], rows.collect())
}

fn events(found: &[EventRow], now_ms: i64) -> Markup {
    let rows = found.iter().map(|event| {
        let level = match event.state {
            "parked" => Level::Wrong,
            "held" => Level::Look,
            _ => Level::Ok,
        };
        html! {
            tr {
                th scope="row" { a href=(format!("/outbox?state={}&topic={}", event.state, segment(&event.topic))) { (event.number) } }
                td.id { (shown(&event.topic)) }
                td { (state(level, event.state)) @if let Some(at) = event.state_at { " " (when(at.0, now_ms)) } }
                td { (or_dash(event.consumer.as_deref(), |consumer| plain(shown(consumer)))) }
                td { (when(event.created_at.0, now_ms)) }
                td.number { (event.attempts) }
                td.why { (short(event.error.as_deref().unwrap_or_default())) }
            }
        }
    });
    table("Events", &["Number", "Topic", "State", "Written by", "Written", "Tries", "Error"], rows.collect())
}

/// To whatever shows traces, if the configuration says what that is.
fn trace_of(ask: &Ask, trace: &str) -> Markup {
    match &ask.site.settings.trace_url {
        Some(template) => {
            html! { a href=(template.replace("{trace}", trace)) rel="noreferrer" { code { (trace) } } }
        }
        None => html! { code.copy { (trace) } },
    }
}

fn asked(consumers: &[String]) -> String {
    if consumers.is_empty() {
        return "nobody: no consumer is known".to_owned();
    }
    consumers.iter().map(|consumer| shown(consumer)).collect::<Vec<_>>().join(", ")
}

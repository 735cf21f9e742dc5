//! Outbox: who publishes, what waits and why.

use std::time::Duration;

use axum::response::Response;
use maud::{Markup, html};
use oncebox_core::store::EventState;

use super::Ask;
use crate::html::{empty, figure, or_dash, plain, segment, table};
use crate::model::events::{EventList, EventRow, OutboxDetail, STATES, Shard};
use crate::text::{capped, duration, rate, short, shown, when};

pub(super) async fn page(ask: Ask) -> Response {
    let (look, events) = match tokio::join!(ask.site.look(), ask.events()) {
        (Ok(look), Ok(events)) => (look, events),
        (Err(trouble), _) | (_, Err(trouble)) => return ask.trouble("/outbox", &trouble),
    };
    let detail = OutboxDetail::of(&look, &ask.site.history());
    let outbox = &detail.outbox;
    let oldest = outbox.oldest_seconds.map(|seconds| duration(Duration::from_secs_f64(seconds.max(0.0))));
    let body = html! {
        h1 { "Outbox" }
        section.panel #outbox-figures data-live {
            dl.figures {
                (figure("Waiting", &plain(capped(outbox.waiting)), None))
                (figure("Oldest", &or_dash(oldest, plain), None))
                (figure("Held", &plain(capped(outbox.held)), Some(plain("their delivery failed, or an earlier one of their key"))))
                (figure("Delayed", &plain(capped(outbox.delayed)), Some(plain("their time has not come"))))
                (figure("Parked", &plain(capped(outbox.parked)), Some(plain("given up"))))
                (figure("Published per second", &or_dash(outbox.published_per_second, |r| plain(rate(r))), Some(plain("by this process"))))
            }
        }
        section aria-labelledby="events" {
            h2 #events { "Events" }
            (tabs(&ask))
            (events_table(&ask, &events, look.at_ms))
        }
        section aria-labelledby="shards" {
            h2 #shards { "Shards" }
            div #shard-table data-live { (shards(&detail.shards)) }
        }
    };
    ask.show("Outbox", "/outbox", true, body)
}

fn chosen(ask: &Ask) -> String {
    ask.fields.maybe("state").unwrap_or_else(|| EventState::Parked.as_str().to_owned())
}

fn tabs(ask: &Ask) -> Markup {
    let chosen = chosen(ask);
    html! {
        nav.tabs aria-label="States" {
            @for state in STATES.map(EventState::as_str) {
                @let path = format!("/outbox?state={state}");
                @if state == chosen { a href=(path) aria-current="true" { (state) } } @else { a href=(path) { (state) } }
            }
        }
        form.filters method="get" action="/outbox" role="search" aria-label="Filter" {
            input type="hidden" name="state" value=(chosen);
            label { "Topic" input name="topic" value=(ask.fields.maybe("topic").unwrap_or_default()); }
            label { "Key" input name="key" value=(ask.fields.maybe("key").unwrap_or_default()); }
            button { "Filter" }
        }
    }
}

fn events_table(ask: &Ask, found: &EventList, now_ms: i64) -> Markup {
    let state = chosen(ask);
    if found.events.is_empty() {
        return empty(&format!("No event is {state}."));
    }
    let can_go = ask.may_act() && ["parked", "held", "delayed"].contains(&state.as_str());
    let mut head = vec!["Number", "Written", "Topic", "State", "Tries", "Caused by", "Error"];
    if can_go {
        head.insert(0, "");
    }
    let rows = found.events.iter().map(|event| row(event, can_go, now_ms)).collect();
    let list = table("Events", &head, rows);
    html! {
        @if can_go {
            form method="post" action="/do/publish-now" {
                (list)
                div.row {
                    button { "Publish the chosen now" }
                    @if state == "parked" {
                        details.inline {
                            summary { "Drop…" }
                            button.danger formaction="/do/drop-events" { "Drop the chosen: they will never be published" }
                        }
                    }
                }
            }
        } @else { (list) }
        @if let Some(next) = found.next {
            @let kept = ["topic", "key"].map(|name| ask.fields.maybe(name).map(|value| format!("&{name}={}", segment(&value))).unwrap_or_default());
            p { a rel="next" href=(format!("/outbox?state={}{}&after={next}", segment(&state), kept.concat())) { "Next page" } }
        }
    }
}

fn row(event: &EventRow, can_go: bool, now_ms: i64) -> Markup {
    html! {
        tr {
            @if can_go {
                td { input type="checkbox" name="numbers" value=(event.number) aria-label=(format!("choose {}", event.number)); }
            }
            th scope="row" { span title=(event.id) { (event.number) } }
            td { (when(event.created_at.0, now_ms)) }
            td.id { (shown(&event.topic)) }
            td { (event.state) @if let Some(at) = event.state_at { " " (when(at.0, now_ms)) } }
            td.number { (event.attempts) }
            td.id { (or_dash(event.caused_by.as_deref(), |id| plain(short(id)))) }
            td.why { (short(event.error.as_deref().unwrap_or_default())) }
        }
    }
}

fn shards(shards: &[Shard]) -> Markup {
    if shards.iter().all(|shard| shard.owner.is_none()) {
        return empty("No relay publishes: set `relay = true` under [outbox] in a process that runs.");
    }
    let rows = shards.iter().map(|shard| {
        let left =
            |seconds: f64| plain(format!("{} left", duration(Duration::from_secs_f64(seconds.max(0.0)))));
        html! {
            tr {
                th.number scope="row" { (shard.shard) }
                td { (or_dash(shard.owner.as_deref(), |owner| plain(shown(owner)))) }
                td.number { (shard.epoch) }
                td { (or_dash(shard.expires_in_seconds, left)) }
            }
        }
    });
    table("Shards", &["Shard", "Relay", "Epoch", "Lease"], rows.collect())
}

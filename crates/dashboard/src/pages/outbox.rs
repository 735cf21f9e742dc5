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
        return match found.next {
            Some(next) => html! {
                (empty(&format!("None of the oldest events that were looked at is {state}.")))
                (further(ask, next, "Look at younger ones"))
            },
            None => empty(&format!("No event is {state}.")),
        };
    }
    let may_act = ask.may_act();
    let can = Can {
        publish: may_act && ["parked", "held", "delayed"].contains(&state.as_str()),
        park: may_act && ["pending", "held", "delayed"].contains(&state.as_str()),
        discard: may_act && state == "parked",
    };
    let with_keys = found.events.iter().any(|event| event.key.is_some());
    let mut head = vec!["Number", "Written", "Topic", state_head(&state), "Tries", "Caused by", "Error"];
    if with_keys {
        head.insert(3, "Key");
    }
    if can.any() {
        head.insert(0, "");
    }
    let rows = found.events.iter().map(|event| row(event, can.any(), with_keys, now_ms)).collect();
    let list = table("Events", &head, rows);
    html! {
        @if can.any() {
            form method="post" action=(if can.publish { "/do/publish-now" } else { "/do/park-events" }) {
                (list)
                (can.buttons())
            }
        } @else { (list) }
        (keys_link(ask, &state, with_keys))
        @if let Some(next) = found.next { (further(ask, next, "Next page")) }
    }
}

fn further(ask: &Ask, next: i64, said: &str) -> Markup {
    let page = format!("/outbox?state={}{}&after={next}", segment(&chosen(ask)), kept(ask));
    html! { p { a rel="next" href=(page) { (said) } } }
}

/// What can be done to events in one state.
#[derive(Debug, Clone, Copy)]
struct Can {
    publish: bool,
    park: bool,
    discard: bool,
}

impl Can {
    fn any(self) -> bool {
        self.publish || self.park || self.discard
    }

    fn buttons(self) -> Markup {
        html! {
            @if self.publish { div.row { button { "Publish the chosen now" } } }
            @if self.park {
                details {
                    summary { "Park…" }
                    div.row {
                        label { "Reason" input name="reason" placeholder="why they are given up"; }
                        button.danger formaction="/do/park-events" { "Park the chosen" }
                        span.help { "What is behind them goes on. They stay here until they are published or dropped." }
                    }
                }
            }
            @if self.discard {
                details {
                    summary { "Drop…" }
                    button.danger formaction="/do/drop-events" { "Drop the chosen: they will never be published" }
                }
            }
        }
    }
}

/// What the time beside a state means.
fn state_head(state: &str) -> &'static str {
    match state {
        "held" => "Next try",
        "delayed" => "Its time",
        _ => "State",
    }
}

/// Keys may be somebody's name, so they are shown when somebody asks.
fn keys_link(ask: &Ask, state: &str, with_keys: bool) -> Markup {
    let kept = kept(ask);
    let path = format!("/outbox?state={}{kept}&payload=show", segment(state));
    html! { @if ask.may_show() && !with_keys { p.fine { a href=(path) { "Show their keys" } } } }
}

/// The filters, for a link.
fn kept(ask: &Ask) -> String {
    let pair = |name: &str| ask.fields.maybe(name).map(|value| format!("&{name}={}", segment(&value)));
    ["topic", "key"].into_iter().filter_map(pair).collect()
}

fn row(event: &EventRow, can_go: bool, with_keys: bool, now_ms: i64) -> Markup {
    html! {
        tr {
            @if can_go {
                td { input type="checkbox" name="numbers" value=(event.number) aria-label=(format!("choose {}", event.number)); }
            }
            th scope="row" { span title=(event.id) { (event.number) } }
            td { (when(event.created_at.0, now_ms)) }
            td.id { (shown(&event.topic)) }
            @if with_keys { td.id { (or_dash(event.key.as_ref(), |key| plain(short(&key.to_string())))) } }
            td {
                @match (event.state, event.state_at) {
                    ("held" | "delayed", Some(at)) => (when(at.0, now_ms)),
                    (state, Some(at)) => { (state) " " (when(at.0, now_ms)) },
                    // It waits for another one of its key.
                    ("held", None) => "after an earlier one of its key",
                    (state, None) => (state),
                }
            }
            td.number { (event.attempts) }
            td.id { (or_dash(event.caused_by.as_deref(), |id| html! { a href=(format!("/find?id={}", segment(id))) { (short(id)) } })) }
            td.why { (short(event.error.as_deref().unwrap_or_default())) }
        }
    }
}

fn shards(shards: &[Shard]) -> Markup {
    if shards.iter().all(|shard| shard.owner.is_none()) {
        return empty("No relay publishes: set `relay = true` under [outbox] in a process that runs.");
    }
    let left = |seconds: f64| plain(format!("{} left", duration(Duration::from_secs_f64(seconds.max(0.0)))));
    // Mostly one relay has many of them in a row.
    let alike = shards.chunk_by(|one, next| (&one.owner, one.epoch) == (&next.owner, next.epoch));
    let rows = alike.filter_map(|run| {
        let (first, last) = (run.first()?, run.last()?);
        let soonest = run.iter().filter_map(|shard| shard.expires_in_seconds).min_by(f64::total_cmp);
        Some(html! {
            tr {
                th scope="row" { (first.shard) @if run.len() > 1 { "–" (last.shard) } }
                td { (or_dash(first.owner.as_deref(), |owner| plain(shown(owner)))) }
                td.number { (first.epoch) }
                td { (or_dash(soonest, left)) }
            }
        })
    });
    table("Shards", &["Shards", "Relay", "Epoch", "Lease"], rows.collect())
}

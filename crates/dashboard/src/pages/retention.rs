//! Retention: whether receipts outlive the messages they belong to.

use axum::response::Response;
use maud::{Markup, html};

use super::Ask;
use crate::html::{empty, notes, or_dash, plain, segment, state, table};
use crate::model::Level;
use crate::model::retention::{Retention, RetentionList};
use crate::text::{duration, grouped, shown, when};

pub(super) async fn page(ask: Ask) -> Response {
    let look = match ask.site.look().await {
        Ok(look) => look,
        Err(trouble) => return ask.trouble("/retention", &trouble),
    };
    let seen = RetentionList::of(&look);
    let head = ["Consumer", "Receipts kept", "Horizon", "Purged before", "Horizon held by", "Topics"];
    let body = html! {
        h1 { "Retention" }
        p.lead {
            "About " strong { (grouped(seen.receipts_estimate)) } " receipts. A receipt may go when it is older than the horizon: the time "
            "up to which all partitions are caught up, minus how long receipts are kept."
        }
        (notes(&look.notes))
        div #retention-table data-live {
            @if seen.consumers.is_empty() { (empty("No consumer yet.")) } @else {
                (table("Retention", &head, seen.consumers.iter().map(|one| row(one, look.at_ms)).collect()))
            }
        }
        @if ask.may_act() {
            section.panel.actions aria-labelledby="actions" {
                h2 #actions { "Actions" }
                form method="post" action="/do/purge" {
                    div.row {
                        button name="dry_run" value="true" { "Count what could go" }
                        button { "Purge now" }
                    }
                    span.help { "Removes what is beyond the horizon, in small steps. " code { "oncebox run" } " does it by itself now and then." }
                }
            }
        }
    };
    ask.show("Retention", "/retention", true, body)
}

fn row(one: &Retention, now_ms: i64) -> Markup {
    html! {
        tr {
            th scope="row" { a href=(format!("/consumers/{}", segment(&one.consumer))) { (shown(&one.consumer)) } }
            td {
                @match one.keep_seconds {
                    Some(seconds) => (duration(std::time::Duration::from_secs(seconds))),
                    None => span title="the configuration does not know it, so none of them is removed" { "for ever" },
                }
            }
            td { (or_dash(one.horizon, |at| when(at.0, now_ms))) }
            td { (or_dash(one.purged_before, |at| when(at.0, now_ms))) }
            td {
                (or_dash(one.held_by.as_ref(), |held| html! {
                    (shown(&held.topic)) "/" (held.partition) ", "
                    @match held.caught_up_at {
                        Some(at) => { "caught up " (when(at.0, now_ms)) },
                        None => { (state(Level::Look, "never caught up")) },
                    }
                }))
            }
            td.why {
                @if one.topics.is_empty() { (or_dash(None::<()>, |()| plain(""))) }
                @for topic in &one.topics {
                    div { (state(topic.level, &shown(&topic.topic))) " " (shown(&topic.said)) }
                }
            }
        }
    }
}

//! Consumer: its partitions, what holds the retention, pause and resume, move.

use std::time::Duration;

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};

use super::Ask;
use super::overview::{figures, state_of};
use crate::backend::Trouble;
use crate::chart::chart;
use crate::html::{empty, hidden, notes, or_dash, plain, state, table};
use crate::model::Level;
use crate::model::consumer::{ConsumerDetail, Partition};
use crate::text::{duration, grouped, short, shown, when};

pub(super) async fn page(ask: Ask, Path(name): Path<String>) -> Response {
    let look = match ask.site.look().await {
        Ok(look) => look,
        Err(trouble) => return ask.trouble("/", &trouble),
    };
    let detail = ConsumerDetail::of(&look, &ask.site.history(), &name);
    let Some(detail) = detail else {
        return ask.trouble("/", &Trouble::Missing(format!("nobody knows a consumer {name}")));
    };
    let body = {
        let history = ask.site.history();
        let window = history.window(look.at_ms);
        let one = &detail.consumer;
        let (applied, duplicates) =
            (history.rates(&name, |counts| counts.applied), history.rates(&name, |counts| counts.duplicates));
        html! {
            section.panel #consumer-head data-live {
                header.title {
                    h1 { (shown(&one.consumer)) }
                    (state_of(one))
                    @if let Some(reads) = &one.reads { span.reads { (shown(reads)) } }
                }
                @if let Some(pause) = &one.paused {
                    p.note {
                        "Paused " (when(pause.since.0, look.at_ms)) " by " (shown(&pause.by))
                        @if let Some(reason) = &pause.reason { ": " (shown(reason)) }
                    }
                }
                dl.figures { (figures(one, look.at_ms)) }
                div.plots {
                    figure.plot {
                        (chart("Applied per second, and duplicates as a line", window, &applied, Some(&duplicates)))
                        figcaption { "applied/s, " span.key-over { "duplicates/s" } }
                    }
                    figure.plot {
                        (chart("Messages that are not applied yet", window, &history.lags(&name), None))
                        figcaption { "lag in messages" }
                    }
                }
            }
            @for trouble in &detail.troubles {
                section.panel.verdict.is-wrong { h2 { (shown(&trouble.place)) } p { (shown(&trouble.why)) } }
            }
            (notes(&detail.notes))
            section aria-labelledby="partitions" {
                h2 #partitions { "Partitions" }
                div #partition-table data-live { (partitions(&detail, look.at_ms)) }
            }
            @if ask.may_act() { (actions(&detail)) }
        }
    };
    ask.show(&shown(&name), "/", true, body)
}

fn partitions(detail: &ConsumerDetail, now_ms: i64) -> Markup {
    if detail.partition_list.is_empty() {
        return empty("It has no position yet: nothing was read for it.");
    }
    let head = [
        "Partition",
        "State",
        "Position",
        "Lag",
        "Oldest",
        "Last commit",
        "Caught up",
        "Owner",
        "Epoch",
        "Applied",
        "Duplicates",
    ];
    let rows = detail.partition_list.iter().map(|one| row(one, now_ms)).collect();
    html! {
        (table("Partitions", &head, rows))
        @if detail.partitions_left_out > 0 {
            p.fine { "And " (grouped(detail.partitions_left_out as u64)) " more that are not shown." }
        }
    }
}

fn row(one: &Partition, now_ms: i64) -> Markup {
    let aged = |seconds: f64| plain(duration(Duration::from_secs_f64(seconds.max(0.0))));
    html! {
        tr {
            th scope="row" { (shown(&one.topic)) @if one.next_offset.is_some() { "/" (one.partition) } }
            td {
                @match (&one.stopped, one.retired) {
                    (Some(why), _) => { (state(Level::Wrong, "stopped")) div.why { (short(why)) } },
                    (None, true) => { span.tag { "retired" } },
                    (None, false) => {
                        @if one.holds_horizon {
                            span.tag title="Of all partitions it was caught up last so long ago: older receipts than that are kept" {
                                "holds the horizon"
                            }
                        }
                    },
                }
            }
            td.number { (or_dash(one.next_offset, |offset| plain(offset.to_string()))) }
            td.number { (or_dash(one.lag, |lag| plain(grouped(lag)))) }
            td.number { (or_dash(one.oldest_unapplied_seconds, aged)) }
            td { (when(one.last_commit.0, now_ms)) }
            td { (or_dash(one.caught_up_at, |at| when(at.0, now_ms))) }
            td { (or_dash(one.owner.as_deref(), |owner| plain(shown(owner)))) }
            td.number { (one.epoch) }
            td.number { (grouped(one.applied)) }
            td.number { (grouped(one.duplicates_suppressed)) }
        }
    }
}

fn actions(detail: &ConsumerDetail) -> Markup {
    let name = detail.consumer.consumer.as_str();
    html! {
        section.panel.actions aria-labelledby="actions" {
            h2 #actions { "Actions" }
            @if detail.consumer.paused.is_some() {
                form method="post" action="/do/resume" {
                    (hidden(&[("consumer", name)]))
                    button { "Resume" }
                    span.help { "Every process goes on within some seconds." }
                }
            } @else {
                form method="post" action="/do/pause" {
                    (hidden(&[("consumer", name)]))
                    label { "Why" input name="reason" maxlength="500" placeholder="for whoever finds it paused"; }
                    button { "Pause" }
                    span.help { "Every process ends what is in flight and takes nothing new, also after a restart." }
                }
            }
            @if detail.has_offsets { (movement(detail)) }
        }
    }
}

fn movement(detail: &ConsumerDetail) -> Markup {
    // What hides something is not put into a field: nobody would see what is sent.
    let plain = |topic: &&str| shown(topic) == **topic;
    let topics = detail.partition_list.iter().map(|one| one.topic.as_str()).filter(plain);
    let mut topics: Vec<&str> = topics.collect();
    topics.dedup();
    html! {
        details {
            summary { "Move the position" }
            form.stack method="post" action="/do/move-position" {
                (hidden(&[("consumer", &detail.consumer.consumer)]))
                label { "Topic" input name="topic" required list="topics" value=(topics.first().copied().unwrap_or_default()); }
                datalist id="topics" { @for topic in &topics { option value=(topic) {} } }
                label { "Partition" input name="partition" inputmode="numeric" placeholder="all"; }
                label { "To" input name="to" required placeholder="offset, earliest, latest, or 2026-11-01T00:00:00Z"; }
                label.check { input type="checkbox" name="accept_loss" value="true"; "Skip messages that were not applied" }
                div.row {
                    button name="dry_run" value="true" { "Dry run" }
                    label { "Type " code { (shown(&detail.consumer.consumer)) } " to move" input name="confirm" autocomplete="off"; }
                    button.danger { "Move" }
                }
                p.help { "Back is safe: receipts skip what was applied. The dry run says what would be skipped or applied again." }
            }
        }
    }
}

//! Dead letters: what failed alike, and the list with its filters.

use axum::response::Response;
use maud::{Markup, html};
use oncebox_core::store::MAX_KEYED_LETTERS;

use super::Ask;
use crate::html::{empty, hidden, or_dash, plain, segment, table};
use crate::model::letters::{self, FILTERS, Group, GroupList, LetterList, LetterRow, SINCE, UNTIL};
use crate::text::{grouped, short, shown, when};

pub(super) async fn list(ask: Ask) -> Response {
    match tokio::try_join!(ask.letters(), ask.groups()) {
        Ok((found, groups)) => {
            let body = html! {
                h1 { "Dead letters" }
                p.lead { "Messages that were given up, kept whole. A replay runs the handler again, in one transaction with its receipt." }
                (groups_table(&ask, &groups))
                (filters(&ask))
                div #letters { (letters_table(&ask, &found)) }
            };
            ask.show("Dead letters", "/dead", false, body)
        }
        Err(trouble) => ask.trouble("/dead", &trouble),
    }
}

fn filters(ask: &Ask) -> Markup {
    let names =
        ["Consumer", "Topic", "Tenant", "Message id", "Key", "Error", "Group", "Since (UTC)", "Until (UTC)"];
    html! {
        form.filters method="get" action="/dead" role="search" aria-label="Filter" {
            @for (field, name) in FILTERS.iter().zip(names) {
                @if [SINCE, UNTIL].contains(field) {
                    label.time { (name) input type="datetime-local" step="1" name=(field) value=(letters::field_time(&ask.fields, field).unwrap_or_default()); }
                } @else {
                    label { (name) input name=(field) value=(ask.fields.maybe(field).unwrap_or_default()); }
                }
            }
            button { "Filter" }
            @if is_filtered(ask) { a href="/dead" { "Show all" } }
        }
    }
}

fn is_filtered(ask: &Ask) -> bool {
    FILTERS.iter().any(|field| ask.fields.maybe(field).is_some())
}

/// What failed alike: one row, one button.
fn groups_table(ask: &Ask, found: &GroupList) -> Markup {
    if found.groups.is_empty() {
        return html! {};
    }
    let now_ms = oncebox_core::clock::Clock::system().now_ms();
    let mut head = vec!["Error", "Consumer", "Letters", "Keys held back", "First", "Last"];
    if ask.may_act() {
        head.push("Replay");
    }
    let rows = found.groups.iter().map(|group| group_row(ask, group, now_ms));
    html! {
        section aria-labelledby="groups" {
            h2 #groups { "What failed alike" }
            (table("Groups", &head, rows.collect()))
        }
        h2 { "Letters" }
    }
}

fn group_row(ask: &Ask, group: &Group, now_ms: i64) -> Markup {
    let letters = format!("/dead?group={}", segment(&group.group));
    let many = |number: u64, cap: u64| format!("{}{}", grouped(number), if number >= cap { "+" } else { "" });
    html! {
        tr {
            td.why { a href=(letters) { (short(&group.error)) } }
            td { (shown(&group.consumer)) }
            td.number { (many(group.letters, letters::GROUP_COUNT_CAP)) }
            td.number { (many(group.keys_held_back, MAX_KEYED_LETTERS)) }
            td { (when(group.first_at.0, now_ms)) }
            td { (when(group.last_at.0, now_ms)) }
            @if ask.may_act() {
                td {
                    form.tight method="post" action="/do/replay-dead" {
                        (hidden(&[("group", &group.group)]))
                        label { "At most" input name="limit" inputmode="numeric" size="5" placeholder="all"; }
                        label { "Per second" input name="rate" inputmode="numeric" size="5" placeholder="any"; }
                        button { "Replay" }
                        button name="dry_run" value="true" { "Dry run" }
                    }
                }
            }
        }
    }
}

fn letters_table(ask: &Ask, found: &LetterList) -> Markup {
    if found.letters.is_empty() {
        return match found.next {
            Some(next) => html! {
                (empty("None among the newest that were looked at."))
                (further(ask, next, "Look at older ones"))
            },
            None if is_filtered(ask) => empty("No dead letter matches."),
            None => empty("None: every message was applied."),
        };
    }
    let now_ms = oncebox_core::clock::Clock::system().now_ms();
    let may_act = ask.may_act();
    let mut head = vec!["Number", "Failed", "Consumer", "Message", "Place", "Tries", "Error"];
    if may_act {
        head.insert(0, "");
    }
    let rows = found.letters.iter().map(|letter| row(letter, may_act, now_ms)).collect();
    let list = table("Dead letters", &head, rows);
    html! {
        @if may_act {
            form method="post" action="/do/replay-dead" {
                (list)
                div.row {
                    button { "Replay the chosen" }
                    button name="dry_run" value="true" { "Dry run" }
                }
                details {
                    summary { "Drop…" }
                    div.row {
                        label { "Reason" input name="reason" placeholder="for the audit"; }
                        button.danger formaction="/do/drop-dead" { "Drop the chosen for good" }
                    }
                }
            }
        } @else { (list) }
        @if let Some(next) = found.next { (further(ask, next, "Next page")) }
        (export(ask))
    }
}

fn further(ask: &Ask, next: i64, said: &str) -> Markup {
    html! { p { a href=(next_page(ask, next)) rel="next" { (said) } } }
}

fn next_page(ask: &Ask, next: i64) -> String {
    format!("/dead?{}{}={next}", filters_of(ask), letters::CURSOR)
}

/// The filters as a query that something can be added to.
fn filters_of(ask: &Ask) -> String {
    let kept = ask.fields.pairs().filter(|(name, _)| *name != letters::CURSOR);
    kept.map(|(name, value)| format!("{}={}&", segment(name), segment(value))).collect()
}

/// The letters that the filters mean, as a file.
fn export(ask: &Ask) -> Markup {
    let kept: String = FILTERS
        .iter()
        .filter_map(|field| Some(format!("{field}={}&", segment(&ask.fields.maybe(field)?))))
        .collect();
    let path = format!("/api/v1/dead-letters/export?{kept}");
    html! {
        p.fine {
            "Export as JSON lines: " a href=(path.trim_end_matches(['&', '?'])) { "without what they hold" }
            @if ask.may_show() { ", " a href=(format!("{path}payload=show")) { "with key, payload and headers" } }
        }
    }
}

fn row(letter: &LetterRow, may_act: bool, now_ms: i64) -> Markup {
    html! {
        tr {
            @if may_act {
                td { input type="checkbox" name="numbers" value=(letter.number) aria-label=(format!("choose {}", letter.number)); }
            }
            th scope="row" { a href=(format!("/dead/{}", letter.number)) { (letter.number) } }
            td { (when(letter.failed_at.0, now_ms)) }
            td { (shown(&letter.consumer)) }
            td.id {
                (or_dash(letter.message_id.as_deref(), |id| plain(short(id))))
                @if !letter.tenant.is_empty() { " " span.tag { (short(&letter.tenant)) } }
            }
            td.id { (shown(&letter.topic)) "/" (letter.partition) "/" (letter.offset) }
            td.number { (letter.attempts) }
            td.why { @if letter.edited { span.tag { "edited" } " " } (short(&letter.error)) }
        }
    }
}

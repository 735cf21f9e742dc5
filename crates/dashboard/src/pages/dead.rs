//! Dead letters: the list with its filters, and one of them.

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};

use super::Ask;
use crate::html::{empty, hidden, or_dash, plain, segment, table};
use crate::model::letters::{Content, FILTERS, GroupList, Letter, LetterList, LetterRow};
use crate::model::{Bytes, letters};
use crate::site::Payloads;
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
    let names = ["Consumer", "Topic", "Tenant", "Message id", "Key", "Error", "Group"];
    html! {
        form.filters method="get" action="/dead" role="search" aria-label="Filter" {
            @for (field, name) in FILTERS.iter().zip(names) {
                label { (name) input name=(field) value=(ask.fields.maybe(field).unwrap_or_default()); }
            }
            button { "Filter" }
            @if FILTERS.iter().any(|field| ask.fields.maybe(field).is_some()) { a href="/dead" { "Show all" } }
        }
    }
}

/// What failed alike: one row, one button.
fn groups_table(ask: &Ask, found: &GroupList) -> Markup {
    if found.groups.is_empty() {
        return html! {};
    }
    let now_ms = oncebox_core::clock::Clock::system().now_ms();
    let mut head = vec!["Error", "Consumer", "Letters", "Keys", "First", "Last"];
    if ask.may_act() {
        head.push("Replay");
    }
    let rows = found.groups.iter().map(|group| {
        let letters = format!("/dead?group={}", segment(&group.group));
        html! {
            tr {
                td.why { a href=(letters) { (short(&group.error)) } }
                td { (shown(&group.consumer)) }
                td.number { (grouped(group.letters)) @if group.letters >= 1_000 { "+" } }
                td.number { (grouped(group.keys)) }
                td { (when(group.first_at.0, now_ms)) }
                td { (when(group.last_at.0, now_ms)) }
                @if ask.may_act() {
                    td {
                        form.tight method="post" action="/do/replay-dead" {
                            (hidden(&[("group", &group.group)]))
                            label { "At most" input name="limit" inputmode="numeric" size="5" placeholder="all"; }
                            label { "Per second" input name="rate" inputmode="numeric" size="5" placeholder="any"; }
                            button { "Replay" }
                        }
                    }
                }
            }
        }
    });
    html! {
        section aria-labelledby="groups" {
            h2 #groups { "What failed alike" }
            (table("Groups", &head, rows.collect()))
        }
        h2 { "Letters" }
    }
}

fn letters_table(ask: &Ask, found: &LetterList) -> Markup {
    if found.letters.is_empty() {
        let filtered = FILTERS.iter().any(|field| ask.fields.maybe(field).is_some());
        return empty(if filtered { "No dead letter matches." } else { "None: every message was applied." });
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
                    details.inline {
                        summary { "Drop…" }
                        button.danger formaction="/do/drop-dead" { "Drop the chosen for good" }
                    }
                }
            }
        } @else { (list) }
        @if let Some(next) = found.next { p { a href=(next_page(ask, next)) rel="next" { "Next page" } } }
    }
}

fn next_page(ask: &Ask, next: i64) -> String {
    let kept = ask.fields.pairs().filter(|(name, _)| *name != letters::CURSOR);
    let pairs: Vec<String> =
        kept.map(|(name, value)| format!("{}={}", segment(name), segment(value))).collect();
    format!("/dead?{}{}{}={next}", pairs.join("&"), if pairs.is_empty() { "" } else { "&" }, letters::CURSOR)
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

pub(super) async fn letter(ask: Ask, Path(number): Path<i64>) -> Response {
    let wanted = ask.fields.maybe("payload").as_deref() == Some("show");
    match ask.letter(number, wanted).await {
        Ok(letter) => ask.show(&format!("Dead letter {number}"), "/dead", false, one(&ask, &letter)),
        Err(trouble) => ask.trouble("/dead", &trouble),
    }
}

fn one(ask: &Ask, letter: &Letter) -> Markup {
    let now_ms = oncebox_core::clock::Clock::system().now_ms();
    let number = letter.number.to_string();
    let consumer = format!("/consumers/{}", segment(&letter.consumer));
    html! {
        p.path { a href="/dead" { "Dead letters" } }
        h1 { "Dead letter " (number) }
        section.panel.verdict.is-look { h2 { "Error" } pre.text { (shown_lines(&letter.error)) } }
        dl.facts {
            (fact("Consumer", &html! { a href=(consumer) { (shown(&letter.consumer)) } }))
            (fact("Message id", &or_dash(letter.message_id.as_deref(), |id| plain(shown(id)))))
            @if !letter.tenant.is_empty() { (fact("Tenant", &plain(shown(&letter.tenant)))) }
            (fact("Place", &html! { (shown(&letter.topic)) "/" (letter.partition) "/" (letter.offset) }))
            (fact("Given up", &when(letter.failed_at.0, now_ms)))
            (fact("Produced", &or_dash(letter.produced_at, |at| when(at.0, now_ms))))
            (fact("Tries", &plain(letter.attempts.to_string())))
            (fact("On the command line", &html! { code { "oncebox dead replay " (number) } }))
        }
        section aria-labelledby="message" {
            h2 #message { "Message" }
            @match &letter.content {
                Some(content) => (contents(content)),
                None => (masked(ask, letter)),
            }
        }
        @if ask.may_act() {
            section.panel.actions aria-labelledby="actions" {
                h2 #actions { "Actions" }
                form method="post" action="/do/replay-dead" {
                    (hidden(&[("numbers", &number)]))
                    button { "Replay" }
                    span.help { "Runs the handler again. If it fails, the letter stays as it is." }
                }
                details {
                    summary { "Drop…" }
                    form method="post" action="/do/drop-dead" {
                        (hidden(&[("numbers", &number)]))
                        button.danger { "Drop it for good" }
                        span.help { "Its receipt stays, so a copy is still skipped." }
                    }
                }
            }
        }
    }
}

fn masked(ask: &Ask, letter: &Letter) -> Markup {
    let size = letter
        .payload_bytes
        .map_or_else(|| "no payload".to_owned(), |bytes| format!("{} bytes", grouped(bytes)));
    html! {
        p {
            (size) ", " (letter.header_names.len()) " headers"
            @if !letter.header_names.is_empty() {
                ": " @for (nth, name) in letter.header_names.iter().enumerate() { @if nth > 0 { ", " } code { (short(name)) } }
            }
        }
        @match ask.site.settings.payloads {
            Payloads::Mask => p { a.button href=(format!("/dead/{}?payload=show", letter.number)) { "Show what it holds" } },
            Payloads::Hide => p.fine { "What messages hold is not shown here (payloads = \"hide\")." },
        }
    }
}

fn contents(content: &Content) -> Markup {
    html! {
        dl.facts {
            (fact("Key", &or_dash(content.key.as_ref(), bytes)))
            @for header in &content.headers {
                (fact(&short(&header.name), &or_dash(header.value.as_ref(), bytes)))
            }
        }
        @match &content.payload {
            Some(payload) => { pre.payload tabindex="0" aria-label="Payload" { (bytes_lines(payload)) } },
            None => { p.fine { "No payload: a tombstone." } },
        }
    }
}

fn bytes(bytes: &Bytes) -> Markup {
    match bytes {
        Bytes::Text(text) => plain(shown(text)),
        Bytes::Base64(text) => html! { code { "base64 " (text) } },
    }
}

fn bytes_lines(bytes: &Bytes) -> Markup {
    match bytes {
        Bytes::Text(text) => shown_lines(text),
        Bytes::Base64(text) => plain(text),
    }
}

/// Several lines, with everything shown that hides itself.
fn shown_lines(text: &str) -> Markup {
    let lines: Vec<String> = text.lines().map(shown).collect();
    html! { (lines.join("\n")) }
}

fn fact(name: &str, value: &Markup) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

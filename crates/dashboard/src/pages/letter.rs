//! One dead letter: why it failed, what it holds, what was changed of it, what can be done.

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};

use super::Ask;
use crate::diff::{self, Line};
use crate::html::{fact, hidden, or_dash, plain, segment};
use crate::model::Bytes;
use crate::model::letters::{Content, Edited, Letter};
use crate::text::{grouped, short, shown, when};

pub(super) async fn page(ask: Ask, Path(number): Path<i64>) -> Response {
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
            (fact("Message id", &or_dash(letter.message_id.as_deref(), |id| found(letter, id))))
            @if !letter.tenant.is_empty() { (fact("Tenant", &plain(shown(&letter.tenant)))) }
            (fact("Place", &html! { (shown(&letter.topic)) "/" (letter.partition) "/" (letter.offset) }))
            (fact("Given up", &when(letter.failed_at.0, now_ms)))
            (fact("Produced", &or_dash(letter.produced_at, |at| when(at.0, now_ms))))
            (fact("Tries", &plain(letter.attempts.to_string())))
            (fact("Failed alike", &html! { a href=(format!("/dead?group={}", segment(&letter.group))) { "group " (letter.group) } }))
            (fact("On the command line", &html! { code.copy { "oncebox dead replay " (number) } }))
        }
        section aria-labelledby="message" {
            h2 #message { "Message" }
            @match &letter.content {
                Some(content) => (contents(content)),
                None => (masked(ask, letter)),
            }
        }
        @if let Some(edit) = &letter.edit { (changes(letter, edit, now_ms)) }
        @if ask.may_act() { (actions(ask, &number)) }
    }
}

/// The id, with all that is known of its message.
fn found(letter: &Letter, id: &str) -> Markup {
    let mut path = format!("/find?id={}&consumer={}", segment(id), segment(&letter.consumer));
    if !letter.tenant.is_empty() {
        path.push_str(&format!("&tenant={}", segment(&letter.tenant)));
    }
    html! { a href=(path) { (shown(id)) } }
}

fn actions(ask: &Ask, number: &str) -> Markup {
    html! {
        section.panel.actions aria-labelledby="actions" {
            h2 #actions { "Actions" }
            form method="post" action="/do/replay-dead" {
                (hidden(&[("numbers", number)]))
                button { "Replay" }
                button name="dry_run" value="true" { "Dry run" }
                span.help { "Runs the handler again. If it fails, the letter stays as it is." }
            }
            @if ask.may_show() {
                p { a.button href=(format!("/dead/{number}/edit")) { "Edit…" } " " span.help { "What arrived is kept beside it." } }
            }
            details {
                summary { "Drop…" }
                form method="post" action="/do/drop-dead" {
                    (hidden(&[("numbers", number)]))
                    label { "Reason" input name="reason" placeholder="for the audit"; }
                    button.danger { "Drop it for good" }
                    span.help { "Its receipt stays, so a copy is still skipped." }
                }
            }
        }
    }
}

/// Who has changed it, and what.
fn changes(letter: &Letter, edit: &Edited, now_ms: i64) -> Markup {
    html! {
        section aria-labelledby="changes" {
            h2 #changes { "Changed" }
            p {
                (when(edit.at.0, now_ms)) " by " (shown(&edit.by))
                @if letter.edits > 1 { ", " (letter.edits) " times in all" }
                ". What arrived is kept until the letter goes."
            }
            @match (&edit.original, &letter.content) {
                (Some(original), Some(content)) => (difference(original, content)),
                _ => p.fine { "What was changed is shown with what the message holds." },
            }
        }
    }
}

/// What arrived against what it is now, line by line.
pub(super) fn difference(was: &Content, is: &Content) -> Markup {
    let mut lines = diff::of_texts(&around(was), &around(is));
    lines.extend(diff::of_texts(&payload(was), &payload(is)));
    html! {
        div.scroll role="region" aria-label="What was changed" tabindex="0" {
            pre.diff {
                @for line in &lines {
                    @match line {
                        Line::Same(text) => span { "  " (shown(text)) "\n" },
                        Line::Gone(text) => del { "- " (shown(text)) "\n" },
                        Line::New(text) => ins { "+ " (shown(text)) "\n" },
                    }
                }
            }
        }
    }
}

fn around(content: &Content) -> String {
    let of = |bytes: Option<&Bytes>| bytes.map_or_else(|| "none".to_owned(), ToString::to_string);
    let mut text = format!("key: {}\n", of(content.key.as_ref()));
    for header in &content.headers {
        text.push_str(&format!("header {}: {}\n", header.name, of(header.value.as_ref())));
    }
    text
}

fn payload(content: &Content) -> String {
    content.payload.as_ref().map_or_else(|| "no payload: a tombstone".to_owned(), ToString::to_string)
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
        @if ask.may_show() {
            p { a.button href=(format!("/dead/{}?payload=show", letter.number)) { "Show what it holds" } }
        } @else {
            p.fine { "What messages hold is not shown here (payloads = \"hide\")." }
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

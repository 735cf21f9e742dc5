//! Changing a dead letter before it is replayed.

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{Markup, html};
use oncebox_core::store::LetterContent;

use super::letter::difference;
use super::{Ask, refusal};
use crate::api::HIDDEN;
use crate::backend::Trouble;
use crate::edit::{as_pairs, is_plain, others};
use crate::html::hidden;
use crate::model::letters::Letter;
use crate::text::shown;

/// What is larger does not fit into a form.
pub(super) const LARGEST_PAYLOAD: usize = 1024 * 1024;

pub(super) async fn page(ask: Ask, Path(number): Path<i64>) -> Response {
    if !ask.may_act() {
        return refusal(StatusCode::FORBIDDEN, "Your token may read, not act.");
    }
    if !ask.may_show() {
        return ask.trouble("/dead", &Trouble::Refused(HIDDEN.to_owned()));
    }
    let stored = match ask.stored_letter(number).await {
        Ok(stored) => stored,
        Err(trouble) => return ask.trouble("/dead", &trouble),
    };
    let content = LetterContent::of(&stored.letter.record);
    if content.payload.as_ref().is_some_and(|payload| payload.len() > LARGEST_PAYLOAD) {
        let text = format!("its payload is too large for a form: use `oncebox dead edit {number}`");
        return ask.trouble("/dead", &Trouble::Refused(text));
    }
    let letter = Letter::of(&stored, true);
    let body = html! {
        p.path { a href="/dead" { "Dead letters" } " / " a href=(format!("/dead/{number}")) { (number) } }
        h1 { "Edit dead letter " (number) }
        p.lead { "What arrived is kept beside it until the letter goes. The id stays: the receipt is written under it." }
        (form(&letter, &content))
        @if let (Some(now), Some(was)) = (&letter.content, letter.edit.as_ref().and_then(|edit| edit.original.as_ref())) {
            h2 { "What arrived, against what it is now" }
            (difference(was, now))
        }
    };
    ask.show(&format!("Edit dead letter {number}"), "/dead", false, body)
}

fn form(letter: &Letter, content: &LetterContent) -> Markup {
    let (number, seen) = (letter.number.to_string(), letter.edits.to_string());
    let headers: Vec<String> =
        as_pairs(&content.headers).iter().map(|(name, value)| format!("{name}={value}")).collect();
    let left = others(&content.headers);
    html! {
        form.stack.wide method="post" action="/do/edit-dead" {
            (hidden(&[("number", &number), ("seen", &seen)]))
            (payload(content))
            label.check { input type="checkbox" name="tombstone" value="true" checked[content.payload.is_none()]; "No payload: a tombstone" }
            (key(content))
            label {
                "Headers, a line for each: NAME=VALUE"
                textarea name="headers" rows=(headers.len().clamp(2, 12)) spellcheck="false" { "\n" (headers.join("\n")) }
            }
            @if left > 0 { p.fine { (left) " more that are not a line of text stay as they are." } }
            div.row {
                button name="replay" value="true" { "Save and replay" }
                button.quiet { "Save" }
                a href=(format!("/dead/{number}")) { "Leave it as it is" }
            }
        }
    }
}

/// A text that a browser would change, and what is none, stands there in Base64.
fn payload(content: &LetterContent) -> Markup {
    let bytes = content.payload.as_deref().unwrap_or_default();
    match std::str::from_utf8(bytes).ok().filter(|text| is_plain(text)) {
        Some(text) => html! {
            label {
                "Payload"
                // The first line break of a field is not part of it.
                textarea.code name="payload" rows=(text.lines().count().clamp(6, 30)) spellcheck="false" { "\n" (text) }
            }
        },
        None => html! {
            label {
                "Payload, in Base64: it is no plain text"
                textarea.code name="payload_base64" rows="8" spellcheck="false" { "\n" (STANDARD.encode(bytes)) }
            }
        },
    }
}

/// A key that is no line of text stays as it is.
fn key(content: &LetterContent) -> Markup {
    let is_line = |text: &&str| is_plain(text) && !text.contains('\n');
    match &content.key {
        None => html! { label { "Key" input name="key" placeholder="none"; } },
        Some(key) => match std::str::from_utf8(key).ok().filter(is_line) {
            Some(text) => html! { label { "Key" input name="key" value=(text); } },
            None => {
                html! { p.fine { "The key is no line of text, and stays as it is: " (shown(&String::from_utf8_lossy(key))) } }
            }
        },
    }
}

//! What all pages have in common.

use maud::{DOCTYPE, Markup, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::access::{Caller, Role};
use crate::model::Level;
use crate::text;

const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A text as it stands in a path or a query.
pub(crate) fn segment(text: &str) -> String {
    utf8_percent_encode(text, UNRESERVED).to_string()
}

/// The pages of the menu.
const MENU: [(&str, &str); 6] = [
    ("/", "Overview"),
    ("/find", "Find"),
    ("/dead", "Dead letters"),
    ("/outbox", "Outbox"),
    ("/retention", "Retention"),
    ("/health", "Health"),
];

/// A page for somebody, or for nobody yet.
pub(crate) struct Page<'a> {
    pub(crate) title: &'a str,
    /// The entry of the menu it belongs to.
    pub(crate) here: &'a str,
    pub(crate) caller: Option<&'a Caller>,
    /// Whether it keeps itself up to date.
    pub(crate) live: bool,
    pub(crate) body: Markup,
}

impl Page<'_> {
    pub(crate) fn render(&self) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) " · oncebox" }
                    link rel="icon" href="/assets/icon.svg" type="image/svg+xml";
                    link rel="stylesheet" href="/assets/dashboard.css";
                    @if self.live { script type="module" src="/assets/live.js" {} }
                }
                body {
                    a.skip href="#main" { "Skip to the content" }
                    header.top {
                        a.brand href="/" { (mark()) span { "oncebox" } }
                        @if let Some(caller) = self.caller {
                            nav aria-label="Pages" {
                                @for (path, name) in MENU {
                                    @if path == self.here { a href=(path) aria-current="page" { (name) } }
                                    @else { a href=(path) { (name) } }
                                }
                            }
                            @if self.here != "/find" {
                                form.find method="get" action="/find" role="search" aria-label="Find a message" {
                                    input type="search" name="id" placeholder="Message id" aria-label="Message id" required;
                                    button.quiet { "Find" }
                                }
                            }
                            div.who {
                                span.who-name title=(format!("may {}", caller.role.as_str())) { (text::shown(&caller.name)) }
                                @if caller.role == Role::Read { span.tag { "read only" } }
                                @if caller.has_cookie {
                                    form method="post" action=(crate::pages::SIGN_OUT) { button.link { "Sign out" } }
                                }
                            }
                        }
                    }
                    main #main tabindex="-1" { (self.body) }
                    footer {
                        @if self.live { span #live-state role="status" { "Reload to see what is new." } }
                        a href="/api/v1/openapi.json" { "API" }
                        span { "oncebox " (env!("CARGO_PKG_VERSION")) }
                    }
                }
            }
        }
    }
}

/// The mark: a box that lets one through.
fn mark() -> Markup {
    html! {
        svg.mark viewBox="0 0 24 24" aria-hidden="true" focusable="false" {
            path.mark-box d="M4 8.5 12 4l8 4.5v7L12 20l-8-4.5z" {}
            path.mark-tick d="m8.2 12.1 2.7 2.7 5-5.4" {}
        }
    }
}

/// A number with what it is.
pub(crate) fn figure(name: &str, value: &Markup, more: Option<Markup>) -> Markup {
    html! {
        div.figure {
            dt { (name) }
            dd { span.value { (value) } @if let Some(more) = more { span.more { (more) } } }
        }
    }
}

/// A word that says how something is, not by colour alone.
pub(crate) fn state(level: Level, word: &str) -> Markup {
    let sign = match level {
        Level::Ok => "●",
        Level::Look => "▲",
        Level::Wrong => "■",
    };
    html! { span.state.(level.class()) { span.sign aria-hidden="true" { (sign) } (word) } }
}

/// What is not known, and why.
pub(crate) fn notes(notes: &[String]) -> Markup {
    html! { @for note in notes { p.note { (text::shown(note)) } } }
}

/// Nothing to show, and why that is good or what to do.
pub(crate) fn empty(said: &str) -> Markup {
    html! { p.empty { (said) } }
}

/// Dashes for what is not known.
pub(crate) fn or_dash<T>(value: Option<T>, show: impl FnOnce(T) -> Markup) -> Markup {
    match value {
        Some(value) => show(value),
        None => html! { span.unknown title="not known" { "–" } },
    }
}

/// A text as it is, from our own code.
pub(crate) fn plain(text: impl AsRef<str>) -> Markup {
    let text = text.as_ref();
    html! { (text) }
}

/// Columns of numbers. What stands above them is on the right, as they are.
const OF_NUMBERS: [&str; 12] = [
    "Applied",
    "Duplicates",
    "Epoch",
    "Keys",
    "Keys held back",
    "Lag",
    "Letters",
    "Oldest",
    "Position",
    "Shard",
    "Tries",
    "Without success for",
];

/// A table that scrolls by itself where there is no room for it. Its section is the landmark, not the table.
pub(crate) fn table(label: &str, head: &[&str], rows: Vec<Markup>) -> Markup {
    html! {
        div.scroll role="group" aria-label=(label) tabindex="0" {
            table {
                thead { tr { @for name in head { (heading(name)) } } }
                tbody { @for row in rows { (row) } }
            }
        }
    }
}

fn heading(name: &str) -> Markup {
    html! {
        @if name.is_empty() { td {} }
        @else if OF_NUMBERS.contains(&name) { th.number scope="col" { (name) } }
        @else { th scope="col" { (name) } }
    }
}

/// Hidden fields of a form.
pub(crate) fn hidden(pairs: &[(&str, &str)]) -> Markup {
    html! { @for (name, value) in pairs { input type="hidden" name=(name) value=(value); } }
}

/// A name with its value.
pub(crate) fn fact(name: &str, value: &Markup) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

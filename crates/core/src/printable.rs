//! Text from outside, made safe for terminals and logs.
//!
//! Ids, keys, headers, payloads and errors may hold anything: escape sequences that move the cursor or set the title of a
//! terminal, line breaks that forge a line of the log, overrides that make text read backwards, characters that nobody
//! sees. Whatever does not show itself is written as what it is.

use std::borrow::Cow;
use std::fmt::{self, Display, Write};

/// Shows a text on one line, with everything escaped that does not show itself: a line break as `\n`, others as `\u{1b}`.
/// Printable text stays as it is, without a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Printable<'a>(pub &'a str);

impl Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_escaped(f, self.0, is_hidden, |f, hidden| match hidden {
            '\n' => f.write_str("\\n"),
            '\r' => f.write_str("\\r"),
            '\t' => f.write_str("\\t"),
            _ => write!(f, "\\u{{{:x}}}", u32::from(hidden)),
        })
    }
}

/// A text on one line as [`Printable`] shows it.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    if text.contains(is_hidden) { Printable(text).to_string().into() } else { text.into() }
}

/// The same for a text of our own of several lines: line breaks stay.
#[must_use]
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    if !text.contains(|c| c != '\n' && is_hidden(c)) {
        return text.into();
    }
    let lines: Vec<Cow<'_, str>> = text.split('\n').map(printable).collect();
    lines.join("\n").into()
}

/// A JSON document that is the same document, and safe to look at: what JSON lets pass in its strings (DEL, C1, overrides)
/// is written as `\u009b`.
#[must_use]
pub fn printable_json(json: &str) -> Cow<'_, str> {
    // A serializer has escaped the line breaks of strings: these are the layout.
    let is_hidden = |c: char| c != '\n' && is_hidden(c);
    if !json.contains(is_hidden) {
        return json.into();
    }
    let mut text = String::with_capacity(json.len() + 16);
    let escape = |text: &mut String, hidden: char| {
        let mut units = [0; 2];
        hidden.encode_utf16(&mut units).iter().try_for_each(|unit| write!(text, "\\u{unit:04x}"))
    };
    // Writing to a string does not fail.
    write_escaped(&mut text, json, is_hidden, escape).ok();
    text.into()
}

/// Copies a text in as few pieces as possible.
fn write_escaped<W: Write>(
    out: &mut W,
    text: &str,
    is_hidden: impl Fn(char) -> bool,
    escape: impl Fn(&mut W, char) -> fmt::Result,
) -> fmt::Result {
    let mut rest = text;
    while let Some(at) = rest.find(&is_hidden) {
        let (shown, from_hidden) = rest.split_at(at);
        out.write_str(shown)?;
        let mut chars = from_hidden.chars();
        if let Some(hidden) = chars.next() {
            escape(out, hidden)?;
        }
        rest = chars.as_str();
    }
    out.write_str(rest)
}

/// Whether a character does something else than show itself: control characters, line separators, and the characters that
/// Unicode lets a reader ignore (joiners, overrides, marks, tags, fillers), except for the selectors that choose between
/// the text and the picture of an emoji.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{70f}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown_instead() {
        for (text, shown) in [
            ("a\u{1b}[2Jb", "a\\u{1b}[2Jb"),
            ("\u{1b}]0;title\u{7}", "\\u{1b}]0;title\\u{7}"),
            ("one\r\n\ttwo\0", "one\\r\\n\\ttwo\\u{0}"),
            ("\u{7f}\u{9b}31m", "\\u{7f}\\u{9b}31m"),
            ("in\u{202e}voice", "in\\u{202e}voice"),
            ("pay\u{200b}pal", "pay\\u{200b}pal"),
            ("\u{feff}bom\u{2028}", "\\u{feff}bom\\u{2028}"),
            ("tag\u{e0041}", "tag\\u{e0041}"),
        ] {
            assert_eq!(Printable(text).to_string(), shown);
            assert_eq!(printable(text), shown);
        }
    }

    #[test]
    fn printable_text_is_not_even_copied() {
        for text in ["", "order-17", "Grüße, 世界 ✔ ❤\u{fe0f}", "a\\u{1b} that is already text"] {
            assert!(matches!(printable(text), Cow::Borrowed(same) if same == text));
            assert!(matches!(printable_lines(text), Cow::Borrowed(same) if same == text));
            assert!(matches!(printable_json(text), Cow::Borrowed(same) if same == text));
            assert_eq!(Printable(text).to_string(), text);
        }
    }

    #[test]
    fn lines_of_our_own_stay_lines() {
        assert_eq!(printable_lines("one\ntwo\u{1b}\n"), "one\ntwo\\u{1b}\n");
        assert!(matches!(printable_lines("one\ntwo"), Cow::Borrowed(_)));
    }

    #[test]
    fn json_stays_the_same_document() {
        let value =
            serde_json::json!({"id": "a\u{7f}\u{9b}31m\u{202e}\u{e0041}\u{1b}[2J\n", "more": [1, "é"]});
        let text = printable_json(&serde_json::to_string_pretty(&value).unwrap()).into_owned();
        assert!(text.contains("\\u007f\\u009b31m\\u202e\\udb40\\udc41\\u001b[2J\\n"), "{text}");
        assert!(text.contains("é"));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }

    /// Any text, with many of the characters that matter.
    fn text() -> impl Strategy<Value = String> {
        let hidden = prop_oneof![
            proptest::char::range('\0', '\u{1f}'),
            proptest::char::range('\u{7f}', '\u{9f}'),
            proptest::char::range('\u{200b}', '\u{206f}'),
            proptest::char::range('\u{e0000}', '\u{e01ef}'),
        ];
        let any = prop_oneof![proptest::char::any(), hidden, proptest::char::range(' ', '~')];
        prop::collection::vec(any, 0..40).prop_map(|chars| chars.into_iter().collect())
    }

    proptest! {
        #[test]
        fn nothing_hidden_survives(text in text()) {
            let shown = Printable(&text).to_string();
            prop_assert!(!shown.contains(is_hidden), "{:?}", shown);
            prop_assert!(!shown.contains(char::is_control), "{:?}", shown);
            prop_assert_eq!(&printable(&text), &shown);
            let lines = printable_lines(&text).into_owned();
            prop_assert!(!lines.contains(|c| c != '\n' && is_hidden(c)), "{:?}", lines);
            prop_assert_eq!(lines.matches('\n').count(), text.matches('\n').count());
        }

        #[test]
        fn what_shows_itself_is_unchanged(text in text()) {
            let visible: String = text.chars().filter(|c| !is_hidden(*c)).collect();
            prop_assert_eq!(Printable(&visible).to_string(), visible);
        }

        #[test]
        fn any_text_survives_in_json(text in text()) {
            let json = serde_json::to_string(&text).unwrap();
            let safe = printable_json(&json);
            prop_assert!(!safe.contains(is_hidden), "{:?}", safe);
            prop_assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), text);
        }
    }
}

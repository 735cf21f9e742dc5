//! Text of others, made fit for an error message: short, printable, without our secrets.

use oncebox_core::printable::printable;

/// Shorter ones would be found by chance.
const SHORTEST_SECRET: usize = 6;

/// What may never appear in an error.
#[derive(Clone, Default)]
pub(crate) struct Secrets(Vec<String>);

impl Secrets {
    pub(crate) fn add(&mut self, secret: &str) {
        if secret.len() >= SHORTEST_SECRET {
            self.0.push(secret.to_owned());
            // The longest first: one may be part of another.
            self.0.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        }
    }

    /// The text without them.
    pub(crate) fn remove_from(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret, "***"))
    }
}

/// At most this many characters, on one line. A database takes no NUL, and a terminal obeys control characters.
pub(crate) fn one_line(text: &str, max: usize) -> String {
    let mut line: String = printable(text.trim()).chars().take(max + 1).collect();
    if let Some((end, _)) = line.char_indices().nth(max) {
        line.replace_range(end.., "…");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_printable_and_short() {
        assert_eq!(one_line(" a\r\nb\0c\u{1b}[31m ", 200), "a\\r\\nb\\u{0}c\\u{1b}[31m");
        assert_eq!(one_line("äöü", 3), "äöü");
        assert_eq!(one_line("äöüß", 3), "äöü…");
    }

    #[test]
    fn a_secret_inside_another_is_removed_too() {
        let mut secrets = Secrets::default();
        secrets.add("canary");
        secrets.add("Bearer canary");
        secrets.add("or");
        assert_eq!(secrets.remove_from("a Bearer canary or a canary"), "a *** or a ***");
    }
}

//! Errors that read alike: what makes a group of dead letters.

use std::iter::Peekable;
use std::str::Chars;

use sha2::{Digest, Sha256};

use super::MAX_SUMMARY_BYTES;

/// What stands for a value.
const VALUE: char = '?';

/// The name of the group that a dead letter belongs to: twelve hexadecimal digits, of the consumer and of its error without numbers,
/// ids and quoted values. It fits into an address and onto a command line.
///
/// All groups of a consumer begin with the same four digits ([`group_prefix`]), so one index on the name serves both questions.
/// It goes by what a list shows of an error, so that it can be told of every line of one. Stores keep it: if it ever has to change,
/// a migration has to forget what they keep.
///
/// ```
/// use oncebox::store::error_group;
///
/// let one = error_group("stock", "order 17: no such article \"A-1\"");
/// assert_eq!(one, error_group("stock", "order 4711: no such article \"B-2\""));
/// assert_ne!(one, error_group("stock", "order 17: no such customer \"A-1\""));
/// ```
#[must_use]
pub fn error_group(consumer: &str, error: &str) -> String {
    let digest = Sha256::digest(without_values(error).as_bytes());
    group_prefix(consumer) + &hexadecimal(&digest[..4])
}

/// What the names of all groups of a consumer begin with.
#[must_use]
pub fn group_prefix(consumer: &str) -> String {
    hexadecimal(&Sha256::digest(consumer.as_bytes())[..2])
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What an error says, whatever message it was about.
fn without_values(error: &str) -> String {
    let shown: String = error.chars().filter(|c| *c != '\0').take(MAX_SUMMARY_BYTES).collect();
    let mut text = String::with_capacity(shown.len());
    let mut rest = shown.chars().peekable();
    let mut before = ' ';
    while let Some(&next) = rest.peek() {
        match next {
            // Not an apostrophe.
            '\'' | '"' | '`' if !before.is_alphanumeric() => {
                rest.next();
                skip_past(&mut rest, next);
                text.push(VALUE);
            }
            // How PostgreSQL quotes the values of a key.
            '(' if before == '=' => {
                rest.next();
                skip_past(&mut rest, ')');
                text.push(VALUE);
            }
            _ if is_of_word(next) => text.push_str(&word(&mut rest)),
            _ if next.is_whitespace() => {
                rest.next();
                if !before.is_whitespace() {
                    text.push(' ');
                }
            }
            _ => {
                rest.next();
                text.push(next);
            }
        }
        before = if next.is_whitespace() { next } else { text.chars().next_back().unwrap_or(' ') };
    }
    text
}

/// A text that was cut may end within a value.
fn skip_past(rest: &mut Peekable<Chars<'_>>, end: char) {
    for skipped in rest.by_ref() {
        if skipped == end {
            return;
        }
    }
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-')
}

/// The next word, or what stands for it if it has a digit: numbers, ids, times.
fn word(rest: &mut Peekable<Chars<'_>>) -> String {
    let mut word = String::new();
    while let Some(c) = rest.next_if(|c| is_of_word(*c)) {
        word.push(c);
    }
    if !word.contains(|c: char| c.is_ascii_digit()) {
        return word;
    }
    // A point or a colon within a number, a version or a time.
    loop {
        let mut ahead = rest.clone();
        let separates = matches!(ahead.next(), Some('.' | ':' | ','));
        if !separates || !ahead.peek().is_some_and(char::is_ascii_digit) {
            return VALUE.into();
        }
        rest.next();
        while rest.next_if(|c| is_of_word(*c)).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_taken_out() {
        for (error, alike) in [
            ("order 17 failed", "order ? failed"),
            ("order -17.25 failed", "order ? failed"),
            ("at 2026-11-01T10:00:00.5Z: no", "at ?: no"),
            ("no such article 'A-1', \"x y\" or `z`", "no such article ?, ? or ?"),
            ("can't, don't, won't", "can't, don't, won't"),
            ("Key (sku)=(abc) exists", "Key (sku)=? exists"),
            ("message 01890a5d-ac96-774b-bcce-b302099a8057 of a", "message ? of a"),
            ("0xdeadbeef01 and cafe", "? and cafe"),
            ("two\n  lines\tof it", "two lines of it"),
            ("", ""),
        ] {
            assert_eq!(without_values(error), alike, "{error}");
        }
        let cut = format!("no such article \"{}", "x".repeat(1_000));
        assert_eq!(without_values(&cut), "no such article ?");
    }

    #[test]
    fn a_group_is_of_one_consumer() {
        let group = error_group("stock", "no such stock");
        assert_eq!(group.len(), 12);
        assert!(group.starts_with(&group_prefix("stock")));
        assert_ne!(group, error_group("ledger", "no such stock"));
        assert_ne!(group, error_group("stock", "no such article"));
    }

    #[test]
    fn what_a_list_shows_has_the_group_of_the_whole() {
        let long = format!("{} 17 'ü' {}", "ü".repeat(300), "x".repeat(9_000));
        let shown: String = long.chars().take(MAX_SUMMARY_BYTES).collect();
        assert_eq!(error_group("stock", &long), error_group("stock", &shown));
    }
}

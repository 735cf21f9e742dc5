//! Text of others, made fit for an error message: short and printable.

use oncebox_core::printable::printable;

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
}

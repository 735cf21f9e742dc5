//! String literals and names for the few statements that go to the server as text.

/// A string literal that means `text` whatever `standard_conforming_strings` says: backslashes only ever stand in an
/// `E''` literal, where they are doubled. NUL cannot be written in PostgreSQL at all; names are checked for it when made.
pub(crate) fn literal(text: &str) -> String {
    let doubled = text.replace('\'', "''");
    if doubled.contains('\\') {
        format!(" E'{}'", doubled.replace('\\', "\\\\"))
    } else {
        format!("'{doubled}'")
    }
}

/// A name, as it is.
pub(crate) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_ends_a_literal_early() {
        assert_eq!(literal("stock"), "'stock'");
        assert_eq!(literal("o'clock"), "'o''clock'");
        assert_eq!(literal(r"a\'; DROP TABLE x; --"), r" E'a\\''; DROP TABLE x; --'");
    }
}

//! Values and names for the statements that go to the server as text.
//!
//! Text is what carries several statements in one message, and what the driver sends without preparing it first. Strings go as
//! hexadecimal digits: then nothing has to be escaped, whatever `sql_mode` says about backslashes and quotes.

/// A string, byte for byte.
pub(crate) fn text(value: &str) -> String {
    let mut literal = String::with_capacity(value.len() * 2 + 12);
    push_text(&mut literal, value);
    literal
}

/// [`text`] at the end of a statement that grows.
pub(crate) fn push_text(sql: &mut String, value: &str) {
    if value.is_empty() {
        // MariaDB can be told to take '' for NULL.
        sql.push_str("_utf8mb4 X''");
    } else {
        sql.push_str("_utf8mb4 ");
        push_bytes(sql, value.as_bytes());
    }
}

/// Bytes at the end of a statement that grows.
pub(crate) fn push_bytes(sql: &mut String, value: &[u8]) {
    if value.is_empty() {
        sql.push_str("X''");
        return;
    }
    sql.push_str("0x");
    push_digits(sql, value);
}

/// Bytes as hexadecimal digits.
pub(crate) fn push_digits(sql: &mut String, value: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in value {
        sql.push(char::from(DIGITS[usize::from(byte >> 4)]));
        sql.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

/// A number, or nothing.
pub(crate) fn number<N: std::fmt::Display>(value: Option<N>) -> String {
    value.map_or_else(|| "NULL".to_owned(), |value| value.to_string())
}

/// A name, as it is.
pub(crate) fn identifier(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_ends_a_literal_early() {
        assert_eq!(text("stock"), "_utf8mb4 0x73746f636b");
        assert_eq!(text("'; --"), "_utf8mb4 0x273b202d2d");
        assert_eq!(text(""), "_utf8mb4 X''");
        assert_eq!(identifier("a`b"), "`a``b`");
    }
}

//! `idempotency-key`: a string as RFC 8941 has it, or the bare text that most clients send. Both are the same key.

use http::HeaderName;

use super::Malformed;

pub(super) const NAME: HeaderName = HeaderName::from_static("idempotency-key");

/// The key without quotes and escapes. Parameters behind the string say nothing about it.
pub(super) fn read(value: &[u8]) -> Result<Vec<u8>, Malformed> {
    let value = value.trim_ascii();
    let Some(mut rest) = value.strip_prefix(b"\"") else { return Ok(value.to_vec()) };
    let mut key = Vec::with_capacity(rest.len());
    loop {
        rest = match rest {
            [b'"', behind @ ..] => {
                let behind = behind.trim_ascii_start();
                let ends = behind.is_empty() || behind.starts_with(b";");
                return if ends { Ok(key) } else { Err(Malformed::KeyNotAString) };
            }
            [b'\\', escaped @ (b'"' | b'\\'), behind @ ..] => {
                key.push(*escaped);
                behind
            }
            [plain @ (b' '..=b'[' | b']'..=b'~'), behind @ ..] => {
                key.push(*plain);
                behind
            }
            _ => return Err(Malformed::KeyNotAString),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn with_quotes_and_without_it_is_the_same_key() {
        for (value, key) in [
            (r#""8e03978e-40d5-43dd-bc93-6894a57f9324""#, "8e03978e-40d5-43dd-bc93-6894a57f9324"),
            ("8e03978e-40d5-43dd-bc93-6894a57f9324", "8e03978e-40d5-43dd-bc93-6894a57f9324"),
            (r#" "a b" "#, "a b"),
            (r#""a\"b\\c""#, r#"a"b\c"#),
            (r#""a";v=1;w"#, "a"),
            (r#""a" ; v=1"#, "a"),
            (r#"a"b"#, r#"a"b"#),
            (r#""""#, ""),
            ("", ""),
        ] {
            assert_eq!(read(value.as_bytes()), Ok(key.as_bytes().to_vec()), "{value}");
        }
    }

    #[test]
    fn half_a_string_is_none() {
        for value in
            [r#"""#, r#""a"#, r#""a"b"#, r#""a", "b""#, r#""a\b""#, r#""a\"#, "\"\u{e4}\"", "\"a\tb\""]
        {
            assert_eq!(read(value.as_bytes()), Err(Malformed::KeyNotAString), "{value}");
        }
    }

    proptest! {
        #[test]
        fn any_printable_key_survives_its_quotes(key in "[ -~]{0,40}") {
            let quoted = format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\""));
            prop_assert_eq!(read(quoted.as_bytes()), Ok(key.into_bytes()));
        }
    }
}

//! Whether the server can read a payload as JSON.
//!
//! It would not say so: of a text that it cannot read, `JSON_VALUE` finds nothing, and a statement that finds nothing changes
//! nothing. So what it cannot read is found out before, and rejected with the reason.

use serde::de::IgnoredAny;

/// How deep arrays and objects may be nested in MariaDB, and in MySQL.
pub(super) const LEVELS_OF_MARIADB: usize = 31;
pub(super) const LEVELS_OF_MYSQL: usize = 100;

/// The reason why this server could not read the text.
pub(super) fn check(text: &str, levels: usize) -> Result<(), String> {
    serde_json::from_str::<IgnoredAny>(text).map_err(|error| format!("the payload is not JSON: {error}"))?;
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                if depth > levels {
                    return Err(format!(
                        "the payload is nested deeper than the {levels} levels that the server reads"
                    ));
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => {
                at = end_of_string(bytes, at + 1)?;
                continue;
            }
            b'-' | b'0'..=b'9' => {
                let end = bytes[at..].iter().position(|byte| !b"+-.0123456789eE".contains(byte));
                let end = end.map_or(bytes.len(), |length| at + length);
                if text[at..end].parse::<f64>().is_ok_and(f64::is_infinite) {
                    return Err("the payload has a number that is too large".to_owned());
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

/// The place behind a string that begins here. JSON may write half of a character that UTF-16 takes two for; the server may not.
fn end_of_string(bytes: &[u8], mut at: usize) -> Result<usize, String> {
    let unit = |at: usize| {
        let digits = bytes.get(at..at + 6).and_then(|escape| escape.strip_prefix(b"\\u"))?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    while let Some(byte) = bytes.get(at) {
        match (byte, unit(at)) {
            (b'"', _) => return Ok(at + 1),
            (_, Some(0xD800..=0xDBFF)) if matches!(unit(at + 6), Some(0xDC00..=0xDFFF)) => at += 12,
            (_, Some(0xD800..=0xDFFF)) => {
                return Err("the payload has half of a character (a lone surrogate)".to_owned());
            }
            (b'\\', _) => at += 2,
            _ => at += 1,
        }
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_cannot_read_is_refused() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        for good in [
            nested(31).as_str(),
            r#"{"a": "\ud83d\ude00 \\ud800 \" ]}", "b": -1.5e10, "c": [null, true]}"#,
            r#""[[[[""#,
            "0.1000000000000000055511151231257827",
            "-1e-400",
        ] {
            assert_eq!(check(good, 31), Ok(()), "{good}");
        }
        for (bad, why) in [
            (nested(32).as_str(), "31 levels"),
            (r#"{"a": "\ud800"}"#, "surrogate"),
            (r#"{"a": "\ude00\ud83d"}"#, "surrogate"),
            (r#"["\ud83d\u0041"]"#, "surrogate"),
            ("[1, -1e400]", "too large"),
            ("{", "not JSON"),
        ] {
            let error = check(bad, 31).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }
}

//! Whether PostgreSQL can take a value, found out before the batch: one bad message would fail them all.

use serde::de::IgnoredAny;

/// The digits that `numeric`, and so `jsonb`, holds before and behind the decimal point.
const MAX_WHOLE_DIGITS: i64 = 131_072;
const MAX_FRACTION_DIGITS: i64 = 16_383;
/// Past this `numeric` does not even look at the digits.
const MAX_EXPONENT: i64 = 1_073_741_822;

/// Text that PostgreSQL can hold.
pub(super) fn text<'b>(what: &str, bytes: &'b [u8]) -> Result<&'b str, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| format!("the {what} is not UTF-8"))?;
    if text.contains('\0') {
        return Err(format!("the {what} contains NUL, which PostgreSQL's text cannot hold"));
    }
    Ok(text)
}

/// JSON that `jsonb` can hold.
pub(super) fn json(bytes: &[u8]) -> Result<&str, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "the payload is not UTF-8".to_owned())?;
    serde_json::from_str::<IgnoredAny>(text).map_err(|e| format!("the payload is not JSON: {e}"))?;
    refused_by_jsonb(text.as_bytes())
        .map_or(Ok(text), |why| Err(format!("the payload has {why}, which jsonb refuses")))
}

/// What `jsonb` refuses although it is JSON. Expects valid JSON.
fn refused_by_jsonb(json: &[u8]) -> Option<&'static str> {
    let mut at = 0;
    while let Some(byte) = json.get(at) {
        at += match byte {
            b'"' => match string_len(&json[at..]) {
                Ok(len) => len,
                Err(why) => return Some(why),
            },
            b'-' | b'0'..=b'9' => {
                let len = number_len(&json[at..]);
                if !fits_numeric(&json[at..at + len]) {
                    return Some("a number out of range");
                }
                len
            }
            _ => 1,
        };
    }
    None
}

/// The length of the string that `json` begins with, quotes included.
fn string_len(json: &[u8]) -> Result<usize, &'static str> {
    let mut at = 1;
    loop {
        match json.get(at) {
            None => return Ok(json.len()),
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') if json.get(at + 1) == Some(&b'u') => at += escape_len(&json[at..])?,
            Some(b'\\') => at += 2,
            Some(_) => at += 1,
        }
    }
}

/// The length of the `\uXXXX`, or of the pair of them, that `json` begins with.
fn escape_len(json: &[u8]) -> Result<usize, &'static str> {
    let unit = |from: usize| {
        let digits = json.get(from..from + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    match unit(0) {
        Some(0) => Err(r"\u0000"),
        Some(0xD800..=0xDBFF) if matches!(unit(6), Some(0xDC00..=0xDFFF)) => Ok(12),
        Some(0xD800..=0xDFFF) => Err("half a surrogate pair"),
        _ => Ok(6),
    }
}

fn number_len(json: &[u8]) -> usize {
    let part = |byte: &u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
    json.iter().position(|byte| !part(byte)).unwrap_or(json.len())
}

fn fits_numeric(number: &[u8]) -> bool {
    let number = number.strip_prefix(b"-").unwrap_or(number);
    let (mantissa, exponent) = match number.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(e) => (&number[..e], &number[e + 1..]),
        None => (number, &b"0"[..]),
    };
    let exponent = std::str::from_utf8(exponent).ok().and_then(|text| text.parse::<i64>().ok());
    let Some(exponent) = exponent.filter(|exponent| exponent.abs() <= MAX_EXPONENT) else { return false };
    let (whole, fraction) = match mantissa.iter().position(|byte| *byte == b'.') {
        Some(point) => (&mantissa[..point], &mantissa[point + 1..]),
        None => (mantissa, &b""[..]),
    };
    let count = |digits: usize| i64::try_from(digits).unwrap_or(i64::MAX);
    if count(fraction.len()).saturating_sub(exponent) > MAX_FRACTION_DIGITS {
        return false;
    }
    // How many digits the first one that is not zero stands before the point.
    let first = |digits: &[u8]| digits.iter().position(|byte| *byte != b'0');
    let before_point = match (first(whole), first(fraction)) {
        (Some(at), _) => count(whole.len() - at),
        (None, Some(at)) => -count(at),
        (None, None) => return true,
    };
    before_point.saturating_add(exponent) <= MAX_WHOLE_DIGITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_jsonb_takes_is_let_through() {
        for good in [
            r#"{"a": [1, -2.5e3, "x\\u0000", "\u00e9", "\ud83d\ude00", null, true]}"#,
            "1e131071",
            "0.1e131072",
            "0e999999",
            "1e-16383",
            r#""\\""#,
            "  7 ",
        ] {
            assert_eq!(json(good.as_bytes()), Ok(good));
        }
    }

    #[test]
    fn what_jsonb_refuses_is_refused() {
        let long = format!("0.{}", "1".repeat(16_384));
        for bad in [
            r#"{"a": "x\u0000"}"#,
            r#"{"\u0000": 1}"#,
            r#""\ud800""#,
            r#""\udc00\ud800""#,
            r#""\ud800\u0041""#,
            "1e400000",
            "-1E131072",
            "1e-16384",
            "[0e1073741824]",
            "1e99999999999999999999",
            long.as_str(),
            "{",
            "",
            "nul",
            "{} {}",
        ] {
            assert!(json(bad.as_bytes()).is_err(), "{bad:.40}");
        }
        assert!(json(b"\"\xff\"").is_err());
        assert!(text("key", b"a\0").is_err() && text("key", b"\xff").is_err());
    }
}

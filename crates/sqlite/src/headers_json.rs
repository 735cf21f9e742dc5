//! Headers as JSON, without loss: an array of `[name, value]` pairs, because names may repeat and their order counts. A
//! value is a string if it is text, `{"base64": "…"}` if it is not, and `null` if it is absent.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use oncebox_core::Headers;
use serde_json::{Value, json};

/// Headers that cannot be read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeadersError(String);

impl std::fmt::Display for HeadersError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the headers are not an array of [name, value] pairs: {}", self.0)
    }
}

impl std::error::Error for HeadersError {}

/// Writes headers as JSON.
pub(crate) fn headers_to_json(headers: &Headers) -> String {
    let pairs = headers.iter().map(|(name, value)| {
        let value = match value.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
            None => Value::Null,
            Some((_, Ok(text))) => Value::from(text),
            Some((bytes, Err(_))) => json!({ "base64": STANDARD.encode(bytes) }),
        };
        json!([name, value])
    });
    Value::from_iter(pairs).to_string()
}

/// Reads headers back.
pub(crate) fn headers_from_json(json: &str) -> Result<Headers, HeadersError> {
    let pairs: Vec<(String, Value)> =
        serde_json::from_str(json).map_err(|error| HeadersError(error.to_string()))?;
    let mut headers = Headers::new();
    for (name, value) in pairs {
        let value = match value {
            Value::Null => None,
            Value::String(text) => Some(Bytes::from(text)),
            Value::Object(object) => {
                let encoded = object.get("base64").and_then(Value::as_str).unwrap_or_default();
                let bytes = STANDARD.decode(encoded).map_err(|error| HeadersError(error.to_string()))?;
                Some(Bytes::from(bytes))
            }
            other => return Err(HeadersError(format!("{name} is {other}"))),
        };
        headers.push(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let headers: Headers = [
            ("plain", Some(Bytes::from("text"))),
            ("plain", Some(Bytes::from("again"))),
            ("", Some(Bytes::new())),
            ("binary", Some(Bytes::from_static(&[0, 0xff, 0xfe, b'"']))),
            ("absent", None),
            ("quotes \" and \u{0} and ü", Some(Bytes::from("{\"base64\": \"AA==\"}"))),
        ]
        .into_iter()
        .collect();
        assert_eq!(headers_from_json(&headers_to_json(&headers)), Ok(headers));
    }

    #[test]
    fn other_json_is_refused() {
        for json in ["", "{}", "[1]", "[[\"a\", 1]]", "[[\"a\", {\"base64\": \"?\"}]]"] {
            assert!(headers_from_json(json).is_err(), "{json}");
        }
    }
}

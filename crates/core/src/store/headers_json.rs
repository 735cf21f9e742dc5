//! The headers of a message as JSON, and back.
//!
//! Dead letters keep an array of `[name, value]`: order, repeated names and absent values survive. A value that is not text
//! every database can show (not UTF-8, or with NUL) becomes `{"base64": "…"}`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value};

use crate::message::Headers;

/// The lossless form for dead letters.
#[must_use]
pub fn to_pairs(headers: &Headers) -> String {
    let pairs = headers.iter().map(|(name, value)| Value::Array(vec![name.into(), value_to_json(value)]));
    Value::Array(pairs.collect()).to_string()
}

/// The form that SQL handlers see: an object, where the last of several headers of one name wins.
#[must_use]
pub fn to_object(headers: &Headers) -> String {
    let fields: Map<String, Value> =
        headers.iter().map(|(name, value)| (name.to_owned(), value_to_json(value))).collect();
    Value::Object(fields).to_string()
}

/// The form of the outbox: an object, or pairs where a name repeats.
#[must_use]
pub fn compact(headers: &Headers) -> String {
    let mut names: Vec<&str> = headers.iter().map(|(name, _)| name).collect();
    names.sort_unstable();
    let repeats = names.windows(2).any(|pair| pair[0] == pair[1]);
    if repeats { to_pairs(headers) } else { to_object(headers) }
}

/// Reads an object or pairs. A number or a truth value becomes its text: people write headers by hand. `None` if it is
/// neither.
#[must_use]
pub fn from_either(json: &str) -> Option<Headers> {
    if json == "{}" {
        return Some(Headers::new());
    }
    match serde_json::from_str(json).ok()? {
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| Some((name, lenient(value)?))).collect()
        }
        Value::Array(_) => from_pairs(json),
        _ => None,
    }
}

fn lenient(value: Value) -> Option<Option<Bytes>> {
    match value {
        Value::Number(number) => Some(Some(number.to_string().into())),
        Value::Bool(truth) => Some(Some(truth.to_string().into())),
        other => value_from_json(other),
    }
}

fn value_to_json(value: Option<&[u8]>) -> Value {
    let Some(bytes) = value else { return Value::Null };
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => text.into(),
        _ => Value::Object(Map::from_iter([("base64".to_owned(), STANDARD.encode(bytes).into())])),
    }
}

/// Reads what [`to_pairs`] wrote. `None` if somebody else wrote it.
#[must_use]
pub fn from_pairs(json: &str) -> Option<Headers> {
    let pairs: Vec<(String, Value)> = serde_json::from_str(json).ok()?;
    pairs.into_iter().map(|(name, value)| Some((name, value_from_json(value)?))).collect()
}

fn value_from_json(value: Value) -> Option<Option<Bytes>> {
    match value {
        Value::Null => Some(None),
        Value::String(text) => Some(Some(text.into())),
        Value::Object(fields) => {
            let bytes = STANDARD.decode(fields.get("base64")?.as_str()?).ok()?;
            Some(Some(bytes.into()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn whatever_was_sent_comes_back(
            pairs in prop::collection::vec(
                (any::<String>(), prop::option::of(prop::collection::vec(any::<u8>(), 0..20))),
                0..6,
            )
        ) {
            let headers: Headers =
                pairs.into_iter().map(|(name, value)| (name, value.map(Bytes::from))).collect();
            prop_assert_eq!(from_pairs(&to_pairs(&headers)), Some(headers));
        }
    }

    #[test]
    fn outbox_headers_are_an_object_unless_a_name_repeats() {
        let once: Headers = [("b", Some(Bytes::from_static(b"1"))), ("a", None)].into_iter().collect();
        assert_eq!(compact(&once), r#"{"a":null,"b":"1"}"#);
        let twice: Headers = [("a", Some(Bytes::from_static(b"1"))), ("a", None)].into_iter().collect();
        assert_eq!(from_either(&compact(&twice)), Some(twice));
        let by_hand = from_either(r#"{"attempt": 3, "last": true, "text": "x"}"#).expect("an object");
        assert_eq!(by_hand.last("attempt"), Some(&b"3"[..]));
        assert_eq!(by_hand.last("last"), Some(&b"true"[..]));
        assert_eq!(from_either("3"), None);
        assert_eq!(from_either(r#"{"a": [1]}"#), None);
    }

    #[test]
    fn text_stays_readable_and_the_rest_is_marked() {
        let mut headers = Headers::new();
        headers.push("a", Some("ü".into()));
        headers.push("a", None);
        headers.push("b", Some(Bytes::from_static(&[0xff])));
        assert_eq!(to_pairs(&headers), r#"[["a","ü"],["a",null],["b",{"base64":"/w=="}]]"#);
        assert_eq!(to_object(&headers), r#"{"a":null,"b":{"base64":"/w=="}}"#);
    }
}

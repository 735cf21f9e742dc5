//! A document as people read it: JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Document};
use serde_json::{Map, Value};
use uuid::Uuid;

/// The value at a path, whose names have dots between them.
pub(super) fn at<'d>(document: &'d Document, path: &str) -> Option<&'d Bson> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    match (document.get(first)?, rest) {
        (value, None) => Some(value),
        (Bson::Document(inner), Some(rest)) => at(inner, rest),
        _ => None,
    }
}

/// What identifies a row, as text. `None` if there is nothing.
pub(super) fn key_text(value: Option<&Bson>) -> Option<String> {
    match json_of(value?) {
        Value::Null => None,
        Value::String(text) => Some(text),
        other => Some(other.to_string()),
    }
}

/// The key of an event: bytes as they are, everything else as its text.
pub(super) fn key_bytes(value: Option<&Bson>) -> Option<Vec<u8>> {
    match value? {
        Bson::Binary(binary) if as_uuid(binary).is_none() => Some(binary.bytes.clone()),
        other => key_text(Some(other)).map(String::into_bytes),
    }
}

/// The document as a JSON object. Numbers are numbers; dates are texts as in RFC 3339, decimals and ids are texts, UUIDs too, other
/// bytes are base64. What the shell would show as an object with a `$` in it would be of no use to who receives it.
pub(super) fn json(document: &Document) -> Value {
    Value::Object(document.iter().map(|(name, value)| (name.clone(), json_of(value))).collect::<Map<_, _>>())
}

fn json_of(value: &Bson) -> Value {
    match value {
        Bson::Null | Bson::Undefined => Value::Null,
        Bson::Boolean(truth) => Value::Bool(*truth),
        Bson::Int32(number) => Value::from(*number),
        Bson::Int64(number) => Value::from(*number),
        // JSON has no word for what is not a number, or without end.
        Bson::Double(number) => {
            serde_json::Number::from_f64(*number).map_or_else(|| number.to_string().into(), Value::Number)
        }
        Bson::String(text) | Bson::Symbol(text) | Bson::JavaScriptCode(text) => text.clone().into(),
        Bson::ObjectId(id) => id.to_hex().into(),
        Bson::Decimal128(number) => number.to_string().into(),
        Bson::DateTime(at) => time(*at),
        Bson::Timestamp(at) => time(DateTime::from_millis(i64::from(at.time) * 1000)),
        Bson::Binary(binary) => {
            as_uuid(binary).map_or_else(|| STANDARD.encode(&binary.bytes).into(), |id| id.to_string().into())
        }
        Bson::Array(values) => Value::Array(values.iter().map(json_of).collect()),
        Bson::Document(inner) => json(inner),
        other => other.to_string().into(),
    }
}

/// Beyond what RFC 3339 can write it is the number of milliseconds.
fn time(at: DateTime) -> Value {
    at.try_to_rfc3339_string().map_or_else(|_| at.timestamp_millis().into(), Value::from)
}

fn as_uuid(binary: &Binary) -> Option<Uuid> {
    let is_uuid = binary.subtype == BinarySubtype::Uuid;
    Uuid::from_slice(&binary.bytes).ok().filter(|_| is_uuid)
}

#[cfg(test)]
mod tests {
    use mongodb::bson::doc;
    use mongodb::bson::oid::ObjectId;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_is_shown_as_people_write_it() {
        let id = Uuid::from_u128(7);
        let document = doc! {
            "_id": ObjectId::from_bytes([1; 12]), "n": 1, "big": 9_007_199_254_740_993_i64, "x": 1.5, "none": Bson::Null,
            "at": DateTime::from_millis(1_700_000_000_123), "price": "12.30".parse::<mongodb::bson::Decimal128>().unwrap(),
            "uuid": Binary { subtype: BinarySubtype::Uuid, bytes: id.as_bytes().to_vec() },
            "bytes": Binary { subtype: BinarySubtype::Generic, bytes: vec![0, 255] },
            "list": [1, { "a": true }], "nan": f64::NAN,
        };
        assert_eq!(
            json(&document),
            json!({
                "_id": "010101010101010101010101", "n": 1, "big": 9_007_199_254_740_993_i64, "x": 1.5, "none": null,
                "at": "2023-11-14T22:13:20.123Z", "price": "12.30", "uuid": id.to_string(), "bytes": "AP8=",
                "list": [1, {"a": true}], "nan": "NaN",
            })
        );
    }

    #[test]
    fn a_key_is_found_by_its_path() {
        let document = doc! { "customer": { "id": 7, "none": Bson::Null }, "name": "x" };
        let key = |path| key_text(at(&document, path));
        assert_eq!((key("customer.id").as_deref(), key("name").as_deref()), (Some("7"), Some("x")));
        assert_eq!((key("customer.none"), key("name.id"), key("missing")), (None, None, None));
        let bytes = Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: vec![0, 255] });
        assert_eq!(key_bytes(Some(&bytes)), Some(vec![0, 255]));
    }
}

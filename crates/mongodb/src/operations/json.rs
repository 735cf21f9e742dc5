//! JSON as BSON, in the order in which it is written, and back.
//!
//! Whole numbers become `int` or `long`, others `double`. Names that begin with `$` mean nothing here: what a message holds is
//! data.

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use mongodb::bson::{Bson, Document};
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::{Serialize, Serializer};

/// How deep a document may be nested.
pub(super) const LEVELS: usize = 100;

/// The text as BSON, or why it cannot be.
pub(super) fn read(text: &str) -> Result<Bson, String> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Json { levels: LEVELS }.deserialize(&mut reader).map_err(|error| error.to_string())?;
    reader.end().map_err(|error| error.to_string())?;
    whole_numbers(text)?;
    Ok(value)
}

/// Reads a value with so many levels below it.
struct Json {
    levels: usize,
}

impl Json {
    fn below<E: Error>(&self) -> Result<Self, E> {
        let too_deep = || E::custom(format!("it is nested deeper than the {LEVELS} levels of a document"));
        Ok(Self { levels: self.levels.checked_sub(1).ok_or_else(too_deep)? })
    }
}

impl<'de> DeserializeSeed<'de> for Json {
    type Value = Bson;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Bson, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Json {
    type Value = Bson;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Bson, E> {
        Ok(Bson::Null)
    }

    fn visit_bool<E: Error>(self, yes: bool) -> Result<Bson, E> {
        Ok(Bson::Boolean(yes))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Bson, E> {
        Ok(i32::try_from(number).map_or(Bson::Int64(number), Bson::Int32))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Bson, E> {
        self.visit_i64(i64::try_from(number).map_err(|_| E::custom(too_large(&number.to_string())))?)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Bson, E> {
        Ok(Bson::Double(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Bson, E> {
        Ok(Bson::String(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Bson, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(self.below()?)? {
            array.push(item);
        }
        Ok(Bson::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Bson, A::Error> {
        let mut document = Document::new();
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(self.below()?)?;
            document.insert(key, value);
        }
        Ok(Bson::Document(document))
    }
}

/// Refuses whole numbers that no `long` can hold: the reader would round them without a word. The text is JSON.
fn whole_numbers(text: &str) -> Result<(), String> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = end_of_string(bytes, at + 1),
            b'-' | b'0'..=b'9' => {
                let end = bytes[at..].iter().position(|byte| !b"+-.0123456789eE".contains(byte));
                let end = end.map_or(bytes.len(), |length| at + length);
                let number = &text[at..end];
                if !number.contains(['.', 'e', 'E']) && number.parse::<i64>().is_err() {
                    return Err(too_large(number));
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    Ok(())
}

fn end_of_string(bytes: &[u8], mut at: usize) -> usize {
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    at
}

fn too_large(number: &str) -> String {
    format!("the whole number {number:.40} is too large for a long; send it as a text")
}

/// A value as JSON for an event. Times are written as RFC 3339, ids and decimals as texts, bytes as base64.
pub(super) struct AsJson<'b>(pub(super) &'b Bson);

impl Serialize for AsJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Bson::Double(number) => serializer.serialize_f64(*number),
            Bson::Array(items) => serializer.collect_seq(items.iter().map(AsJson)),
            Bson::Document(document) => {
                serializer.collect_map(document.iter().map(|(key, value)| (key, AsJson(value))))
            }
            Bson::Boolean(yes) => serializer.serialize_bool(*yes),
            Bson::Int32(number) => serializer.serialize_i32(*number),
            Bson::Int64(number) => serializer.serialize_i64(*number),
            other => scalar(other).serialize(serializer),
        }
    }
}

impl fmt::Display for AsJson<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

/// A value that is neither a document nor an array, as text.
pub(super) fn scalar(value: &Bson) -> Option<String> {
    Some(match value {
        Bson::String(text) => text.clone(),
        Bson::Boolean(yes) => yes.to_string(),
        Bson::Int32(number) => number.to_string(),
        Bson::Int64(number) => number.to_string(),
        Bson::Double(number) => number.to_string(),
        Bson::Decimal128(number) => number.to_string(),
        Bson::ObjectId(id) => id.to_hex(),
        Bson::DateTime(time) => time.try_to_rfc3339_string().ok()?,
        Bson::Binary(binary) => match binary.to_uuid() {
            Ok(uuid) => uuid.to_string(),
            Err(_) => BASE64_STANDARD.encode(&binary.bytes),
        },
        _ => return None,
    })
}

//! CloudEvents over HTTP: attributes in headers, and batches.

use std::fmt;

use bytes::Bytes;
use oncebox_core::message::Headers;
use percent_encoding::percent_decode;
use serde::Deserializer;
use serde::de::{DeserializeSeed, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::Malformed;

const BATCH: &str = "application/cloudevents-batch";
const BATCH_JSON: &str = "application/cloudevents-batch+json";
const ONE: &str = "application/cloudevents+json";

/// The value of an attribute: without quotes, which older senders write, and percent-decoded once.
pub(super) fn attribute(value: &[u8]) -> Vec<u8> {
    let value = value.trim_ascii();
    match unquoted(value) {
        Some(unquoted) => percent_decode(&unquoted).collect(),
        None => percent_decode(value).collect(),
    }
}

/// A quoted string as RFC 9110 has it; `None` if it is anything else.
fn unquoted(value: &[u8]) -> Option<Vec<u8>> {
    let inside = value.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let mut text = Vec::with_capacity(inside.len());
    let mut bytes = inside.iter();
    while let Some(byte) = bytes.next() {
        text.push(match byte {
            b'"' => return None,
            b'\\' => *bytes.next()?,
            plain => *plain,
        });
    }
    Some(text)
}

/// The events of a batch, each as it was written; `None` if the request is no batch.
pub(super) fn batch(headers: &Headers, body: &Bytes, most: usize) -> Result<Option<Vec<Bytes>>, Malformed> {
    let content_type = headers.last("content-type").and_then(|value| std::str::from_utf8(value).ok());
    let media_type = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if media_type.eq_ignore_ascii_case(BATCH_JSON) {
        return split(body, most).map(Some);
    }
    let another = media_type.get(..BATCH.len()).is_some_and(|start| start.eq_ignore_ascii_case(BATCH));
    if another { Err(Malformed::BatchFormat) } else { Ok(None) }
}

/// Each event of a batch is an event in structured mode.
pub(super) fn headers_of_one(batch: &Headers) -> Headers {
    let others = batch.iter().filter(|(name, _)| *name != "content-type");
    let others = others.map(|(name, value)| (name.to_owned(), value.map(Bytes::copy_from_slice)));
    others.chain([("content-type".to_owned(), Some(Bytes::from_static(ONE.as_bytes())))]).collect()
}

fn split(body: &Bytes, most: usize) -> Result<Vec<Bytes>, Malformed> {
    let mut events = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(body);
    let read = Events { body, most, found: &mut events }.deserialize(&mut reader).and_then(|()| reader.end());
    if events.len() > most {
        return Err(Malformed::BatchTooLong(most));
    }
    read.map_err(|e| Malformed::BatchNotJson(e.to_string()))?;
    if events.iter().any(|event| !event.starts_with(b"{")) {
        return Err(Malformed::BatchNotJson("an event is not an object".to_owned()));
    }
    Ok(events)
}

/// Reads an array without copying, and stops behind one element too many.
struct Events<'b> {
    body: &'b Bytes,
    most: usize,
    found: &'b mut Vec<Bytes>,
}

impl<'de> DeserializeSeed<'de> for Events<'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Events<'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while self.found.len() <= self.most {
            let Some(event) = seq.next_element::<&RawValue>()? else { break };
            self.found.push(self.body.slice_ref(event.get().as_bytes()));
        }
        Ok(())
    }
}

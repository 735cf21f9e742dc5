//! What an operation sees of a message: a document with a field for each parameter.

use std::collections::BTreeSet;

use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Document};
use oncebox_core::message::Message;
use oncebox_core::store::headers_json;
use oncebox_sql::{Param, PayloadKind};

use super::json;
use super::operation::Operation;

/// Which values a handler uses, and what its payload is. What is not used may be anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    used: BTreeSet<Param>,
    payload: PayloadKind,
}

impl Wanted {
    pub(super) fn of(operations: &[Operation], payload: PayloadKind) -> Self {
        let mut used = BTreeSet::new();
        for operation in operations {
            for place in operation.places() {
                match place.field() {
                    Some(field) => used.extend(Param::from_name(field)),
                    None => used.extend(Param::ALL),
                }
            }
            // A pipeline may name a field in many ways; one that it does not name at all it does not use.
            if let Some(stages) = &operation.messages {
                stages.iter().for_each(|stage| named_in_document(stage, &mut used));
            }
        }
        Self { used, payload }
    }

    /// The values of a message. The error is the reason to reject it.
    pub(super) fn values(&self, message: &Message) -> Result<Document, String> {
        self.used.iter().map(|param| Ok((param.name().to_owned(), self.value(*param, message)?))).collect()
    }

    fn value(&self, param: Param, message: &Message) -> Result<Bson, String> {
        let record = message.record();
        Ok(match param {
            Param::Id => message.id().as_str().into(),
            Param::Key => match message.key() {
                Some(key) => text("key", key)?.into(),
                None => Bson::Null,
            },
            Param::Payload => match (self.payload, message.payload()) {
                (_, None) => Bson::Null,
                (PayloadKind::Json, Some(bytes)) => json::read(text("payload", bytes)?)
                    .map_err(|why| format!("the payload cannot be read as JSON: {why}"))?,
                (PayloadKind::Text, Some(bytes)) => text("payload", bytes)?.into(),
                (PayloadKind::Bytes, Some(bytes)) => {
                    Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() })
                }
            },
            Param::Headers => json::read(&headers_json::to_object(&record.headers))
                .map_err(|why| format!("the headers cannot be read: {why}"))?,
            Param::Topic => message.topic().into(),
            Param::Partition => record.partition.into(),
            Param::Offset => record.offset.into(),
            Param::Timestamp => record.timestamp_ms.map_or(Bson::Null, |ms| DateTime::from_millis(ms).into()),
            Param::Tenant => message.tenant().as_str().into(),
        })
    }
}

/// The parameters that a part of a pipeline may name: a text, or the name of a field, that begins with one as a whole word.
fn named(value: &Bson, used: &mut BTreeSet<Param>) {
    match value {
        Bson::String(text) => named_in_text(text, used),
        Bson::Array(items) => items.iter().for_each(|item| named(item, used)),
        Bson::Document(document) => named_in_document(document, used),
        _ => {}
    }
}

fn named_in_document(document: &Document, used: &mut BTreeSet<Param>) {
    for (key, value) in document {
        named_in_text(key, used);
        named(value, used);
    }
}

fn named_in_text(text: &str, used: &mut BTreeSet<Param>) {
    if text.starts_with("$$ROOT") || text.starts_with("$$CURRENT") {
        used.extend(Param::ALL);
    }
    let first = text.trim_start_matches('$').split('.').next().unwrap_or_default();
    used.extend(Param::from_name(first));
}

fn text<'b>(what: &str, bytes: &'b [u8]) -> Result<&'b str, String> {
    std::str::from_utf8(bytes).map_err(|_| format!("the {what} is not UTF-8"))
}

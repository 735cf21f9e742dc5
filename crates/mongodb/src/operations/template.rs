//! A value of an operation with places to fill in.
//!
//! What is filled in is a value and never a part of the operation: a text that begins with `$` stays a text, and a document
//! with `$gt` in it stays a document. How that is said to the server depends on where the value stands.

use mongodb::bson::{Bson, Document, doc};

use super::json::AsJson;
use super::place::Place;
use super::typed::Type;

/// How a value is written so that the server takes it for data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// As it is: here the server expects a value.
    Plain,
    /// A document as `{ "$eq": … }`, since operators might stand here.
    Equal,
    /// As `{ "$literal": … }`, since expressions are evaluated here.
    Literal,
    /// As `{ "$each": [ … ] }`, since modifiers might stand here.
    Element,
    /// As it is, but no document with operators: the server would take them for its own, and knows no way to say otherwise.
    NoOperators,
}

/// A value of an operation.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Template {
    /// Nothing is filled in.
    Fixed(Bson),
    /// A value, of this type if one is named. Where it chooses documents there must be one: in a filter null also matches those that
    /// lack the field, and they are others than the message means.
    Fill { place: Place, how: How, kind: Option<Type>, selects: bool },
    /// An array in which something is filled in.
    Array(Vec<Template>),
    /// A document in which something is filled in.
    Document(Vec<(String, Template)>),
}

impl Template {
    /// The value for this row. The error is the reason to reject its message.
    pub(super) fn fill(&self, row: &Document) -> Result<Bson, String> {
        self.fill_from(Some(row))
    }

    /// With null for all that is filled in.
    pub(super) fn sample(&self) -> Bson {
        self.fill_from(None).unwrap_or(Bson::Null)
    }

    fn fill_from(&self, row: Option<&Document>) -> Result<Bson, String> {
        Ok(match self {
            Self::Fixed(value) => value.clone(),
            Self::Array(items) => {
                Bson::Array(items.iter().map(|item| item.fill_from(row)).collect::<Result<_, _>>()?)
            }
            Self::Document(fields) => {
                let fields = fields.iter().map(|(key, value)| Ok((key.clone(), value.fill_from(row)?)));
                Bson::Document(fields.collect::<Result<_, String>>()?)
            }
            Self::Fill { place, how, kind, selects } => {
                let found = match row {
                    Some(row) if *selects => place.find_there(row)?,
                    Some(row) => place.find(row).unwrap_or(Bson::Null),
                    None => Bson::Null,
                };
                let value = match kind {
                    Some(kind) => kind.convert(&found)?,
                    None => found,
                };
                how.write(value)?
            }
        })
    }

    /// The same for what has to be a document.
    pub(super) fn fill_document(&self, row: &Document) -> Result<Document, String> {
        match self.fill(row)? {
            Bson::Document(document) => Ok(document),
            other => Err(format!("a document is needed, but this is {}", AsJson(&other))),
        }
    }

    /// Calls this for every place that is filled in.
    pub(super) fn visit<'t>(&'t self, see: &mut impl FnMut(&'t Place)) {
        match self {
            Self::Fixed(_) => {}
            Self::Fill { place, .. } => see(place),
            Self::Array(items) => items.iter().for_each(|item| item.visit(see)),
            Self::Document(fields) => fields.iter().for_each(|(_, value)| value.visit(see)),
        }
    }

    /// The fields that a document has, whatever is filled in; `None` if all of it is.
    pub(super) fn names(&self) -> Option<Vec<&str>> {
        match self {
            Self::Document(fields) => Some(fields.iter().map(|(name, _)| name.as_str()).collect()),
            Self::Fixed(Bson::Document(document)) => Some(document.keys().map(String::as_str).collect()),
            _ => None,
        }
    }

    /// Whether nothing is filled in.
    pub(super) fn is_fixed(&self) -> bool {
        matches!(self, Self::Fixed(_))
    }
}

impl How {
    fn write(self, value: Bson) -> Result<Bson, String> {
        Ok(match self {
            Self::Plain => value,
            Self::Equal => match value {
                Bson::Document(_) => Bson::Document(doc! { "$eq": value }),
                other => other,
            },
            Self::Literal => Bson::Document(doc! { "$literal": value }),
            Self::Element => Bson::Document(doc! { "$each": [value] }),
            Self::NoOperators => {
                if has_operators(&value) {
                    return Err(format!(
                        "a value has names that begin with `$`, which the server would take for operators: {:.100}",
                        AsJson(&value).to_string()
                    ));
                }
                value
            }
        })
    }
}

fn has_operators(value: &Bson) -> bool {
    match value {
        Bson::Document(document) => document.keys().any(|key| key.starts_with('$')),
        Bson::Array(items) => items.iter().any(has_operators),
        _ => false,
    }
}

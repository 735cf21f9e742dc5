//! The place in a record that holds its id or its tenant.

use std::fmt;
use std::str::FromStr;

use super::parts::{Parts, PartsError};
use super::pointer::{self, Leaf};
use crate::error::describe;
use crate::message::{PATH_PREFIX, PROPERTY_PREFIX, Record};

/// The place in a record that holds its id or its tenant.
///
/// ```
/// use oncebox::Selector;
/// use oncebox::message::Record;
///
/// let mut record = Record::at("orders", 3, 42);
/// record.payload = Some(br#"{"order": {"number": 4711}}"#.as_slice().into());
///
/// let by_number: Selector = "json:/order/number".parse()?;
/// assert_eq!(by_number.select(&record)?, "4711");
/// assert_eq!(Selector::Coordinates.select(&record)?, "orders/3/42");
/// # Ok::<(), oncebox::BoxError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Selector {
    /// The key of the record. Only right where every message has a key of its own.
    Key,
    /// The last header of that name.
    Header(String),
    /// A property of that name, where the source has properties beside the headers: see
    /// [`PROPERTY_PREFIX`](crate::message::PROPERTY_PREFIX).
    Property(String),
    /// A string or an integer in a JSON payload, by JSON pointer (RFC 6901).
    Json(String),
    /// The parameter of that name in the path of an HTTP request, such as `tenant` in `/in/{tenant}/orders`.
    Path(String),
    /// `source` and `id` of a CloudEvent, in binary mode (as headers `ce_…`, or `ce-…` over HTTP) or structured mode. The text
    /// is `"{source} {id}"`.
    CloudEvents,
    /// `topic/partition/offset@log`, with the identity of the log where the source knows it: the same place in a topic that
    /// was created anew is another message. Recognises redelivery, but not a producer that sends the same message twice.
    Coordinates,
    /// Several values that are the id together: see [`Selector::all`].
    All(Parts),
}

/// Why a text is not a selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{problem}; allowed are key, header:NAME, property:NAME, json:/POINTER, path:NAME, cloudevents and coordinates"
)]
pub struct SelectorSyntaxError {
    problem: String,
}

/// Why a record has nothing usable at the place a selector names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// The record has no key.
    #[error("the key is absent")]
    NoKey,
    /// The key is not text.
    #[error("the key is not UTF-8")]
    KeyNotText,
    /// No header of that name.
    #[error("no header `{0}`")]
    NoHeader(String),
    /// The last header of that name is null.
    #[error("the header `{0}` has no value")]
    NullHeader(String),
    /// The header is not text.
    #[error("the header `{0}` is not UTF-8")]
    HeaderNotText(String),
    /// No property of that name.
    #[error("no property `{0}`")]
    NoProperty(String),
    /// The path that the request was sent to has no such parameter.
    #[error("no parameter `{0}` in the path of the request")]
    NoParameter(String),
    /// A tombstone where a JSON payload was expected.
    #[error("the payload is absent, so nothing can be read from it")]
    NoPayload,
    /// The payload does not parse.
    #[error("the payload is not JSON: {0}")]
    NotJson(String),
    /// The JSON has nothing at the pointer.
    #[error("the payload has nothing at {0}")]
    NothingAt(String),
    /// The JSON has something else at the pointer.
    #[error("the value at {pointer} is {found}; an id must be a string or an integer")]
    WrongType {
        /// Where.
        pointer: String,
        /// What is there instead.
        found: &'static str,
    },
    /// `source` or `id` of a CloudEvent is an empty string.
    #[error("the `{0}` of the CloudEvent is empty")]
    EmptyCloudEvent(&'static str),
    /// A source is a URI reference, which has no space; with one, two different events could get the same id.
    #[error("the `source` of the CloudEvent contains a space")]
    SpaceInSource,
    /// A part of an id of several parts is an empty string.
    #[error("the part {0} is empty")]
    EmptyPart(String),
}

impl Selector {
    /// An id of several parts: an event code and a reference, say, that are unique only together. See [`Parts`].
    ///
    /// # Errors
    /// If it is not two to eight different selectors.
    pub fn all(selectors: impl IntoIterator<Item = Self>) -> Result<Self, PartsError> {
        Parts::new(selectors).map(Self::All)
    }

    /// Reads the text from a record.
    ///
    /// # Errors
    /// Says what is missing or wrong at the place this selector names.
    pub fn select(&self, record: &Record) -> Result<String, SelectError> {
        match self {
            Self::Key => {
                let key = record.key.as_deref().ok_or(SelectError::NoKey)?;
                std::str::from_utf8(key).map(str::to_owned).map_err(|_| SelectError::KeyNotText)
            }
            Self::Header(name) => header(record, name).map(str::to_owned),
            Self::Property(name) => {
                prefixed(record, PROPERTY_PREFIX, name, SelectError::NoProperty).map(str::to_owned)
            }
            Self::Json(pointer) => {
                let [found] = read_json(record, [pointer])?;
                found
            }
            Self::Path(name) => {
                prefixed(record, PATH_PREFIX, name, SelectError::NoParameter).map(str::to_owned)
            }
            Self::CloudEvents => cloud_event(record),
            Self::Coordinates => Ok(match &record.log {
                Some(log) => format!("{}@{log}", record.coordinates()),
                None => record.coordinates(),
            }),
            Self::All(parts) => parts.select_with(record, None).0,
        }
    }

    /// Whether reading it may need the payload.
    pub(crate) fn reads_payload(&self) -> bool {
        match self {
            Self::Json(_) | Self::CloudEvents => true,
            Self::All(parts) => parts.iter().any(Self::reads_payload),
            Self::Key | Self::Header(_) | Self::Property(_) | Self::Path(_) | Self::Coordinates => false,
        }
    }
}

fn header<'r>(record: &'r Record, name: &str) -> Result<&'r str, SelectError> {
    let Some(value) = record.headers.last(name) else {
        // Only the failing path pays for telling a null header from a missing one.
        let present = record.headers.iter().any(|(n, _)| n == name);
        let error = if present { SelectError::NullHeader } else { SelectError::NoHeader };
        return Err(error(name.to_owned()));
    };
    std::str::from_utf8(value).map_err(|_| SelectError::HeaderNotText(name.to_owned()))
}

/// What a source keeps among the headers under a name with this prefix.
fn prefixed<'r>(
    record: &'r Record,
    prefix: &str,
    name: &str,
    missing: fn(String) -> SelectError,
) -> Result<&'r str, SelectError> {
    let is_it = |header: &str| header.strip_prefix(prefix) == Some(name);
    let found = record.headers.iter().find(|(header, _)| is_it(header)).and_then(|(_, value)| value);
    let value = found.ok_or_else(|| missing(name.to_owned()))?;
    std::str::from_utf8(value).map_err(|_| SelectError::HeaderNotText(format!("{prefix}{name}")))
}

/// Reads several pointers in one pass over the payload.
pub(super) fn read_json<const N: usize>(
    record: &Record,
    pointers: [&str; N],
) -> Result<[Result<String, SelectError>; N], SelectError> {
    let mut leaves = read_leaves(record, pointers.map(Some))?.into_iter();
    Ok(pointers.map(|pointer| text_at(pointer, leaves.next().flatten())))
}

/// As [`read_json`], where not every place of the array is taken.
pub(super) fn read_leaves<const N: usize>(
    record: &Record,
    pointers: [Option<&str>; N],
) -> Result<[Option<Leaf>; N], SelectError> {
    let payload = record.payload.as_deref().ok_or(SelectError::NoPayload)?;
    pointer::read(payload, pointers).map_err(|e| SelectError::NotJson(describe(&e)))
}

pub(super) fn text_at(pointer: &str, leaf: Option<Leaf>) -> Result<String, SelectError> {
    match leaf {
        Some(Leaf::Text(text)) => Ok(text),
        Some(Leaf::Other(found)) => Err(SelectError::WrongType { pointer: pointer.to_owned(), found }),
        None => Err(SelectError::NothingAt(pointer.to_owned())),
    }
}

/// The content type tells structured mode from binary mode. In binary mode the attributes are headers, whose names begin with
/// `ce_` in most bindings and with `ce-` in that of HTTP. Both attributes are read by the same binding.
fn cloud_event(record: &Record) -> Result<String, SelectError> {
    const STRUCTURED: &[u8] = b"application/cloudevents+json";
    let structured = record
        .headers
        .last("content-type")
        .and_then(|value| value.get(..STRUCTURED.len()))
        .is_some_and(|value| value.eq_ignore_ascii_case(STRUCTURED));
    if structured {
        let [source, id] = read_json(record, ["/source", "/id"])?;
        return cloud_event_id(&source?, &id?);
    }
    let has = |name: &str| record.headers.iter().any(|(found, _)| found == name);
    if has("ce_source") || has("ce_id") || !(has("ce-source") || has("ce-id")) {
        cloud_event_id(header(record, "ce_source")?, header(record, "ce_id")?)
    } else {
        cloud_event_id(header(record, "ce-source")?, header(record, "ce-id")?)
    }
}

fn cloud_event_id(source: &str, id: &str) -> Result<String, SelectError> {
    if source.is_empty() {
        return Err(SelectError::EmptyCloudEvent("source"));
    }
    if id.is_empty() {
        return Err(SelectError::EmptyCloudEvent("id"));
    }
    if source.contains(' ') {
        return Err(SelectError::SpaceInSource);
    }
    Ok(format!("{source} {id}"))
}

impl FromStr for Selector {
    type Err = SelectorSyntaxError;

    fn from_str(text: &str) -> Result<Self, SelectorSyntaxError> {
        let refuse = |problem: String| Err(SelectorSyntaxError { problem });
        match text.split_once(':') {
            None => match text {
                "key" => Ok(Self::Key),
                "cloudevents" => Ok(Self::CloudEvents),
                "coordinates" => Ok(Self::Coordinates),
                "header" => refuse("`header` needs a name, as in header:event_id".to_owned()),
                "property" => refuse("`property` needs a name, as in property:message_id".to_owned()),
                "json" => refuse("`json` needs a pointer, as in json:/order/id".to_owned()),
                "path" => refuse("`path` needs the name of a parameter, as in path:tenant".to_owned()),
                _ => refuse(format!("`{text}` is not a selector")),
            },
            Some(("header", "")) => refuse("the header name is empty".to_owned()),
            Some(("header", name)) => Ok(Self::Header(name.to_owned())),
            Some(("property", "")) => refuse("the property name is empty".to_owned()),
            Some(("property", name)) => Ok(Self::Property(name.to_owned())),
            Some(("json", pointer)) => match pointer::check(pointer) {
                Ok(()) => Ok(Self::Json(pointer.to_owned())),
                Err(problem) => refuse(problem.to_owned()),
            },
            Some(("path", name)) => {
                let fits = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
                if fits {
                    Ok(Self::Path(name.to_owned()))
                } else {
                    refuse("the name of a path parameter has letters, digits and underscores".to_owned())
                }
            }
            Some(_) => refuse(format!("`{text}` is not a selector")),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key => f.write_str("key"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Property(name) => write!(f, "{PROPERTY_PREFIX}{name}"),
            Self::Json(pointer) => write!(f, "json:{pointer}"),
            Self::Path(name) => write!(f, "{PATH_PREFIX}{name}"),
            Self::CloudEvents => f.write_str("cloudevents"),
            Self::Coordinates => f.write_str("coordinates"),
            Self::All(parts) => write!(f, "{parts}"),
        }
    }
}

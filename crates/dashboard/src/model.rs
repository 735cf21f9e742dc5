//! What pages and API show: the same structures for both.

pub(crate) mod audit;
pub(crate) mod consumer;
pub(crate) mod events;
pub(crate) mod export;
pub(crate) mod find;
pub(crate) mod health;
pub(crate) mod jobs;
pub(crate) mod letters;
pub(crate) mod overview;
pub(crate) mod retention;

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

use crate::text;

/// A time: RFC 3339 in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Time(pub(crate) i64);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&text::exact(self.0))
    }
}

impl JsonSchema for Time {
    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn schema_id() -> Cow<'static, str> {
        concat!(module_path!(), "::Time").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

/// How bad something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Level {
    /// As it should be.
    Ok,
    /// Somebody should look, in time.
    Look,
    /// It does not work.
    Wrong,
}

impl Level {
    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::Ok => "is-ok",
            Self::Look => "is-look",
            Self::Wrong => "is-wrong",
        }
    }
}

/// Bytes of a message: as text if they are, else in Base64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bytes {
    /// What is UTF-8.
    Text(String),
    /// What is not.
    Base64(String),
}

impl std::fmt::Display for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Base64(text) => write!(f, "base64 {text}"),
        }
    }
}

impl Bytes {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Base64(STANDARD.encode(bytes)),
        }
    }
}

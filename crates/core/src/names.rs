//! The names that make up the dedupe key: consumer, tenant and message id. All are checked once, when made.

use std::fmt;
use std::str::FromStr;

/// The longest message id, in bytes. Longer ids are dead-lettered before the database sees them.
pub const MAX_ID_BYTES: usize = 512;
/// The longest tenant, in bytes.
pub const MAX_TENANT_BYTES: usize = 256;
/// The longest consumer name, in bytes.
pub const MAX_CONSUMER_BYTES: usize = 200;

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// Nothing in it.
    #[error("the {0} is empty")]
    Empty(&'static str),
    /// Longer than its limit.
    #[error("the {what} has {len} bytes, more than {max}")]
    TooLong {
        /// Which name.
        what: &'static str,
        /// Its length.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// A character that databases or brokers do not take.
    #[error("the {what} contains {found:?}, which is not allowed")]
    Character {
        /// Which name.
        what: &'static str,
        /// The first offending character.
        found: char,
    },
}

fn bounded(what: &'static str, text: &str, max: usize) -> Result<(), NameError> {
    if text.len() > max {
        return Err(NameError::TooLong { what, len: text.len(), max });
    }
    match text.chars().find(|c| *c == '\0') {
        Some(found) => Err(NameError::Character { what, found }),
        None => Ok(()),
    }
}

/// The stable name under which effects are applied. Part of the dedupe key, so renaming a consumer makes every
/// message fresh again. Letters, digits, `.`, `_` and `-`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConsumerName(String);

impl ConsumerName {
    /// Checks and wraps a name.
    pub fn new(name: impl Into<String>) -> Result<Self, NameError> {
        let name = name.into();
        if name.is_empty() {
            return Err(NameError::Empty("consumer name"));
        }
        bounded("consumer name", &name, MAX_CONSUMER_BYTES)?;
        let odd = name.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')));
        match odd {
            Some(found) => Err(NameError::Character { what: "consumer name", found }),
            None => Ok(Self(name)),
        }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ConsumerName {
    type Err = NameError;
    fn from_str(s: &str) -> Result<Self, NameError> {
        Self::new(s)
    }
}

impl fmt::Display for ConsumerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The stable id of a message: the same for every copy of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId(String);

impl MessageId {
    /// Checks and wraps an id: not empty, at most [`MAX_ID_BYTES`] bytes, no NUL.
    pub fn new(id: impl Into<String>) -> Result<Self, NameError> {
        let id = id.into();
        if id.is_empty() {
            return Err(NameError::Empty("message id"));
        }
        bounded("message id", &id, MAX_ID_BYTES)?;
        Ok(Self(id))
    }

    /// The id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The tenant a message belongs to; `""` when there is none.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Tenant(String);

impl Tenant {
    /// Checks and wraps a tenant: at most [`MAX_TENANT_BYTES`] bytes, no NUL.
    pub fn new(tenant: impl Into<String>) -> Result<Self, NameError> {
        let tenant = tenant.into();
        bounded("tenant", &tenant, MAX_TENANT_BYTES)?;
        Ok(Self(tenant))
    }

    /// No tenant.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// The tenant, `""` when none.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

//! What a statement can refer to.

use std::fmt;

/// A parameter of a per-message statement, written `:name`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Param {
    /// `:id`, the stable id of the message.
    Id,
    /// `:key`, the key of the record.
    Key,
    /// `:payload`, as JSON, text or bytes, by the setting `payload`.
    Payload,
    /// `:headers`, as a JSON object.
    Headers,
    /// `:topic`, where the message came from.
    Topic,
    /// `:partition`, where the message came from.
    Partition,
    /// `:offset`, where the message came from.
    Offset,
    /// `:timestamp`, when the message was produced.
    Timestamp,
    /// `:tenant`, `''` when there is none.
    Tenant,
}

impl Param {
    /// All of them, in the order of [`Param::index`].
    pub const ALL: [Self; 9] = [
        Self::Id,
        Self::Key,
        Self::Payload,
        Self::Headers,
        Self::Topic,
        Self::Partition,
        Self::Offset,
        Self::Timestamp,
        Self::Tenant,
    ];

    /// The name without the colon.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Key => "key",
            Self::Payload => "payload",
            Self::Headers => "headers",
            Self::Topic => "topic",
            Self::Partition => "partition",
            Self::Offset => "offset",
            Self::Timestamp => "timestamp",
            Self::Tenant => "tenant",
        }
    }

    /// Its place in [`Param::ALL`], counted from 1 as drivers count placeholders.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize + 1
    }

    /// The parameter of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|param| param.name() == name)
    }
}

impl fmt::Display for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ":{}", self.name())
    }
}

//! Which log a position belongs to, and how the log is recognised again.
//!
//! An offset means something only within its log. A topic that was deleted and created anew, another cluster behind the
//! same address, or a log that lost its end and was written on has the same offsets for other messages.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::message::Record;

/// The identity of a log, as its source gives it: parts separated by `/`, an empty one where the source does not know. For
/// Kafka the ids of the cluster and of the topic.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LogId(Arc<str>);

impl LogId {
    /// Wraps an identity. The source decides what is in it.
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self(id.into())
    }

    /// The identity.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is certainly another log: a part that both know differs.
    ///
    /// ```
    /// use oncebox::source::LogId;
    ///
    /// assert!(LogId::new("cluster/topic-1").contradicts(&LogId::new("cluster/topic-2")));
    /// assert!(!LogId::new("cluster/topic-1").contradicts(&LogId::new("cluster/")));
    /// ```
    #[must_use]
    pub fn contradicts(&self, other: &Self) -> bool {
        let parts = self.0.split('/').zip(other.0.split('/'));
        parts.into_iter().any(|(one, other)| !one.is_empty() && !other.is_empty() && one != other)
    }

    /// The same log with the parts filled in that only the other one knows.
    ///
    /// ```
    /// use oncebox::source::LogId;
    ///
    /// let before = LogId::new("cluster/topic-1");
    /// assert_eq!(LogId::new("cluster/").completed_by(&before), before);
    /// ```
    #[must_use]
    pub fn completed_by(&self, other: &Self) -> Self {
        let mut others = other.0.split('/');
        let part = |own: &str, other: Option<&str>| {
            if own.is_empty() { other.unwrap_or_default().to_owned() } else { own.to_owned() }
        };
        let parts: Vec<String> = self.0.split('/').map(|own| part(own, others.next())).collect();
        Self::new(parts.join("/"))
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One settled record to recognise a log by: if another record stands at its offset, the log was written anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogMark {
    /// Where the record stands.
    pub offset: i64,
    /// A digest of its key, payload, headers and timestamp.
    pub digest: i64,
}

impl LogMark {
    /// The mark of a record.
    #[must_use]
    pub fn of(record: &Record) -> Self {
        let mut hash = Sha256::new();
        let mut part = |bytes: Option<&[u8]>| {
            // An absent part differs from an empty one, and no two parts run into each other.
            let length = bytes.map_or(-1, |bytes| i64::try_from(bytes.len()).unwrap_or(i64::MAX));
            hash.update(length.to_be_bytes());
            hash.update(bytes.unwrap_or_default());
        };
        part(record.key.as_deref());
        part(record.payload.as_deref());
        for (name, value) in record.headers.iter() {
            part(Some(name.as_bytes()));
            part(value);
        }
        part(record.timestamp_ms.map(i64::to_be_bytes).as_ref().map(<[u8; 8]>::as_slice));
        let digest = hash.finalize();
        let mut first = [0; 8];
        first.copy_from_slice(&digest[..8]);
        Self { offset: record.offset, digest: i64::from_be_bytes(first) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_tells_records_apart() {
        let mut record = Record::at("t", 0, 7);
        record.payload = Some("ab".into());
        let mark = LogMark::of(&record);
        assert_eq!(mark, LogMark::of(&record));
        let changed = |change: fn(&mut Record)| {
            let mut other = record.clone();
            change(&mut other);
            LogMark::of(&other)
        };
        let others = [
            changed(|r| r.payload = None),
            changed(|r| r.payload = Some("ac".into())),
            changed(|r| (r.key, r.payload) = (Some("a".into()), Some("b".into()))),
            changed(|r| r.key = Some("".into())),
            changed(|r| r.timestamp_ms = Some(1)),
            changed(|r| r.headers.push("h", None)),
        ];
        for other in others {
            assert_ne!(mark, other);
        }
    }
}

//! A topic in memory: what a broker would keep of it for one consumer.

use oncebox_core::inbox::StartPolicy;
use oncebox_core::message::Record;
use oncebox_core::source::{Acquired, Known, Start, StartError, start_at};

/// The records of partition 0, and how far they were acknowledged.
#[derive(Debug)]
pub(crate) struct Log {
    first: i64,
    records: Vec<Record>,
    acknowledged: i64,
}

impl Log {
    /// A log that goes on where the database is: another test inbox of the same consumer may have been here before.
    pub(crate) fn going_on_at(next_offset: Option<i64>) -> Self {
        let first = next_offset.unwrap_or(0);
        Self { first, records: Vec::new(), acknowledged: first }
    }

    /// One past the newest offset.
    pub(crate) fn end(&self) -> i64 {
        self.first + self.records.len() as i64
    }

    /// Appends records, each at the next offset.
    pub(crate) fn append(&mut self, records: impl IntoIterator<Item = Record>) {
        for mut record in records {
            record.offset = self.end();
            self.records.push(record);
        }
    }

    /// Where a process begins that takes over with this position.
    pub(crate) fn start(&self, stored: Acquired) -> Result<Start, StartError> {
        let (low, high) = (self.first, self.end());
        let known = Known { stored, committed: Some(self.acknowledged), log: None, low, high };
        start_at(known, StartPolicy::Group)
    }

    /// The records from this offset on.
    pub(crate) fn from(&self, offset: i64) -> &[Record] {
        let at = usize::try_from(offset - self.first).unwrap_or(0);
        self.records.get(at..).unwrap_or_default()
    }

    /// Everything below this offset is acknowledged.
    pub(crate) fn acknowledge(&mut self, next: i64) {
        self.acknowledged = self.acknowledged.max(next);
    }
    /// Whether nothing is left that was not acknowledged.
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.acknowledged == self.end()
    }
}

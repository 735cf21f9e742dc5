//! What must be true, told by the simplest possible reference.

mod effects;
mod finally;
mod outbox;
mod positions;
mod queues;

use crate::log::{Entry, header_of};
use crate::store::{LetterRow, Spot};
use crate::world::Inner;

/// What a letter is called: its id, or the place of a record that has none.
pub(crate) fn letter_name(row: &LetterRow) -> String {
    match &row.stored.letter.message_id {
        Some(id) => id.clone(),
        None => {
            let record = &row.stored.letter.record;
            format!("{}@{}#{}", row.place, record.offset, header_of(record, "writing"))
        }
    }
}

impl Inner {
    /// Whether a record is done with, for this consumer: applied, parked, or dropped by an operator.
    pub(crate) fn is_settled(&self, spot: Spot, entry: &Entry) -> bool {
        let name = match &entry.id {
            Some(id) => id.clone(),
            None => format!("{}@{}#{}", spot.place, entry.record.offset, entry.writing),
        };
        self.is_settled_as(spot, name)
    }

    /// The same by the id of a message, or by the name of its letter if it has none.
    pub(crate) fn is_settled_as(&self, spot: Spot, name: String) -> bool {
        let tables = &self.db.tables;
        let named = (spot.consumer, name);
        tables.applied.contains_key(&named)
            || tables.dropped.contains(&named)
            || tables.letters.values().any(|row| row.consumer == spot.consumer && letter_name(row) == named.1)
    }

    /// Whether nobody expects it to be applied.
    pub(crate) fn is_forgiven(&self, spot: Spot, entry: &Entry) -> bool {
        self.log.forgiven.contains(&(spot, entry.writing, entry.record.offset))
    }
}

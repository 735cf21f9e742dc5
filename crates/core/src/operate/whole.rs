//! Dead letters whole, for a file.

use std::time::Duration;

use super::page::page;
use crate::store::{DeadFilter, DeadLetters, StoreResult, StoredDeadLetter};

/// A page ends when its letters have this size: somebody else's payloads must not fill the memory.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Letters, the newest first, each with its payload.
#[derive(Debug, Clone, Default)]
pub struct WholePage {
    /// The letters.
    pub letters: Vec<StoredDeadLetter>,
    /// Where the next page begins ([`DeadFilter::before`]): there may be more, older ones. `None`: there are none.
    pub next: Option<i64>,
}

/// A [`page`] of letters with all that they hold: fewer than asked for if they are large. One that goes meanwhile is left out.
pub async fn whole_page<S: DeadLetters>(
    store: &S,
    filter: &DeadFilter,
    patience: Duration,
) -> StoreResult<WholePage> {
    let found = page(store, filter, patience).await?;
    let (mut whole, mut bytes) = (WholePage { letters: Vec::new(), next: found.next }, 0);
    let mut last = None;
    for summary in found.letters {
        if bytes >= PAGE_BYTES {
            whole.next = last;
            break;
        }
        last = Some(summary.number);
        if let Some(stored) = store.dead_letter(summary.number).await? {
            bytes += size(&stored);
            whole.letters.push(stored);
        }
    }
    Ok(whole)
}

fn size(stored: &StoredDeadLetter) -> usize {
    let record = &stored.letter.record;
    let of = |payload: Option<&[u8]>| payload.map_or(0, <[u8]>::len);
    let original = stored.edit.as_ref().and_then(|edit| edit.original.payload.as_deref());
    of(record.payload.as_deref()) + of(original) + record.headers.byte_len()
}

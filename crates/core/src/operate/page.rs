//! A page of dead letters that costs no more than somebody wants to wait.

use std::time::{Duration, Instant};

use crate::store::{DeadFilter, DeadLetters, DeadSummary, StoreResult};

/// How many places are looked at by one statement: a filter that no index helps reads no more than this.
const WINDOW: i64 = 20_000;

/// Letters, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LetterPage {
    /// The letters.
    pub letters: Vec<DeadSummary>,
    /// Where the next page begins ([`DeadFilter::before`]): there may be more, older ones. `None`: there are none.
    pub next: Option<i64>,
}

/// The newest letters that a filter means, as many as it asks for: or fewer, if `patience` is over before all were looked at.
/// Then the next page goes on from there.
pub async fn page<S: DeadLetters>(
    store: &S,
    filter: &DeadFilter,
    patience: Duration,
) -> StoreResult<LetterPage> {
    let began = Instant::now();
    let limit = usize::try_from(filter.limit).unwrap_or(usize::MAX);
    let mut page = LetterPage { letters: Vec::new(), next: filter.before };
    // An index finds these.
    if filter.group.is_some() || !filter.numbers.is_empty() {
        let filter = DeadFilter { newest_first: true, ..filter.clone() };
        page.letters = store.dead_letters(&filter).await?;
        page.next = page.letters.last().filter(|_| page.letters.len() >= limit).map(|last| last.number);
        return Ok(page);
    }
    while page.letters.len() < limit {
        // Many numbers may be of letters that are gone.
        let any = DeadFilter {
            after: filter.after,
            before: page.next,
            newest_first: true,
            limit: 1,
            ..DeadFilter::default()
        };
        let Some(newest) = store.dead_letters(&any).await?.pop() else {
            page.next = None;
            return Ok(page);
        };
        let after = filter.after.max(newest.number.saturating_sub(WINDOW));
        let window = DeadFilter {
            after,
            before: Some(newest.number.saturating_add(1)),
            newest_first: true,
            limit: filter.limit - u32::try_from(page.letters.len()).unwrap_or(filter.limit),
            ..filter.clone()
        };
        page.letters.extend(store.dead_letters(&window).await?);
        if page.letters.len() >= limit {
            break;
        }
        page.next = Some(after.saturating_add(1));
        if began.elapsed() > patience {
            return Ok(page);
        }
    }
    page.next = page.letters.last().map(|last| last.number);
    Ok(page)
}

//! A page of dead letters, or of events, that costs no more than somebody wants to wait.

use std::time::{Duration, Instant};

use crate::store::{
    DeadFilter, DeadLetters, DeadSummary, EventFilter, EventState, OutboxAdmin, OutboxEntry, StoreResult,
};

/// How many places are looked at by one statement: a filter that no index helps reads no more than this.
const WINDOW: i64 = 20_000;
/// How many of them: on a fast machine, too, a page is no reason to read everything.
const MOST_WINDOWS: u32 = 5;

/// Letters, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LetterPage {
    /// The letters.
    pub letters: Vec<DeadSummary>,
    /// Where the next page begins ([`DeadFilter::before`]): there may be more, older ones. `None`: there are none.
    pub next: Option<i64>,
}

/// The newest letters that a filter means, as many as it asks for: or fewer, if `patience` is over, or 100,000 places were looked at,
/// before all were. Then the next page goes on from there.
pub async fn page<S: DeadLetters>(
    store: &S,
    filter: &DeadFilter,
    patience: Duration,
) -> StoreResult<LetterPage> {
    let began = Instant::now();
    let limit = usize::try_from(filter.limit).unwrap_or(usize::MAX);
    let mut page = LetterPage { letters: Vec::new(), next: filter.before };
    if an_index_finds(filter) {
        let filter = DeadFilter { newest_first: true, ..filter.clone() };
        page.letters = store.dead_letters(&filter).await?;
        page.next = page.letters.last().filter(|_| page.letters.len() >= limit).map(|last| last.number);
        return Ok(page);
    }
    let mut windows = 0;
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
        windows += 1;
        if windows >= MOST_WINDOWS || began.elapsed() > patience {
            return Ok(page);
        }
    }
    page.next = page.letters.last().map(|last| last.number);
    Ok(page)
}

/// Events, the oldest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EventPage {
    /// The events.
    pub events: Vec<OutboxEntry>,
    /// Where the next page begins ([`EventFilter::after`]): there may be more, younger ones. `None`: there are none.
    pub next: Option<i64>,
}

/// The oldest events that a filter means, as [`page`] does it for letters.
pub async fn event_page<S: OutboxAdmin>(
    store: &S,
    filter: &EventFilter,
    patience: Duration,
) -> StoreResult<EventPage> {
    let began = Instant::now();
    let limit = usize::try_from(filter.limit).unwrap_or(usize::MAX);
    let mut page = EventPage { events: Vec::new(), next: Some(filter.after) };
    let mut windows = 0;
    while page.events.len() < limit {
        let after = page.next.unwrap_or(filter.after);
        let any = EventFilter { after, limit: 1, ..EventFilter::default() };
        let Some(oldest) = store.events(&any).await?.pop() else {
            page.next = None;
            return Ok(page);
        };
        let until = oldest.event.seq.saturating_add(WINDOW);
        let window = EventFilter {
            after,
            // Those that were given up are few, and found by themselves.
            until: (!is_found_by_state(filter)).then_some(until),
            limit: filter.limit - u32::try_from(page.events.len()).unwrap_or(filter.limit),
            ..filter.clone()
        };
        page.events.extend(store.events(&window).await?);
        if page.events.len() >= limit {
            break;
        }
        page.next = window.until;
        windows += 1;
        if page.next.is_none() || windows >= MOST_WINDOWS || began.elapsed() > patience {
            return Ok(page);
        }
    }
    page.next = page.events.last().map(|last| last.event.seq);
    Ok(page)
}

fn is_found_by_state(filter: &EventFilter) -> bool {
    filter.state == Some(EventState::Parked)
        && filter.topic.is_none()
        && filter.key.is_none()
        && filter.id.is_none()
}

/// Whether what it asks for is found by an index, so that only a page of it is read.
fn an_index_finds(filter: &DeadFilter) -> bool {
    let DeadFilter { consumer, topic, tenant, message_id, key, error, group, numbers, .. } = filter;
    let is_searched = topic.is_some()
        || tenant.is_some()
        || key.is_some()
        || error.is_some()
        || filter.failed_from_ms.is_some()
        || filter.failed_until_ms.is_some();
    let has_id = consumer.is_some() && message_id.is_some();
    !numbers.is_empty() || has_id || group.is_some() && message_id.is_none() && !is_searched
}

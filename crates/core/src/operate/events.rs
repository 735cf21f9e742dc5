//! Events that an operator publishes, parks or drops.

use serde_json::{Value, json};

use super::audit::{MAX_NUMBERS, Operator};
use crate::error::describe;
use crate::store::{Audit, EventFilter, EventState, OutboxAdmin, StoreResult};

/// How many events are changed by one statement.
const PAGE_ROWS: u32 = 200;

/// What is done to events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventChange<'a> {
    /// They are tried again at once.
    Publish,
    /// They are given up, for this reason.
    Park(&'a str),
    /// They are removed for good.
    Drop,
}

impl EventChange<'_> {
    /// Its name in the audit.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Park(_) => "park event",
            Self::Drop => "drop event",
        }
    }

    /// What was done to them.
    #[must_use]
    pub fn past(self) -> &'static str {
        match self {
            Self::Publish => "retried",
            Self::Park(_) => "parked",
            Self::Drop => "dropped",
        }
    }

    /// The states that are meant if nobody names one. What waits behind a held event becomes pending when that one is parked, so
    /// held ones come first.
    #[must_use]
    pub fn states(self) -> &'static [EventState] {
        match self {
            Self::Publish => &[EventState::Parked, EventState::Held],
            Self::Park(_) => &[EventState::Held, EventState::Delayed, EventState::Pending],
            Self::Drop => &[EventState::Parked],
        }
    }

    /// Whether events in this state can be changed so.
    #[must_use]
    pub fn takes(self, state: EventState) -> bool {
        match self {
            Self::Publish => matches!(state, EventState::Parked | EventState::Held | EventState::Delayed),
            Self::Park(_) => matches!(state, EventState::Held | EventState::Delayed | EventState::Pending),
            Self::Drop => true,
        }
    }
}

impl<S: OutboxAdmin + Audit> Operator<S> {
    /// Changes the events that a filter means and that are in one of these states, a page at a time. What comes back meanwhile is
    /// not met again. Returns how many.
    pub async fn change_events(
        &self,
        change: EventChange<'_>,
        filter: &EventFilter,
        states: &[EventState],
    ) -> StoreResult<u64> {
        let mut parameters = as_parameters(filter, states);
        if let EventChange::Park(reason) = change {
            parameters["reason"] = json!(reason);
        }
        let ongoing = self.begin(self.action(change.name()).with(parameters)).await?;
        let mut count = 0;
        for state in states {
            let of_state = EventFilter { state: Some(*state), ..filter.clone() };
            if let Err(error) = self.change_all(change, of_state, &mut count).await {
                ongoing.so_far(json!({ change.past(): count })).await;
                ongoing.failed(describe(&error)).await;
                return Err(error);
            }
        }
        ongoing.ended(json!({ change.past(): count })).await;
        Ok(count)
    }

    async fn change_all(
        &self,
        change: EventChange<'_>,
        mut filter: EventFilter,
        count: &mut u64,
    ) -> StoreResult<()> {
        filter.limit = PAGE_ROWS;
        loop {
            let page = self.store.events(&filter).await?;
            let Some(last) = page.last() else { return Ok(()) };
            filter.after = last.event.seq;
            let these = EventFilter {
                seqs: page.iter().map(|entry| entry.event.seq).collect(),
                state: filter.state,
                limit: PAGE_ROWS,
                ..EventFilter::default()
            };
            *count += match change {
                EventChange::Publish => self.store.retry_events(&these).await?,
                EventChange::Park(reason) => self.store.park_events(&these, reason).await?,
                EventChange::Drop => self.store.drop_events(&these).await?,
            };
        }
    }
}

/// Which events are meant, as the audit keeps it: a key may be somebody's name, so only that there was one.
fn as_parameters(filter: &EventFilter, states: &[EventState]) -> Value {
    let mut parameters = json!({
        "numbers": filter.seqs.iter().take(MAX_NUMBERS).collect::<Vec<_>>(),
        "id": filter.id.map(|id| id.to_string()),
        "topic": filter.topic,
        "by_key": filter.key.is_some(),
        "states": states.iter().map(|state| state.as_str()).collect::<Vec<_>>(),
    });
    if filter.seqs.len() > MAX_NUMBERS {
        parameters["numbers_in_all"] = json!(filter.seqs.len());
    }
    parameters
}

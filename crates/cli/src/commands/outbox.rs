//! `oncebox outbox`: look at events, retry or drop them.

mod show;

use std::path::Path;

use oncebox_core::store::{EventFilter, EventState, OutboxEntry};

use crate::args::{OutboxAction, OutboxChange, OutboxSelection};
use crate::commands::selection::{Numbered, PAGE_ROWS, all_of, report_changed, require_choice};
use crate::exit::{Answer, CommandResult, Exit, Failure};
use crate::load;
use crate::output;
use crate::stores::{ConfiguredStore, WithStore, require_schema, with_store};

pub(crate) async fn run(file: &Path, action: OutboxAction) -> CommandResult {
    let config = load::config(file)?;
    with_store(&config.store, Outbox { action }).await
}

struct Outbox {
    action: OutboxAction,
}

impl Numbered for OutboxEntry {
    fn number(&self) -> i64 {
        self.event.seq
    }
}

impl WithStore for Outbox {
    type Output = CommandResult;

    async fn run<S: ConfiguredStore>(self, store: S) -> CommandResult {
        require_schema(&store).await?;
        match self.action {
            OutboxAction::List { selection, page, output } => {
                let filters = filters(&selection, &not_published(&selection));
                show::list(&entries(&store, &filters, page.after, page.limit).await?, output.output)
            }
            OutboxAction::Show { number, output } => {
                let filter = EventFilter { seqs: vec![number], limit: 1, ..EventFilter::default() };
                match store.events(&filter).await?.pop() {
                    Some(entry) => show::whole(&entry, output.output),
                    None => {
                        output::note(&format!("there is no event {number} in the outbox"));
                        Ok(Answer::No)
                    }
                }
            }
            OutboxAction::Retry(change) => {
                let states = [Some(EventState::Parked), Some(EventState::Held)];
                let can_go =
                    |state: EventState| state == EventState::Delayed || states.contains(&Some(state));
                if let Some(state) = change.selection.state.filter(|state| !can_go((*state).into())) {
                    let text = format!(
                        "only parked, held and delayed events can be retried, not {} ones",
                        EventState::from(state).as_str()
                    );
                    return Err(Failure { exit: Exit::Usage, text });
                }
                apply(&store, change, &states, "retried", async |filter| store.retry_events(filter).await)
                    .await
            }
            OutboxAction::Drop(change) => {
                let states = [Some(EventState::Parked)];
                apply(&store, change, &states, "dropped", async |filter| store.drop_events(filter).await)
                    .await
            }
        }
    }
}

/// Without a state, what is not published; an event that is named may be that too.
fn not_published(selection: &OutboxSelection) -> Vec<Option<EventState>> {
    if selection.numbers.is_empty() && selection.id.is_none() {
        [EventState::Pending, EventState::Delayed, EventState::Held, EventState::Parked].map(Some).to_vec()
    } else {
        vec![None]
    }
}

/// A filter for each state: the chosen one, or else those.
fn filters(selection: &OutboxSelection, otherwise: &[Option<EventState>]) -> Vec<EventFilter> {
    let states = selection.state.map_or_else(|| otherwise.to_vec(), |state| vec![Some(state.into())]);
    let filter = |state| EventFilter {
        seqs: selection.numbers.clone(),
        id: selection.id,
        state,
        topic: selection.topic.clone(),
        key: selection.key.clone().map(String::into_bytes),
        after: 0,
        limit: PAGE_ROWS,
    };
    states.into_iter().map(filter).collect()
}

/// The first events above a number that fit one of the filters.
async fn entries<S: ConfiguredStore>(
    store: &S,
    filters: &[EventFilter],
    after: i64,
    limit: u32,
) -> Result<Vec<OutboxEntry>, Failure> {
    let mut entries = Vec::new();
    for filter in filters {
        entries.extend(store.events(&EventFilter { after, limit, ..filter.clone() }).await?);
    }
    entries.sort_by_key(Numbered::number);
    // One that has changed its state in between was found twice.
    entries.dedup_by_key(|entry| entry.event.seq);
    entries.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    Ok(entries)
}

/// Retries or drops, a page at a time. What comes back meanwhile is not met again.
async fn apply<S: ConfiguredStore>(
    store: &S,
    change: OutboxChange,
    states: &[Option<EventState>],
    verb: &str,
    apply: impl AsyncFn(&EventFilter) -> oncebox_core::store::StoreResult<u64>,
) -> CommandResult {
    let OutboxChange { selection, all, dry_run, output } = change;
    let is_chosen =
        filters(&selection, &[None]) != [EventFilter { limit: PAGE_ROWS, ..EventFilter::default() }];
    require_choice("events", "--topic, --key", is_chosen, all)?;
    let filters = filters(&selection, states);
    if dry_run {
        let found = all_of("events", async |after| entries(store, &filters, after, PAGE_ROWS).await).await?;
        return show::list(&found, output.output);
    }
    let mut count = 0;
    for filter in &filters {
        let mut after = 0;
        loop {
            let page = store.events(&EventFilter { after, ..filter.clone() }).await?;
            let Some(last) = page.last() else { break };
            after = last.event.seq;
            let seqs = page.iter().map(|entry| entry.event.seq).collect();
            let these = EventFilter { seqs, state: filter.state, limit: PAGE_ROWS, ..EventFilter::default() };
            count += apply(&these).await?;
        }
    }
    if count == 0 {
        let states: Vec<&str> = filters.iter().filter_map(|f| f.state).map(EventState::as_str).collect();
        output::note(&format!("no {} event matches", states.join(" or ")));
    }
    report_changed(verb, count, "events", output.output)
}

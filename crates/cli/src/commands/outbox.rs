//! `oncebox outbox`: look at events, retry or drop them.

mod show;

use std::path::Path;

use oncebox_core::operate::Operator;
use oncebox_core::store::{EventFilter, EventState, OutboxEntry};
use serde_json::{Value, json};

use crate::args::{OutboxAction, OutboxChange, OutboxSelection};
use crate::commands::audit::audited;
use crate::commands::selection::{Numbered, PAGE_ROWS, all_of, report_changed, require_choice};
use crate::exit::{Answer, CommandResult, Exit, Failure};
use crate::load;
use crate::output;
use crate::stores::{ConfiguredStore, WithStore, require_schema, with_store};

/// How many numbers of events are written down.
const MAX_NUMBERS: usize = 100;

pub(crate) async fn run(file: &Path, who: &str, action: OutboxAction) -> CommandResult {
    let config = load::config(file)?;
    with_store(&config.store, Outbox { who, action }).await
}

struct Outbox<'a> {
    who: &'a str,
    action: OutboxAction,
}

impl Numbered for OutboxEntry {
    fn number(&self) -> i64 {
        self.event.seq
    }
}

impl WithStore for Outbox<'_> {
    type Output = CommandResult;

    async fn run<S: ConfiguredStore>(self, store: S) -> CommandResult {
        require_schema(&store).await?;
        let operator = Operator::new(&store, self.who);
        match self.action {
            OutboxAction::List { selection, page, output } => {
                let filters = filters(&selection, &not_published(&selection));
                let found = entries(&store, &filters, page.after, page.limit).await?;
                show::list(&found, is_choice(&selection), output.output)
            }
            OutboxAction::Show { number, raw, output } => {
                let filter = EventFilter { seqs: vec![number], limit: 1, ..EventFilter::default() };
                match store.events(&filter).await?.pop() {
                    Some(entry) if raw => output::raw(entry.event.payload.as_deref()),
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
                let verb = Verb { action: "publish", past: "retried" };
                apply(&store, &operator, change, &states, verb, async |filter| {
                    store.retry_events(filter).await
                })
                .await
            }
            OutboxAction::Drop(change) => {
                let states = [Some(EventState::Parked)];
                let verb = Verb { action: "drop event", past: "dropped" };
                apply(&store, &operator, change, &states, verb, async |filter| {
                    store.drop_events(filter).await
                })
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

fn is_choice(selection: &OutboxSelection) -> bool {
    filters(selection, &[None]) != [EventFilter { limit: PAGE_ROWS, ..EventFilter::default() }]
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

/// What is done to events: for the audit, and for the answer.
struct Verb {
    action: &'static str,
    past: &'static str,
}

/// Retries or drops, a page at a time. What comes back meanwhile is not met again.
async fn apply<S: ConfiguredStore>(
    store: &S,
    operator: &Operator<S>,
    change: OutboxChange,
    states: &[Option<EventState>],
    verb: Verb,
    apply: impl AsyncFn(&EventFilter) -> oncebox_core::store::StoreResult<u64>,
) -> CommandResult {
    let OutboxChange { selection, all, dry_run, output } = change;
    require_choice("events", "--topic, --key", is_choice(&selection), all)?;
    let filters = filters(&selection, states);
    if dry_run {
        let found = all_of("events", async |after| entries(store, &filters, after, PAGE_ROWS).await).await?;
        return show::list(&found, true, output.output);
    }
    let work = async {
        let mut count = 0;
        for filter in &filters {
            let mut after = 0;
            loop {
                let page = store.events(&EventFilter { after, ..filter.clone() }).await?;
                let Some(last) = page.last() else { break };
                after = last.event.seq;
                let seqs = page.iter().map(|entry| entry.event.seq).collect();
                let these =
                    EventFilter { seqs, state: filter.state, limit: PAGE_ROWS, ..EventFilter::default() };
                count += apply(&these).await?;
            }
        }
        Ok(count)
    };
    let action = operator.action(verb.action).with(parameters(&selection, &filters));
    let count = audited(operator, action, work, |count| json!({ verb.past: count })).await?;
    if count == 0 {
        let states: Vec<&str> = filters.iter().filter_map(|f| f.state).map(EventState::as_str).collect();
        output::note(&format!("no {} event matches", states.join(" or ")));
    }
    report_changed(verb.past, count, "events", output.output)
}

/// Which events are meant, as the audit keeps it: a key may be somebody's name, so only that there was one.
fn parameters(selection: &OutboxSelection, filters: &[EventFilter]) -> Value {
    json!({
        "numbers": selection.numbers.iter().take(MAX_NUMBERS).collect::<Vec<_>>(),
        "id": selection.id.map(|id| id.to_string()),
        "topic": selection.topic,
        "by_key": selection.key.is_some(),
        "states": filters.iter().filter_map(|filter| filter.state).map(EventState::as_str).collect::<Vec<_>>(),
    })
}

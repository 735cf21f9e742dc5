//! `oncebox outbox`: look at events, retry, park or drop them.

mod show;

use std::path::Path;

use oncebox_core::operate::{EventChange, Operator};
use oncebox_core::store::{EventFilter, EventState, OutboxEntry};

use crate::args::{OutboxAction, OutboxChange, OutboxSelection};
use crate::commands::selection::{Numbered, PAGE_ROWS, all_of, report_changed, require_choice};
use crate::exit::{Answer, CommandResult, Exit, Failure};
use crate::load;
use crate::output;
use crate::stores::{ConfiguredStore, WithStore, require_schema, with_store};

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
            OutboxAction::Retry(change) => apply(&store, &operator, change, EventChange::Publish).await,
            OutboxAction::Park { change, reason } => {
                apply(&store, &operator, change, EventChange::Park(&reason)).await
            }
            OutboxAction::Drop(change) => apply(&store, &operator, change, EventChange::Drop).await,
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
    states.into_iter().map(|state| EventFilter { state, ..filter(selection) }).collect()
}

/// What is chosen, whatever its state.
fn filter(selection: &OutboxSelection) -> EventFilter {
    EventFilter {
        seqs: selection.numbers.clone(),
        id: selection.id,
        state: None,
        topic: selection.topic.clone(),
        key: selection.key.clone().map(String::into_bytes),
        limit: PAGE_ROWS,
        ..EventFilter::default()
    }
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

/// Retries, parks or drops, a page at a time.
async fn apply<S: ConfiguredStore>(
    store: &S,
    operator: &Operator<S>,
    asked: OutboxChange,
    change: EventChange<'_>,
) -> CommandResult {
    let OutboxChange { selection, all, dry_run, output } = asked;
    require_choice("events", "--topic, --key", is_choice(&selection), all)?;
    let states: Vec<EventState> = match selection.state.map(EventState::from) {
        Some(state) if !change.takes(state) => return Err(cannot(change, state)),
        Some(state) => vec![state],
        None => change.states().to_vec(),
    };
    if dry_run {
        let of_states: Vec<_> = states.into_iter().map(Some).collect();
        let filters = filters(&selection, &of_states);
        let found = all_of("events", async |after| entries(store, &filters, after, PAGE_ROWS).await).await?;
        return show::list(&found, true, output.output);
    }
    let count = operator.change_events(change, &filter(&selection), &states).await?;
    if count == 0 {
        let states: Vec<&str> = states.into_iter().map(EventState::as_str).collect();
        output::note(&format!("no {} event matches", states.join(" or ")));
    }
    report_changed(change.past(), count, "events", output.output)
}

fn cannot(change: EventChange<'_>, state: EventState) -> Failure {
    let all = [EventState::Parked, EventState::Held, EventState::Delayed, EventState::Pending];
    let fit: Vec<&str> =
        all.into_iter().filter(|state| change.takes(*state)).map(EventState::as_str).collect();
    let (last, others) = fit.split_last().unwrap_or((&"no", &[]));
    let fit = format!("{} and {last}", others.join(", "));
    let text = format!("only {fit} events can be {}, not {} ones", change.past(), state.as_str());
    Failure { exit: Exit::Usage, text }
}

//! `oncebox dead`: look at dead letters, export, change, replay or drop them.

mod discard;
mod edit;
mod export;
pub(crate) mod groups;
pub(crate) mod replay;
mod show;

use std::path::Path;

use oncebox_config::Config;
use oncebox_core::operate::Operator;
use oncebox_core::store::{DeadFilter, DeadSummary};

use crate::args::{DeadAction, DeadSelection};
use crate::commands::selection::{Numbered, PAGE_ROWS, all_of, require_choice};
use crate::exit::{Answer, CommandResult, Failure};
use crate::load;
use crate::output;
use crate::stores::{ConfiguredStore, WithStore, require_schema, with_store};

pub(crate) async fn run(file: &Path, who: &str, action: DeadAction) -> CommandResult {
    let config = load::config(file)?;
    with_store(&config.store, Dead { action, who, config: &config }).await
}

struct Dead<'a> {
    action: DeadAction,
    who: &'a str,
    config: &'a Config,
}

impl WithStore for Dead<'_> {
    type Output = CommandResult;

    async fn run<S: ConfiguredStore>(self, store: S) -> CommandResult {
        require_schema(&store).await?;
        let operator = Operator::new(&store, self.who);
        match self.action {
            DeadAction::List { selection, page, newest_first, before, output } => {
                let filter = filter(selection);
                let is_filtered = is_choice(&filter);
                let filter =
                    DeadFilter { limit: page.limit, after: page.after, before, newest_first, ..filter };
                show::list(&store.dead_letters(&filter).await?, is_filtered, output.output)
            }
            DeadAction::Groups { consumer, limit, output } => {
                groups::list(&store, self.config, consumer.as_deref(), limit, output.output).await
            }
            DeadAction::Show { number, raw, output } => match store.dead_letter(number).await? {
                Some(letter) if raw => output::raw(letter.letter.record.payload.as_deref()),
                Some(letter) => show::whole(&letter, output.output),
                None => no_such_letter(number),
            },
            DeadAction::Export { selection, limit, before } => {
                export::export(&store, selection, limit, before).await
            }
            DeadAction::Replay(asked) => replay::replay(&store, &operator, self.config, asked).await,
            DeadAction::Edit(asked) => edit::edit(&store, &operator, asked).await,
            DeadAction::Drop { change, reason } => {
                discard::discard(&store, &operator, change, reason.as_deref()).await
            }
        }
    }
}

fn no_such_letter(number: i64) -> CommandResult {
    output::note(&format!("there is no dead letter {number}"));
    Ok(Answer::No)
}

fn filter(selection: DeadSelection) -> DeadFilter {
    DeadFilter {
        numbers: selection.numbers,
        consumer: selection.consumer,
        group: selection.group,
        topic: selection.topic,
        tenant: selection.tenant,
        message_id: selection.message_id,
        key: selection.key.map(String::into_bytes),
        error: selection.error,
        failed_from_ms: selection.since.map(jiff::Timestamp::as_millisecond),
        failed_until_ms: selection.until.map(jiff::Timestamp::as_millisecond),
        limit: PAGE_ROWS,
        ..DeadFilter::default()
    }
}

/// Replay and drop change things, so "everything" has to be said.
fn chosen(selection: DeadSelection, all: bool) -> Result<DeadFilter, Failure> {
    let chosen = filter(selection);
    require_choice("dead letters", "--consumer, --group, --topic", is_choice(&chosen), all)?;
    Ok(chosen)
}

fn is_choice(filter: &DeadFilter) -> bool {
    *filter != DeadFilter { limit: PAGE_ROWS, ..DeadFilter::default() }
}

impl Numbered for DeadSummary {
    fn number(&self) -> i64 {
        self.number
    }
}

/// What a dry run shows.
async fn matching<S: ConfiguredStore>(store: &S, filter: &DeadFilter) -> Result<Vec<DeadSummary>, Failure> {
    let page = async |after| Ok(store.dead_letters(&DeadFilter { after, ..filter.clone() }).await?);
    all_of("dead letters", page).await
}

//! `oncebox dead`: look at dead letters, replay or drop them.

mod replay;
mod show;

use std::path::Path;

use oncebox_config::Config;
use oncebox_core::store::{DeadFilter, DeadSummary};

use crate::args::{DeadAction, DeadChange, DeadSelection};
use crate::commands::selection::{Numbered, PAGE_ROWS, all_of, report_changed, require_choice};
use crate::exit::{Answer, CommandResult, Failure};
use crate::load;
use crate::output;
use crate::stores::{ConfiguredStore, WithStore, require_schema, with_store};

pub(crate) async fn run(file: &Path, action: DeadAction) -> CommandResult {
    let config = load::config(file)?;
    with_store(&config.store, Dead { action, config: &config }).await
}

struct Dead<'a> {
    action: DeadAction,
    config: &'a Config,
}

impl WithStore for Dead<'_> {
    type Output = CommandResult;

    async fn run<S: ConfiguredStore>(self, store: S) -> CommandResult {
        require_schema(&store).await?;
        match self.action {
            DeadAction::List { selection, page, output } => {
                let filter = DeadFilter { limit: page.limit, after: page.after, ..filter(selection) };
                show::list(&store.dead_letters(&filter).await?, output.output)
            }
            DeadAction::Show { number, output } => match store.dead_letter(number).await? {
                Some(letter) => show::whole(&letter, output.output),
                None => {
                    output::note(&format!("there is no dead letter {number}"));
                    Ok(Answer::No)
                }
            },
            DeadAction::Replay { change: DeadChange { selection, all, dry_run, output }, force } => {
                let filter = chosen(selection, all)?;
                if dry_run {
                    return show::list(&matching(&store, &filter).await?, output.output);
                }
                replay::all(&store, self.config, filter, force, output.output).await
            }
            DeadAction::Drop(DeadChange { selection, all, dry_run, output }) => {
                let filter = chosen(selection, all)?;
                if dry_run {
                    return show::list(&matching(&store, &filter).await?, output.output);
                }
                let mut dropped = 0;
                // A page at a time, so that no statement grows without bound.
                loop {
                    let page = store.drop_dead(&filter).await?;
                    dropped += page;
                    if page < u64::from(PAGE_ROWS) {
                        break;
                    }
                }
                report_changed("dropped", dropped, "dead letters", output.output)
            }
        }
    }
}

fn filter(selection: DeadSelection) -> DeadFilter {
    DeadFilter {
        numbers: selection.numbers,
        consumer: selection.consumer,
        topic: selection.topic,
        tenant: selection.tenant,
        message_id: selection.message_id,
        key: selection.key.map(String::into_bytes),
        after: 0,
        limit: PAGE_ROWS,
    }
}

/// Replay and drop change things, so "everything" has to be said.
fn chosen(selection: DeadSelection, all: bool) -> Result<DeadFilter, Failure> {
    let chosen = filter(selection);
    let everything = DeadFilter { limit: PAGE_ROWS, ..DeadFilter::default() };
    require_choice("dead letters", "--consumer, --topic", chosen != everything, all)?;
    Ok(chosen)
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

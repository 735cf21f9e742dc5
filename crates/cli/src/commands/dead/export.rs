//! `oncebox dead export`: whole letters as JSON lines.

use std::time::Duration;

use oncebox_core::operate::whole_page;
use oncebox_core::store::DeadFilter;

use super::{filter, is_choice, show};
use crate::args::DeadSelection;
use crate::commands::selection::PAGE_ROWS;
use crate::exit::{Answer, CommandResult};
use crate::output;
use crate::stores::ConfiguredStore;

/// A page of letters that are hard to find is looked for so long, then the next one goes on.
const PAGE_PATIENCE: Duration = Duration::from_secs(10);

/// The newest first, one JSON document for each, as `dead show --output json` has it.
pub(super) async fn export<S: ConfiguredStore>(
    store: &S,
    selection: DeadSelection,
    limit: u64,
    before: Option<i64>,
) -> CommandResult {
    let chosen = filter(selection);
    let is_filtered = is_choice(&chosen);
    let (mut before, mut written) = (before, 0);
    while written < limit {
        let rows = u32::try_from(limit - written).unwrap_or(u32::MAX).min(PAGE_ROWS);
        let page = DeadFilter { before, limit: rows, newest_first: true, ..chosen.clone() };
        let page = whole_page(store, &page, PAGE_PATIENCE).await?;
        for letter in &page.letters {
            if !output::json_line(&show::as_json(letter))? {
                return Ok(Answer::Yes);
            }
            written += 1;
        }
        before = page.next;
        if before.is_none() {
            return output::listed(written == 0, is_filtered);
        }
    }
    if let Some(next) = before {
        output::note(&format!("there may be more than these {written}: go on with --before {next}"));
    }
    Ok(Answer::Yes)
}

//! What `dead` and `outbox` share: rows with numbers, chosen by filter, changed a page at a time.

use serde_json::json;

use crate::args::Output;
use crate::exit::{Answer, CommandResult, Exit, Failure};
use crate::output;

/// How many rows are taken into memory, or changed by one statement, at once.
pub(crate) const PAGE_ROWS: u32 = 200;
/// How many a dry run lists.
pub(crate) const MAX_SHOWN: usize = 10_000;

/// A row of a list that is ordered by number.
pub(crate) trait Numbered {
    fn number(&self) -> i64;
}

/// Whoever means everything has to say so.
pub(crate) fn require_choice(what: &str, filters: &str, is_chosen: bool, all: bool) -> Result<(), Failure> {
    if is_chosen || all {
        return Ok(());
    }
    let text = format!("say which {what}: by number, by filter ({filters}, …), or --all");
    Err(Failure { exit: Exit::Usage, text })
}

/// What a dry run shows: all that match, within reason. `page` gives the rows above a number.
pub(crate) async fn all_of<T: Numbered>(
    what: &str,
    page: impl AsyncFn(i64) -> Result<Vec<T>, Failure>,
) -> Result<Vec<T>, Failure> {
    let mut all: Vec<T> = Vec::new();
    while all.len() < MAX_SHOWN {
        let rows = page(all.last().map_or(0, Numbered::number)).await?;
        if rows.is_empty() {
            return Ok(all);
        }
        all.extend(rows);
    }
    output::note(&format!("there may be more than these {} {what}", all.len()));
    Ok(all)
}

/// How many were changed; none is a negative answer.
pub(crate) fn report_changed(verb: &str, count: u64, what: &str, output: Output) -> CommandResult {
    match output {
        Output::Json => output::json(&json!({verb: count}))?,
        Output::Table => output::line(&format!("{verb} {count} {what}"))?,
    }
    Ok(if count > 0 { Answer::Yes } else { Answer::No })
}

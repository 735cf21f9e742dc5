//! `oncebox purge`: one retention pass now, over receipts and published events.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use oncebox_core::{EventFilter, EventState, OutboxEntry, Retention};
use serde_json::json;

use crate::args::Output;
use crate::commands::selection::{MOST_SHOWN, PAGE};
use crate::exit::{Answer, CommandResult, Failure};
use crate::load;
use crate::output;
use crate::stores::{self, SqlStore, WithStore, require_schema, with_store};

pub(crate) async fn run(file: &Path, dry_run: bool, output: Output) -> CommandResult {
    let config = load::config(file)?;
    let retention = stores::retention(&config.inboxes);
    with_store(&config.store, Purge { retention, keep: config.outbox.keep, dry_run, output }).await
}

struct Purge {
    retention: Vec<Retention>,
    keep: Duration,
    dry_run: bool,
    output: Output,
}

impl WithStore for Purge {
    type Output = CommandResult;

    async fn run<S: SqlStore>(self, store: S) -> CommandResult {
        require_schema(&store).await?;
        let spinner = output::spinner("purging old receipts and published events");
        let purged = async {
            let purged = store.purge(&self.retention, self.dry_run).await?;
            let events = if self.dry_run {
                count_published(&store, self.keep).await?
            } else {
                store.purge_published(self.keep).await?
            };
            Ok::<_, Failure>((purged, events))
        };
        let purged = purged.await;
        spinner.finish_and_clear();
        let (purged, events) = purged?;
        match self.output {
            Output::Json => output::json(&json!({
                "dry_run": self.dry_run, "receipts": purged.receipts, "partitions": purged.partitions,
                "events": events,
            }))?,
            Output::Table => {
                let verb = if self.dry_run { "would remove" } else { "removed" };
                output::line(&format!(
                    "{verb} {} receipts, {} whole partitions and {events} published events",
                    purged.receipts, purged.partitions
                ))?;
            }
        }
        Ok(Answer::Yes)
    }
}

/// How many events are published for longer than `keep`, within reason.
async fn count_published<S: SqlStore>(store: &S, keep: Duration) -> Result<u64, Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let before = i64::try_from(now.saturating_sub(keep).as_millis()).unwrap_or(i64::MAX);
    let is_old = |entry: &OutboxEntry| entry.state_at_ms.is_some_and(|at| at < before);
    let mut filter =
        EventFilter { state: Some(EventState::Published), limit: PAGE, ..EventFilter::default() };
    let (mut seen, mut old) = (0, 0);
    while seen < MOST_SHOWN {
        let page = store.events(&filter).await?;
        let Some(last) = page.last() else { return Ok(old) };
        filter.after = last.event.seq;
        seen += page.len();
        old += page.iter().filter(|entry| is_old(entry)).count() as u64;
    }
    eprintln!("only the first {seen} published events were looked at");
    Ok(old)
}

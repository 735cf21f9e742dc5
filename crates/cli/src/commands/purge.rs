//! `oncebox purge`: one retention pass now, over receipts and published events.

use std::path::Path;
use std::time::Duration;

use indicatif::ProgressBar;
use oncebox_core::clock::Clock;
use oncebox_core::operate::Operator;
use oncebox_core::store::{
    EventFilter, EventState, OutboxEntry, PassEnd, PurgePass, PurgeProgress, Purged, Retention,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::args::Output;
use crate::commands::audit::audited;
use crate::commands::selection::{MAX_SHOWN, PAGE_ROWS};
use crate::exit::{Answer, CommandResult, Failure};
use crate::interrupt::Interrupt;
use crate::load;
use crate::output;
use crate::stores::{self, ConfiguredStore, WithStore, require_schema, with_store};

pub(crate) async fn run(file: &Path, who: &str, dry_run: bool, output: Output) -> CommandResult {
    let config = load::config(file)?;
    let retention = stores::retention(&config.inboxes);
    let (keep, keep_audit) = (config.outbox.keep, config.purge.audit);
    with_store(&config.store, Purge { who, retention, keep, keep_audit, dry_run, output }).await
}

struct Purge<'a> {
    who: &'a str,
    retention: Vec<Retention>,
    keep: Duration,
    keep_audit: Duration,
    dry_run: bool,
    output: Output,
}

impl WithStore for Purge<'_> {
    type Output = CommandResult;

    async fn run<S: ConfiguredStore>(self, store: S) -> CommandResult {
        require_schema(&store).await?;
        let bar = output::bar(0, "{bar:40.green} {percent}% of the receipts looked at");
        let done = if self.dry_run {
            self.purge(&store, &bar).await
        } else {
            let operator = Operator::new(&store, self.who);
            let told = |(purged, events): &(Purged, u64)| json!({ "receipts": purged.receipts, "partitions": purged.partitions, "events": events });
            audited(&operator, operator.action("purge"), self.purge(&store, &bar), told).await
        };
        bar.finish_and_clear();
        let (purged, events) = done?;
        let end = match purged.end {
            PassEnd::Finished => "finished",
            PassEnd::Stopped => "stopped",
            PassEnd::Elsewhere => "elsewhere",
        };
        match self.output {
            Output::Json => output::json(&json!({
                "dry_run": self.dry_run, "receipts": purged.receipts, "partitions": purged.partitions,
                "events": events, "end": end,
            }))?,
            Output::Table => {
                let verb = if self.dry_run { "would remove" } else { "removed" };
                output::line(&format!(
                    "{verb} {} receipts, {} whole partitions and {events} published events",
                    purged.receipts, purged.partitions
                ))?;
            }
        }
        match purged.end {
            PassEnd::Finished => {}
            // It is being done.
            PassEnd::Elsewhere => output::note("another process is purging receipts at the moment"),
            PassEnd::Stopped => {
                output::note("stopped before the end; the next pass goes on from there");
                return Ok(Answer::No);
            }
        }
        Ok(Answer::Yes)
    }
}

impl Purge<'_> {
    /// Receipts, then published events. Ctrl-C ends it between two steps.
    async fn purge<S: ConfiguredStore>(
        &self,
        store: &S,
        bar: &ProgressBar,
    ) -> Result<(Purged, u64), Failure> {
        let mut interrupt = Interrupt::listen()?;
        let stop = CancellationToken::new();
        let progress = |step: PurgeProgress| {
            bar.set_length(step.total);
            bar.set_position(step.done);
        };
        let what = Purging {
            retention: &self.retention,
            keep: self.keep,
            keep_audit: self.keep_audit,
            dry_run: self.dry_run,
        };
        let mut purging = Box::pin(what.pass(store, &stop, &progress));
        tokio::select! {
            purged = &mut purging => purged,
            () = interrupt.wait() => {
                stop.cancel();
                purging.await
            }
        }
    }
}

/// What may go.
pub(crate) struct Purging<'a> {
    pub(crate) retention: &'a [Retention],
    /// How long published events stay.
    pub(crate) keep: Duration,
    /// How long it is kept who did what.
    pub(crate) keep_audit: Duration,
    pub(crate) dry_run: bool,
}

impl Purging<'_> {
    /// Receipts, then published events, until `stop`. Returns how many of each.
    pub(crate) async fn pass<S: ConfiguredStore>(
        &self,
        store: &S,
        stop: &CancellationToken,
        progress: &(dyn Fn(PurgeProgress) + Send + Sync),
    ) -> Result<(Purged, u64), Failure> {
        let pass = PurgePass {
            retention: self.retention,
            now_ms: Clock::system().now_ms(),
            dry_run: self.dry_run,
            stop,
            progress,
        };
        let purged = store.purge(pass).await?;
        if purged.end == PassEnd::Stopped {
            return Ok((purged, 0));
        }
        let events = if self.dry_run {
            count_published(store, self.keep).await?
        } else {
            store.purge_actions(self.keep_audit).await?;
            store.purge_published(self.keep).await?
        };
        Ok((purged, events))
    }
}

/// How many events are published for longer than `keep`, within reason.
async fn count_published<S: ConfiguredStore>(store: &S, keep: Duration) -> Result<u64, Failure> {
    let keep = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
    let before = Clock::system().now_ms().saturating_sub(keep);
    let is_old = |entry: &OutboxEntry| entry.state_at_ms.is_some_and(|at| at < before);
    let mut filter =
        EventFilter { state: Some(EventState::Published), limit: PAGE_ROWS, ..EventFilter::default() };
    let (mut seen, mut old) = (0, 0);
    while seen < MAX_SHOWN {
        let page = store.events(&filter).await?;
        let Some(last) = page.last() else { return Ok(old) };
        filter.after = last.event.seq;
        seen += page.len();
        old += page.iter().filter(|entry| is_old(entry)).count() as u64;
    }
    output::note(&format!("only the first {seen} published events were looked at"));
    Ok(old)
}

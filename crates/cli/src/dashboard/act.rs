//! What the dashboard does: the same as the commands, through the same code.

use std::sync::Arc;

use oncebox_config::Config;
use oncebox_core::names::ConsumerName;
use oncebox_core::operate::{EventChange, Operator};
use oncebox_core::store::{DeadFilter, EventFilter, EventState, PassEnd, PurgeProgress, Purged};
use oncebox_dashboard::{Action, Outcome, PositionMove, Task};
use serde_json::json;

use super::letters;
use crate::args::{self, Output, OutputArg};
use crate::commands::audit::audited;
use crate::commands::pause::{self, Asked};
use crate::commands::position::{LOWEST_CAP, relocate};
use crate::commands::purge::Purging;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::stores::{self, ConfiguredStore, WithStore, require_schema, with_store};

/// On connections of its own, with the limits of a handler.
pub(super) async fn act(config: Arc<Config>, action: Action, task: Task) -> Result<Outcome, Failure> {
    super::blocking(move || async move {
        with_store(&config.store, Perform { config: &config, action, task: &task }).await
    })
    .await
}

struct Perform<'a> {
    config: &'a Config,
    action: Action,
    task: &'a Task,
}

impl WithStore for Perform<'_> {
    type Output = Result<Outcome, Failure>;

    async fn run<S: ConfiguredStore>(self, store: S) -> Self::Output {
        require_schema(&store).await?;
        let Self { config, action, task } = self;
        let operator = &Operator::new(&store, format!("dashboard:{}", task.by));
        match action {
            Action::Pause { consumer, reason } => {
                let asked = Asked::pause(&task.by, reason.as_deref(), false);
                change(&store, operator, config, consumer, &asked).await
            }
            Action::Resume { consumer } => change(&store, operator, config, consumer, &Asked::Resume).await,
            Action::MovePosition(wanted) => move_position(&store, operator, config, wanted).await,
            Action::ReplayDead(wanted) => letters::replay(&store, operator, config, task, wanted).await,
            Action::EditDead(edit) => letters::edit(&store, operator, config, task, edit).await,
            Action::DropDead { numbers, reason } => {
                let filter = DeadFilter { numbers, ..DeadFilter::default() };
                let dropped = operator.drop_letters(&filter, reason.as_deref(), &task.stop).await?;
                Ok(Outcome::done(dropped, format!("Dropped {}", counted(dropped, "dead letter"))))
            }
            Action::PublishNow { numbers } => {
                let states = [EventState::Parked, EventState::Held, EventState::Delayed];
                let count = change_events(operator, EventChange::Publish, numbers, &states).await?;
                let said =
                    format!("{} will be published by the next relay that looks", counted(count, "event"));
                Ok(Outcome::done(count, said))
            }
            Action::ParkEvents { numbers, reason } => {
                let change = EventChange::Park(&reason);
                let count = change_events(operator, change, numbers, change.states()).await?;
                Ok(Outcome::done(count, format!("Parked {}", counted(count, "event"))))
            }
            Action::DropEvents { numbers } => {
                let change = EventChange::Drop;
                let count = change_events(operator, change, numbers, change.states()).await?;
                Ok(Outcome::done(count, format!("Dropped {}", counted(count, "event"))))
            }
            Action::Purge { dry_run } => purge(&store, operator, config, task, dry_run).await,
        }
    }
}

async fn change_events<S: ConfiguredStore>(
    operator: &Operator<S>,
    change: EventChange<'_>,
    numbers: Vec<i64>,
    states: &[EventState],
) -> Result<u64, Failure> {
    let these = EventFilter { seqs: numbers, ..EventFilter::default() };
    Ok(operator.change_events(change, &these, states).await?)
}

pub(super) fn counted(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn named(consumer: String) -> Result<ConsumerName, Failure> {
    ConsumerName::new(consumer).map_err(|e| Failure { exit: Exit::Usage, text: e.to_string() })
}

async fn change<S: ConfiguredStore>(
    store: &S,
    operator: &Operator<S>,
    config: &Config,
    consumer: String,
    asked: &Asked,
) -> Result<Outcome, Failure> {
    let consumer = named(consumer)?;
    pause::require_known(store, config, &consumer).await?;
    let before = pause::pause_of(store, &consumer).await?;
    let told = |changed: &bool| json!({ "changed": changed });
    let changed = match asked {
        Asked::Pause(note, _) => {
            let action =
                operator.action("pause").to(consumer.as_str()).with(json!({ "reason": note.reason() }));
            operator.act(action, store.pause(&consumer, note), told).await?
        }
        Asked::Resume => {
            let action = operator.action("resume").to(consumer.as_str());
            operator.act(action, store.resume(&consumer), told).await?
        }
    };
    let now = pause::pause_of(store, &consumer).await?;
    Ok(Outcome::done(u64::from(changed), pause::told(&consumer, asked, changed, before.or(now).as_ref())))
}

async fn move_position<S: ConfiguredStore>(
    store: &S,
    operator: &Operator<S>,
    config: &Config,
    wanted: PositionMove,
) -> Result<Outcome, Failure> {
    let PositionMove { consumer, topic, partition, to, accept_loss, dry_run } = wanted;
    let to = to.parse().map_err(|text| Failure { exit: Exit::Usage, text })?;
    let output = OutputArg { output: Output::Table };
    let wanted =
        args::PositionMove { consumer: named(consumer)?, topic, partition, to, accept_loss, dry_run, output };
    let status = store.status(LOWEST_CAP).await?;
    let (moves, _) = relocate::moved(store, operator, config, &status, &wanted).await?;
    let line = |m: &crate::commands::position::Move| {
        let from = output::or_dash(m.from);
        let log = if m.other_log { " (another log)" } else { "" };
        format!(
            "{}/{}: from {from}{log} to {}; {} skipped that were not applied, {} may be applied again",
            wanted.topic,
            m.partition,
            m.to,
            m.lost + m.gone,
            m.again
        )
    };
    let mut details: Vec<String> = moves.iter().map(line).collect();
    details.extend(relocate::cautions(config, &status, &wanted, &moves));
    let verb = if dry_run { "Would move" } else { "Moved" };
    let count = moves.len() as u64;
    let said = format!("{verb} {} in {} of {}", wanted.consumer, counted(count, "partition"), wanted.topic);
    Ok(Outcome { said, count, details, incomplete: false })
}

async fn purge<S: ConfiguredStore>(
    store: &S,
    operator: &Operator<S>,
    config: &Config,
    task: &Task,
    dry_run: bool,
) -> Result<Outcome, Failure> {
    let retention = stores::retention(&config.inboxes);
    let (keep, keep_audit) = (config.outbox.keep, config.purge.audit);
    let what = Purging { retention: &retention, keep, keep_audit, dry_run };
    let progress = |step: PurgeProgress| task.progress.set(step.done, step.total);
    let pass = what.pass(store, &task.stop, &progress);
    let (purged, events) = if dry_run {
        pass.await?
    } else {
        let told = |(purged, events): &(Purged, u64)| json!({ "receipts": purged.receipts, "partitions": purged.partitions, "events": events });
        audited(operator, operator.action("purge"), pass, told).await?
    };
    let verb = if dry_run { "Would remove" } else { "Removed" };
    let said = format!(
        "{verb} {}, {} and {}",
        counted(purged.receipts, "receipt"),
        counted(purged.partitions, "whole partition"),
        counted(events, "published event")
    );
    let details = match purged.end {
        PassEnd::Finished => Vec::new(),
        PassEnd::Stopped => {
            vec!["It was stopped before the end; the next pass goes on from there.".to_owned()]
        }
        PassEnd::Elsewhere => vec!["Another process is purging receipts at the moment.".to_owned()],
    };
    let incomplete = purged.end == PassEnd::Stopped;
    Ok(Outcome { said, count: purged.receipts + events, details, incomplete })
}

//! What the dashboard does with dead letters.

use oncebox_config::Config;
use oncebox_core::operate::{Edited, Operator, ReplayCounts, ReplayOrder, Would, dry_run};
use oncebox_core::store::{DeadFilter, LetterContent};
use oncebox_dashboard::{Edit, Outcome, Replay, Task};

use super::act::counted;
use crate::commands::dead::replay::targets;
use crate::exit::{Exit, Failure};
use crate::stores::ConfiguredStore;

/// So many letters that stay are told one by one.
const SHOWN_FAILURES: usize = 100;
/// So many letters a dry run looks at.
const MOST_TRIED: usize = 10_000;

/// In the order of their numbers, until somebody wants it to stop.
pub(super) async fn replay<S: ConfiguredStore>(
    store: &S,
    operator: &Operator<S>,
    config: &Config,
    task: &Task,
    wanted: Replay,
) -> Result<Outcome, Failure> {
    let Replay { numbers, group, limit, rate, force, dry_run } = wanted;
    let known = if numbers.is_empty() { limit.unwrap_or_default() } else { numbers.len() as u64 };
    let filter = DeadFilter { numbers, group, ..DeadFilter::default() };
    let order = ReplayOrder { filter, at_most: limit, per_second: rate, force };
    if dry_run {
        return would(store, config, &order).await;
    }
    let progress = |counts: &ReplayCounts| {
        task.progress.set(counts.total(), known);
        task.progress.tell(told(counts));
    };
    let targets = targets(store, config).await?;
    let report = operator.replay(&targets, &order, &task.stop, &progress).await?;
    let counts = &report.counts;
    let shown = report.failures.iter().take(SHOWN_FAILURES);
    let mut details: Vec<String> =
        shown.map(|failure| format!("dead letter {}: {}", failure.number, failure.reason)).collect();
    if report.stopped {
        details.push("It was stopped before the end.".to_owned());
    }
    let incomplete = report.stopped || counts.failed + counts.behind > 0;
    Ok(Outcome { said: told(counts), count: counts.applied + counts.already_applied, details, incomplete })
}

/// What became of letters, in a sentence.
fn told(counts: &ReplayCounts) -> String {
    let mut said = format!("Replayed {}", counted(counts.applied + counts.already_applied, "dead letter"));
    for (number, what) in [
        (counts.already_applied, "of them applied before"),
        (counts.failed, "failed again"),
        (counts.behind, "behind an earlier one of the same key"),
        (counts.gone, "gone meanwhile"),
    ] {
        if number > 0 {
            said.push_str(&format!("; {number} {what}"));
        }
    }
    said
}

/// What a replay would do, as far as looking tells.
async fn would<S: ConfiguredStore>(
    store: &S,
    config: &Config,
    order: &ReplayOrder,
) -> Result<Outcome, Failure> {
    let dry = dry_run(store, &targets(store, config).await?, order, MOST_TRIED).await?;
    let (all, run) = (dry.letters.len() as u64, dry.count(Would::Run.as_str()) as u64);
    let already = dry.count(Would::BeAlreadyApplied.as_str());
    let mut said = format!("{} of {} would run", run, counted(all, "dead letter"));
    let stays = |would: &Would| matches!(would, Would::BeBehind(_) | Would::Fail(_));
    let behind = dry.letters.iter().filter(|(_, would)| matches!(would, Would::BeBehind(_))).count();
    let fail = dry.letters.iter().filter(|(_, would)| matches!(would, Would::Fail(_))).count();
    for (number, what) in [
        (already, "already applied: it would only be removed"),
        (behind, "would wait behind an earlier one of the same key"),
        (fail, "would fail before the handler runs"),
    ] {
        if number > 0 {
            said.push_str(&format!("; {number} {what}"));
        }
    }
    let line = |number: i64, would: &Would| match would {
        Would::BeBehind(first) => format!("dead letter {number}: behind dead letter {first} of the same key"),
        Would::Fail(why) => format!("dead letter {number}: {why}"),
        Would::Run | Would::BeAlreadyApplied => format!("dead letter {number}: {}", would.as_str()),
    };
    let staying = dry.letters.iter().filter(|(_, would)| stays(would)).take(SHOWN_FAILURES);
    let mut details: Vec<String> = staying.map(|(letter, would)| line(letter.number, would)).collect();
    if dry.more {
        details.push(format!("There are more: the first {all} were looked at."));
    }
    details.push(
        "Nothing was changed, and no handler ran: whether one succeeds, nobody knows before.".to_owned(),
    );
    Ok(Outcome { said, count: run, details, incomplete: false })
}

/// Changes a letter, if it is still as somebody has seen it; then replays it, if that is wanted.
pub(super) async fn edit<S: ConfiguredStore>(
    store: &S,
    operator: &Operator<S>,
    config: &Config,
    task: &Task,
    edit: Edit,
) -> Result<Outcome, Failure> {
    let number = edit.number;
    let refused = |text: String| Failure { exit: Exit::Negative, text };
    let gone = || refused(format!("there is no dead letter {number}: it was replayed or dropped"));
    let stored = store.dead_letter(number).await?.ok_or_else(gone)?;
    let content = edit.applied(&LetterContent::of(&stored.letter.record));
    let (count, said) = match operator.edit(number, edit.seen, &content).await? {
        Edited::Done => (1, format!("Dead letter {number} is changed; what arrived is kept")),
        Edited::Same => (0, format!("Dead letter {number} is as it was")),
        Edited::Gone => return Err(gone()),
        Edited::Meanwhile => {
            return Err(refused(format!(
                "dead letter {number} was changed by somebody else meanwhile: look at it, and try again"
            )));
        }
    };
    if !edit.replay {
        return Ok(Outcome::done(count, said));
    }
    let one = Replay { numbers: vec![number], ..Replay::default() };
    let replayed = replay(store, operator, config, task, one).await?;
    let said = format!("{said}. {}", replayed.said);
    Ok(Outcome { said, ..replayed })
}

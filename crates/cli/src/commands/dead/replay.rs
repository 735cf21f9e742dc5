//! `oncebox dead replay`: handlers run again.

use oncebox_config::Config;
use oncebox_core::operate::{Operator, ReplayCounts, ReplayOrder, ReplayReport, Target, Would, dry_run};
use oncebox_core::printable::printable;
use oncebox_core::store::DeadSummary;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{chosen, show};
use crate::args::{DeadChange, DeadReplay, Output};
use crate::commands::selection::MAX_SHOWN;
use crate::exit::{Answer, CommandResult, Failure};
use crate::interrupt::Interrupt;
use crate::output;
use crate::stores::ConfiguredStore;

/// Replays in the order of their numbers. Ctrl-C ends it after the letter in flight.
pub(super) async fn replay<S: ConfiguredStore>(
    store: &S,
    operator: &Operator<S>,
    config: &Config,
    asked: DeadReplay,
) -> CommandResult {
    let DeadReplay { change: DeadChange { selection, all, dry_run: is_dry, output }, limit, rate, force } =
        asked;
    let filter = chosen(selection, all)?;
    let order = ReplayOrder { filter, at_most: limit, per_second: rate.map(Into::into), force };
    let targets = targets(store, config).await?;
    if is_dry {
        let dry = dry_run(store, &targets, &order, MAX_SHOWN).await?;
        if dry.more {
            output::note(&format!("there are more than these {} dead letters", dry.letters.len()));
        }
        return show_dry(&dry.letters, output.output);
    }
    let mut interrupt = Interrupt::listen()?;
    let stop = CancellationToken::new();
    let bar = output::bar(limit.unwrap_or_default(), "{pos} dead letters, {msg}");
    let progress = |counts: &ReplayCounts| {
        bar.set_position(counts.total());
        bar.set_message(format!("{} applied, {} failed", counts.applied, counts.failed));
    };
    let mut replaying = Box::pin(operator.replay(&targets, &order, &stop, &progress));
    let report = tokio::select! {
        report = &mut replaying => report,
        () = interrupt.wait() => {
            stop.cancel();
            replaying.await
        }
    };
    bar.finish_and_clear();
    tell(&report?, output.output)
}

/// The handlers of the configuration.
pub(crate) async fn targets<S: ConfiguredStore>(
    store: &S,
    config: &Config,
) -> Result<Vec<Target<S::Handler>>, Failure> {
    let mut targets = Vec::new();
    for inbox in &config.inboxes {
        targets.push(Target {
            consumer: inbox.consumer.clone(),
            identity: inbox.identity.clone(),
            on_failure: inbox.on_failure,
            handler: store.handler(inbox).await?,
        });
    }
    Ok(targets)
}

fn tell(report: &ReplayReport, output: Output) -> CommandResult {
    let counts = &report.counts;
    let replayed = counts.applied + counts.already_applied;
    let stay = counts.failed + counts.behind;
    match output {
        Output::Json => {
            let failed = |failure: &oncebox_core::operate::ReplayFailure| json!({"number": failure.number, "error": failure.reason});
            let failed: Vec<Value> = report.failures.iter().map(failed).collect();
            output::json(&json!({
                "replayed": replayed, "applied": counts.applied, "already_applied": counts.already_applied,
                "behind": counts.behind, "gone": counts.gone, "failed": failed, "stopped": report.stopped,
            }))?;
        }
        Output::Table => {
            output::line(&format!("replayed {replayed} dead letters, {stay} failed"))?;
            if counts.already_applied > 0 {
                output::note(&format!("{} of them were applied already", counts.already_applied));
            }
            for failure in &report.failures {
                output::note(&format!("dead letter {}: {}", failure.number, printable(&failure.reason)));
            }
        }
    }
    if report.stopped {
        output::note("stopped before the end");
    }
    Ok(if stay == 0 && replayed > 0 && !report.stopped { Answer::Yes } else { Answer::No })
}

fn show_dry(letters: &[(DeadSummary, Would)], output: Output) -> CommandResult {
    match output {
        Output::Json => {
            let as_json = |(letter, would): &(DeadSummary, Would)| {
                let mut json = show::summary_as_json(letter);
                json["would"] = json!(would.as_str());
                match would {
                    Would::BeBehind(first) => json["behind"] = json!(first),
                    Would::Fail(why) => json["why"] = json!(why),
                    Would::Run | Would::BeAlreadyApplied => {}
                }
                json
            };
            output::json(&letters.iter().map(as_json).collect::<Vec<_>>())?;
        }
        Output::Table => {
            let rows = letters.iter().map(|(letter, would)| {
                let would = match would {
                    Would::BeBehind(first) => format!("behind {first}"),
                    Would::Fail(why) => format!("fail: {}", output::short(why)),
                    Would::Run | Would::BeAlreadyApplied => would.as_str().to_owned(),
                };
                let id = output::or_dash(letter.message_id.as_deref());
                [letter.number.to_string(), letter.consumer.clone(), id, would, output::short(&letter.error)]
            });
            let header = ["number", "consumer", "message id", "would", "error"];
            output::line(&output::table(header, rows).to_string())?;
            let count = |word: &str| letters.iter().filter(|(_, would)| would.as_str() == word).count();
            output::line(&format!(
                "of {} dead letters {} would run, {} are already applied, {} would wait behind another, {} would fail",
                letters.len(),
                count("run"),
                count("already applied"),
                count("behind"),
                count("fail")
            ))?;
        }
    }
    output::listed(letters.is_empty(), true)
}

//! Handlers run again.

use oncebox_config::Config;
use oncebox_core::inbox::{OnFailure, Replay, Replayed, replay};
use oncebox_core::printable::printable;
use oncebox_core::store::DeadFilter;
use serde_json::{Value, json};

use crate::args::Output;
use crate::exit::{Answer, CommandResult, Failure};
use crate::output;
use crate::stores::ConfiguredStore;

/// Replays in the order of their numbers. Under `park-key` none passes an earlier one of its key, unless `force`.
pub(super) async fn all<S: ConfiguredStore>(
    store: &S,
    config: &Config,
    mut filter: DeadFilter,
    force: bool,
    output: Output,
) -> CommandResult {
    let mut handlers = Vec::new();
    for inbox in &config.inboxes {
        let handler = store.handler(inbox).await?;
        handlers.push((inbox, handler));
    }
    let (mut applied, mut failed) = (0_u64, Vec::new());
    loop {
        let page = store.dead_letters(&filter).await?;
        let Some(last) = page.last() else { break };
        filter.after = last.number;
        for letter in page {
            let found = handlers.iter().find(|(inbox, _)| inbox.consumer.as_str() == letter.consumer);
            let Some((inbox, handler)) = found else {
                failed.push((letter.number, format!("no [[inbox]] has the consumer {}", letter.consumer)));
                continue;
            };
            let how = Replay {
                consumer: &inbox.consumer,
                identity: &inbox.identity,
                in_order: inbox.on_failure == OnFailure::ParkKey && !force,
            };
            let replayed = replay(store, handler, how, letter.number).await;
            match replayed.map_err(|e| Failure::data(printable(&e.to_string())))? {
                Replayed::Applied | Replayed::Duplicate => applied += 1,
                Replayed::Gone => {}
                Replayed::Failed(reason) => failed.push((letter.number, reason)),
                Replayed::Behind(first) => failed.push((letter.number, behind(first))),
                Replayed::OfAnother(consumer) => {
                    failed.push((letter.number, format!("it belongs to the consumer {consumer}")));
                }
            }
        }
    }
    match output {
        Output::Json => {
            let failed: Vec<Value> =
                failed.iter().map(|(number, error)| json!({"number": number, "error": error})).collect();
            output::json(&json!({"replayed": applied, "failed": failed}))?;
        }
        Output::Table => {
            output::line(&format!("replayed {applied} dead letters, {} failed", failed.len()))?;
            for (number, reason) in &failed {
                output::note(&format!("dead letter {number}: {}", printable(reason)));
            }
        }
    }
    Ok(if failed.is_empty() && applied > 0 { Answer::Yes } else { Answer::No })
}

fn behind(first: i64) -> String {
    format!(
        "behind dead letter {first} of the same key (on_failure = \"park-key\"): replay or drop that one first, or use --force"
    )
}

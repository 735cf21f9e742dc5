//! `oncebox dead groups`.

use std::cmp::Reverse;

use oncebox_config::Config;
use oncebox_core::inbox::OnFailure;
use oncebox_core::operate::group_all;
use oncebox_core::store::{DeadGroup, MAX_KEYED_LETTERS};
use serde_json::{Value, json};

use crate::args::Output;
use crate::exit::{CommandResult, Failure};
use crate::output::{self, time};
use crate::stores::ConfiguredStore;

/// Letters of a group are counted up to here: a list must not cost a scan of a large table.
const COUNT_CAP: u64 = 1_000;
/// How many letters of an older oncebox get their group first.
const MAX_GROUPED: u64 = 20_000;

pub(super) async fn list<S: ConfiguredStore>(
    store: &S,
    config: &Config,
    consumer: Option<&str>,
    limit: u32,
    output: Output,
) -> CommandResult {
    if group_all(store, MAX_GROUPED).await? >= MAX_GROUPED {
        output::note("there may be more letters of an older oncebox that have no group yet: run it again");
    }
    let mut groups = store.dead_groups(consumer, limit, COUNT_CAP).await?;
    groups.sort_by_key(|group| Reverse(group.last_ms));
    let holds = |group: &DeadGroup| {
        let inbox = config.inboxes.iter().find(|inbox| inbox.consumer.as_str() == group.consumer);
        inbox.is_some_and(|inbox| inbox.on_failure == OnFailure::ParkKey)
    };
    show(&groups, &holds, output)?;
    output::listed(groups.is_empty(), consumer.is_some())
}

fn show(groups: &[DeadGroup], holds: &dyn Fn(&DeadGroup) -> bool, output: Output) -> Result<(), Failure> {
    // Without `park-key` no key is held back.
    let held = |group: &DeadGroup| if holds(group) { group.keys } else { 0 };
    match output {
        Output::Json => {
            let as_json = |group: &DeadGroup| -> Value {
                json!({
                    "group": group.group, "consumer": group.consumer, "error": group.error,
                    "letters": group.letters, "at_least": group.letters >= COUNT_CAP,
                    "first_at": time(group.first_ms), "last_at": time(group.last_ms),
                    "keys": group.keys, "keys_held_back": held(group), "newest": group.newest,
                })
            };
            output::json(&groups.iter().map(as_json).collect::<Vec<_>>())?;
        }
        Output::Table => {
            let rows = groups.iter().map(|group| {
                [
                    group.group.clone(),
                    group.consumer.clone(),
                    capped(group.letters, COUNT_CAP),
                    time(group.first_ms),
                    time(group.last_ms),
                    capped(held(group), MAX_KEYED_LETTERS),
                    output::short(&group.error),
                ]
            });
            let header =
                ["group", "consumer", "letters", "first", "last", "keys held back", "error, of the newest"];
            output::line(&output::table(header, rows).to_string())?;
        }
    }
    Ok(())
}

fn capped(count: u64, cap: u64) -> String {
    if count >= cap { format!("{cap}+") } else { count.to_string() }
}

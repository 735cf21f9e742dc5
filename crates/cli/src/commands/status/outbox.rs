//! The outbox: what waits, and whose shards it is in.

use std::collections::BTreeMap;
use std::time::Duration;

use oncebox_core::store::{OutboxStatus, ShardStatus};
use serde_json::{Value, json};

use super::capped;
use crate::output;

pub(super) fn as_json(status: &OutboxStatus) -> Value {
    let shards: Vec<Value> = status
        .shards
        .iter()
        .map(|s| {
            json!({
                "shard": s.shard, "owner": s.owner, "epoch": s.epoch,
                "expires_in_seconds": s.expires_in.map(|left| left.as_secs_f64()),
            })
        })
        .collect();
    json!({
        "pending": status.pending,
        "oldest_seconds": status.oldest.map(|age| age.as_secs_f64()),
        "delayed": status.delayed,
        "held": status.held,
        "parked": status.parked,
        "shards": shards,
    })
}

pub(super) fn as_text(status: &OutboxStatus) -> String {
    let counts = format!(
        "outbox: {} pending{}, {} of them delayed and {} held; {} parked",
        capped(status.pending),
        status.oldest.map(|age| format!(" (the oldest for {})", seconds(age))).unwrap_or_default(),
        capped(status.delayed),
        capped(status.held),
        capped(status.parked),
    );
    let mut owners: BTreeMap<Option<&str>, Vec<&ShardStatus>> = BTreeMap::new();
    for shard in &status.shards {
        owners.entry(shard.owner.as_deref()).or_default().push(shard);
    }
    let rows = owners.into_iter().map(|(owner, shards)| {
        let numbers: Vec<i64> = shards.iter().map(|s| i64::from(s.shard)).collect();
        let epochs: Vec<i64> = shards.iter().map(|s| s.epoch).collect();
        let lease = shards.iter().filter_map(|s| s.expires_in).min();
        [
            owner.unwrap_or("(nobody)").to_owned(),
            ranges(numbers),
            ranges(epochs),
            output::or_dash(lease.map(|left| format!("{} left", seconds(left)))),
        ]
    });
    format!("{counts}\n{}", output::table(["relay", "shards", "epoch", "lease"], rows))
}

fn seconds(duration: Duration) -> String {
    humantime::format_duration(Duration::from_secs(duration.as_secs())).to_string()
}

/// `0-3, 7`: numbers for people.
fn ranges(mut numbers: Vec<i64>) -> String {
    numbers.sort_unstable();
    numbers.dedup();
    let mut parts: Vec<(i64, i64)> = Vec::new();
    for number in numbers {
        match parts.last_mut() {
            Some((_, end)) if *end + 1 == number => *end = number,
            _ => parts.push((number, number)),
        }
    }
    let part = |(from, to): &(i64, i64)| if from == to { from.to_string() } else { format!("{from}-{to}") };
    parts.iter().map(part).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_written_as_a_range() {
        assert_eq!(ranges(vec![3, 0, 1, 2, 7, 7, 9, 10]), "0-3, 7, 9-10");
        assert_eq!(ranges(Vec::new()), "");
    }
}

//! `oncebox status`: consumers, positions, lag, suppressed duplicates, dead letters, the outbox.

mod outbox;

use std::path::Path;

use oncebox_config::Config;
use oncebox_core::printable::printable;
use oncebox_core::store::{PositionStatus, StoreStatus};
use serde_json::{Value, json};

use crate::args::Output;
use crate::cluster::{self, Logs};
use crate::exit::{Answer, CommandResult};
use crate::load;
use crate::output;
use crate::stores::{ConfiguredStore, WithStore, require_schema, with_store};

/// Counts stop here: a status must not cost a scan of a large table.
const COUNT_CAP: u64 = 10_000;

pub(crate) async fn run(file: &Path, output: Output) -> CommandResult {
    let config = load::config(file)?;
    with_store(&config.store, Status { config: &config, output }).await
}

struct Status<'a> {
    config: &'a Config,
    output: Output,
}

impl WithStore for Status<'_> {
    type Output = CommandResult;

    async fn run<S: ConfiguredStore>(self, store: S) -> CommandResult {
        require_schema(&store).await?;
        let status = store.status(COUNT_CAP).await?;
        let logs = cluster::logs(self.config, status.positions.iter().map(|p| p.topic.clone())).await;
        match self.output {
            Output::Json => output::json(&as_json(&status, &logs))?,
            Output::Table => as_tables(&status, &logs)?,
        }
        Ok(Answer::Yes)
    }
}

/// The position that holds back the retention of a consumer: the one that was caught up last so long ago, or never.
fn holder<'a>(status: &'a StoreStatus, consumer: &str) -> Option<&'a PositionStatus> {
    let active = status.positions.iter().filter(|p| p.consumer == consumer && !p.retired);
    active.min_by_key(|p| p.caught_up_ms)
}

fn as_json(status: &StoreStatus, logs: &Logs) -> Value {
    let positions: Vec<Value> = status
        .positions
        .iter()
        .map(|p| {
            json!({
                "consumer": p.consumer, "topic": p.topic, "partition": p.partition,
                "next_offset": p.next_offset, "lag": logs.lag(p), "log": p.log,
                "caught_up_at": p.caught_up_ms.map(output::time), "retired": p.retired, "epoch": p.epoch,
                "starts_without_progress": output::starts(p), "applied": p.applied,
                "duplicates_suppressed": p.duplicates, "last_progress": output::time(p.updated_at_ms),
            })
        })
        .collect();
    let consumers: Vec<Value> = status
        .consumers
        .iter()
        .map(|c| {
            let of = |p: &&PositionStatus| p.consumer == c.consumer;
            let mine = || status.positions.iter().filter(of);
            json!({
                "consumer": c.consumer,
                "applied": mine().map(|p| p.applied).sum::<u64>(),
                "duplicates_suppressed": mine().map(|p| p.duplicates).sum::<u64>(),
                "lag": mine().map(|p| logs.lag(p)).sum::<Option<i64>>(),
                "dead_letters": c.dead_letters,
                "purged_before": c.purged_before_ms.map(output::time),
                "horizon_held_by": holder(status, &c.consumer).map(|p| json!({
                    "topic": p.topic, "partition": p.partition,
                    "since": p.caught_up_ms.map(output::time),
                })),
            })
        })
        .collect();
    json!({
        "consumers": consumers,
        "positions": positions,
        "receipts_estimate": status.receipts_estimate,
        "outbox": outbox::as_json(&status.outbox),
        "kafka_error": logs.error(),
    })
}

fn as_tables(status: &StoreStatus, logs: &Logs) -> std::io::Result<()> {
    if let Some(error) = logs.error() {
        output::note(&format!("lag is not known: {}", printable(error)));
    }
    let consumers = status.consumers.iter().map(|c| {
        let mine = || status.positions.iter().filter(|p| p.consumer == c.consumer);
        [
            c.consumer.clone(),
            mine().map(|p| p.applied).sum::<u64>().to_string(),
            mine().map(|p| p.duplicates).sum::<u64>().to_string(),
            output::or_dash(mine().map(|p| logs.lag(p)).sum::<Option<i64>>()),
            capped(c.dead_letters),
            output::or_dash(c.purged_before_ms.map(output::time)),
            output::or_dash(holder(status, &c.consumer).map(held_by)),
        ]
    });
    let header = [
        "consumer",
        "applied",
        "duplicates suppressed",
        "lag",
        "dead letters",
        "purged before",
        "horizon held by",
    ];
    output::line(&output::table(header, consumers).to_string())?;
    let positions = status.positions.iter().map(|p| {
        [
            p.consumer.clone(),
            format!("{}/{}", p.topic, p.partition),
            output::or_dash(p.next_offset),
            output::or_dash(logs.lag(p)),
            if p.retired { "retired".to_owned() } else { output::or_dash(p.caught_up_ms.map(output::time)) },
            output::or_dash(p.log.as_deref()),
            p.epoch.to_string(),
            output::or_dash(output::starts(p)),
            output::time(p.updated_at_ms),
        ]
    });
    let header = [
        "consumer",
        "partition",
        "next offset",
        "lag",
        "caught up at",
        "log",
        "epoch",
        "starts without progress",
        "last progress",
    ];
    output::line(&output::table(header, positions).to_string())?;
    output::line(&format!("about {} receipts", status.receipts_estimate))?;
    outbox::as_table(&status.outbox)
}

/// For people.
fn held_by(position: &PositionStatus) -> String {
    let place = format!("{}/{}", position.topic, position.partition);
    match position.caught_up_ms {
        Some(at) => format!("{place} since {}", output::time(at)),
        None => format!("{place}, never caught up"),
    }
}

fn capped(count: u64) -> String {
    if count >= COUNT_CAP { format!("{COUNT_CAP}+") } else { count.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(partition: i32, caught_up_ms: Option<i64>, retired: bool) -> PositionStatus {
        PositionStatus {
            consumer: "stock".to_owned(),
            topic: "orders".to_owned(),
            partition,
            next_offset: Some(0),
            log: None,
            caught_up_ms,
            retired,
            epoch: 1,
            starts: 0,
            applied: 0,
            duplicates: 0,
            updated_at_ms: 0,
        }
    }

    #[test]
    fn the_slowest_partition_that_is_not_retired_holds_the_horizon() {
        let holder_of = |positions: Vec<PositionStatus>| {
            let status = StoreStatus { positions, ..StoreStatus::default() };
            holder(&status, "stock").map(|p| p.partition)
        };
        assert_eq!(holder_of(vec![]), None);
        assert_eq!(holder_of(vec![position(0, Some(5), false), position(1, Some(3), false)]), Some(1));
        assert_eq!(holder_of(vec![position(0, Some(5), false), position(1, None, false)]), Some(1));
        assert_eq!(holder_of(vec![position(0, Some(5), false), position(1, None, true)]), Some(0));
    }
}

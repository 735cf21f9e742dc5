//! `oncebox status`: consumers, positions, lag, suppressed duplicates, dead letters, the outbox.

mod outbox;

use std::path::Path;

use oncebox_core::config::Config;
use oncebox_core::{PositionStatus, StoreStatus};
use serde_json::{Value, json};

use crate::args::Output;
use crate::cluster::{self, Ends};
use crate::exit::{Answer, CommandResult};
use crate::load;
use crate::output;
use crate::stores::{SqlStore, WithStore, require_schema, with_store};

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

    async fn run<S: SqlStore>(self, store: S) -> CommandResult {
        require_schema(&store).await?;
        let status = store.status(COUNT_CAP).await?;
        let ends = cluster::ends(self.config).await;
        match self.output {
            Output::Json => output::json(&as_json(&status, &ends))?,
            Output::Table => as_tables(&status, &ends)?,
        }
        Ok(Answer::Yes)
    }
}

fn lag(position: &PositionStatus, ends: &Ends) -> Option<i64> {
    let high = ends.high(&position.topic, position.partition)?;
    Some((high - position.next_offset.unwrap_or(0)).max(0))
}

fn as_json(status: &StoreStatus, ends: &Ends) -> Value {
    let positions: Vec<Value> = status
        .positions
        .iter()
        .map(|p| {
            json!({
                "consumer": p.consumer, "topic": p.topic, "partition": p.partition,
                "next_offset": p.next_offset, "lag": lag(p, ends), "epoch": p.epoch,
                "starts_without_progress": p.starts, "applied": p.applied,
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
                "lag": mine().map(|p| lag(p, ends)).sum::<Option<i64>>(),
                "dead_letters": c.dead_letters,
                "purged_before": c.purged_before_ms.map(output::time),
            })
        })
        .collect();
    json!({
        "consumers": consumers,
        "positions": positions,
        "receipts_estimate": status.receipts_estimate,
        "outbox": outbox::as_json(&status.outbox),
        "kafka_error": ends.error(),
    })
}

fn as_tables(status: &StoreStatus, ends: &Ends) -> std::io::Result<()> {
    if let Some(error) = ends.error() {
        eprintln!("lag is not known: {error}");
    }
    let consumers = status.consumers.iter().map(|c| {
        let mine = || status.positions.iter().filter(|p| p.consumer == c.consumer);
        [
            c.consumer.clone(),
            mine().map(|p| p.applied).sum::<u64>().to_string(),
            mine().map(|p| p.duplicates).sum::<u64>().to_string(),
            output::or_dash(mine().map(|p| lag(p, ends)).sum::<Option<i64>>()),
            capped(c.dead_letters),
            output::or_dash(c.purged_before_ms.map(output::time)),
        ]
    });
    let header = ["consumer", "applied", "duplicates suppressed", "lag", "dead letters", "purged before"];
    output::line(&output::table(header, consumers).to_string())?;
    let positions = status.positions.iter().map(|p| {
        [
            p.consumer.clone(),
            format!("{}/{}", p.topic, p.partition),
            output::or_dash(p.next_offset),
            output::or_dash(lag(p, ends)),
            p.epoch.to_string(),
            p.starts.to_string(),
            output::time(p.updated_at_ms),
        ]
    });
    let header =
        ["consumer", "partition", "next offset", "lag", "epoch", "starts without progress", "last progress"];
    output::line(&output::table(header, positions).to_string())?;
    output::line(&format!("about {} receipts", status.receipts_estimate))?;
    outbox::as_table(&status.outbox)
}

fn capped(count: u64) -> String {
    if count >= COUNT_CAP { format!("{COUNT_CAP}+") } else { count.to_string() }
}

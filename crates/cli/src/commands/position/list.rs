//! `oncebox position list`.

use oncebox_config::Config;
use oncebox_core::printable::printable;
use oncebox_core::source::LogId;
use oncebox_core::store::PositionStatus;
use serde_json::{Value, json};

use crate::args::Output;
use crate::cluster::{self, Logs};
use crate::exit::CommandResult;
use crate::output::{self, or_dash, time};

pub(super) async fn list(
    config: &Config,
    positions: &[PositionStatus],
    is_filtered: bool,
    output: Output,
) -> CommandResult {
    let logs = cluster::logs(config, positions).await;
    match output {
        Output::Json => {
            let rows: Vec<Value> = positions.iter().map(|p| as_json(p, &logs)).collect();
            output::json(&rows)?;
        }
        Output::Table => as_table(positions, &logs)?,
    }
    if let Some(error) = logs.error() {
        output::note(&format!("where the logs end is not known: {}", printable(&error)));
    }
    output::listed(positions.is_empty(), is_filtered)
}

fn as_json(position: &PositionStatus, logs: &Logs) -> Value {
    let PositionStatus { consumer, topic, partition, next_offset, log, .. } = position;
    json!({
        "consumer": consumer,
        "topic": topic,
        "partition": partition,
        "next_offset": next_offset,
        "log_end": logs.end(position),
        "lag": logs.lag(position),
        "log": log,
        "log_now": logs.id(position).map(LogId::as_str),
        "caught_up_at": position.caught_up_ms.map(time),
        "retired": position.retired,
        "epoch": position.epoch,
        "starts_without_progress": output::starts(position),
    })
}

fn as_table(positions: &[PositionStatus], logs: &Logs) -> std::io::Result<()> {
    let rows = positions.iter().map(|p| {
        [
            p.consumer.clone(),
            p.topic.clone(),
            p.partition.to_string(),
            or_dash(p.next_offset),
            or_dash(logs.end(p)),
            or_dash(logs.lag(p)),
            log(p, logs),
            or_dash(p.caught_up_ms.map(time)),
            if p.retired { "yes" } else { "no" }.to_owned(),
            p.epoch.to_string(),
            or_dash(output::starts(p)),
        ]
    });
    let header = [
        "consumer",
        "topic",
        "partition",
        "position",
        "log end",
        "lag",
        "log",
        "caught up at",
        "retired",
        "epoch",
        "starts",
    ];
    output::line(&output::table(header, rows).to_string())
}

/// The log of the position, and the one that is there now if that is another one.
fn log(position: &PositionStatus, logs: &Logs) -> String {
    let Some(stored) = &position.log else { return "-".to_owned() };
    match logs.id(position) {
        Some(now) if now.contradicts(&LogId::new(stored.as_str())) => format!("{stored}, but now {now}"),
        _ => stored.clone(),
    }
}

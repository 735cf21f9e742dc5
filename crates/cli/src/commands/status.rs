//! `oncebox status`: consumers, positions, lag, suppressed duplicates, dead letters, who reads what, the outbox.

mod outbox;

use std::path::Path;
use std::time::Duration;

use oncebox_config::Config;
use oncebox_core::printable::printable;
use oncebox_core::store::{Cause, Duplicates, Pause, PositionStatus, StoreStatus};
use serde_json::{Value, json};

use crate::args::Output;
use crate::cluster::{self, Logs};
use crate::commands::{old_transactions, pause};
use crate::exit::{Answer, CommandResult, Exit, Failure};
use crate::interrupt::Interrupt;
use crate::load;
use crate::output;
use crate::stores::{ConfiguredStore, WithStore, require_schema, with_store};

/// Counts stop here: a status must not cost a scan of a large table.
const COUNT_CAP: u64 = 10_000;

/// Once, or again and again until Ctrl-C.
pub(crate) async fn run(file: &Path, watch: Option<u64>, output: Output) -> CommandResult {
    let config = load::config(file)?;
    let watch = watch.map(Duration::from_secs);
    with_store(&config.store, Status { config: &config, watch, output }).await
}

struct Status<'a> {
    config: &'a Config,
    watch: Option<Duration>,
    output: Output,
}

impl WithStore for Status<'_> {
    type Output = CommandResult;

    async fn run<S: ConfiguredStore>(self, store: S) -> CommandResult {
        require_schema(&store).await?;
        let Some(every) = self.watch else {
            match self.output {
                Output::Json => output::json(&self.look(&store).await?.as_json())?,
                Output::Table => output::line(&self.look(&store).await?.as_text())?,
            }
            return Ok(Answer::Yes);
        };
        let mut interrupt = Interrupt::listen()?;
        loop {
            let look = tokio::select! {
                look = self.look(&store) => look,
                () = interrupt.wait() => return Ok(Answer::Yes),
            };
            let is_read = match (look, self.output) {
                (Ok(look), Output::Json) => output::json_line(&look.as_json())?,
                (Ok(look), Output::Table) => output::frame(&look.as_text())?,
                // It may come back; whoever watches wants to see that too.
                (Err(failure), _) if failure.exit == Exit::Unreachable => {
                    output::note(&format!("not known now: {failure}"));
                    true
                }
                (Err(failure), _) => return Err(failure),
            };
            if !is_read {
                return Ok(Answer::Yes);
            }
            tokio::select! {
                () = tokio::time::sleep(every) => {}
                () = interrupt.wait() => return Ok(Answer::Yes),
            }
        }
    }
}

impl Status<'_> {
    async fn look<S: ConfiguredStore>(&self, store: &S) -> Result<Look, Failure> {
        let status = store.status(COUNT_CAP).await?;
        let paused = store.paused().await?;
        let logs = cluster::logs_and_groups(self.config, &status.positions).await;
        let old = old_transactions::finding(store, &self.config.store).await?;
        let warnings = old.into_iter().map(|old| old.detail).collect();
        Ok(Look { status, paused, logs, warnings })
    }
}

/// What the database and the broker say at one time.
struct Look {
    status: StoreStatus,
    paused: Vec<Pause>,
    logs: Logs,
    warnings: Vec<String>,
}

impl Look {
    fn as_json(&self) -> Value {
        let mut json = as_json(&self.status, &self.paused, &self.logs);
        json["warnings"] = json!(self.warnings);
        json
    }

    fn as_text(&self) -> String {
        let mut text = as_text(&self.status, &self.paused, &self.logs);
        for warning in &self.warnings {
            text.push_str(&format!("\nwarning: {}", printable(warning)));
        }
        text
    }
}

/// The position that holds back the retention of a consumer: the one that was caught up last so long ago, or never.
fn holder<'a>(status: &'a StoreStatus, consumer: &str) -> Option<&'a PositionStatus> {
    let active = status.positions.iter().filter(|p| p.consumer == consumer && !p.retired);
    active.min_by_key(|p| p.caught_up_ms)
}

fn as_json(status: &StoreStatus, paused: &[Pause], logs: &Logs) -> Value {
    let positions: Vec<Value> = status
        .positions
        .iter()
        .map(|p| {
            json!({
                "consumer": p.consumer, "topic": p.topic, "partition": p.partition,
                "next_offset": p.next_offset, "lag": logs.lag(p), "log": p.log,
                "caught_up_at": p.caught_up_ms.map(output::time), "retired": p.retired,
                "owner": logs.owner(p), "epoch": p.epoch,
                "starts_without_progress": output::starts(p), "applied": p.applied,
                "duplicates_suppressed": p.duplicates.total(), "duplicates_by_cause": by_cause(&p.duplicates),
                "last_progress": output::time(p.updated_at_ms),
            })
        })
        .collect();
    let consumers: Vec<Value> = status
        .consumers
        .iter()
        .map(|c| {
            let of = |p: &&PositionStatus| p.consumer == c.consumer;
            let mine = || status.positions.iter().filter(of);
            let duplicates: Duplicates = mine().map(|p| p.duplicates).sum();
            json!({
                "consumer": c.consumer,
                "state": logs.state(&c.consumer),
                "applied": mine().map(|p| p.applied).sum::<u64>(),
                "duplicates_suppressed": duplicates.total(),
                "duplicates_by_cause": by_cause(&duplicates),
                "lag": mine().map(|p| logs.lag(p)).sum::<Option<i64>>(),
                "dead_letters": c.dead_letters,
                "replayed": c.replayed,
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
        "paused": paused.iter().map(pause::as_json).collect::<Vec<_>>(),
        "positions": positions,
        "receipts_estimate": status.receipts_estimate,
        "outbox": outbox::as_json(&status.outbox),
        "kafka_error": logs.unknown(),
    })
}

fn as_text(status: &StoreStatus, paused: &[Pause], logs: &Logs) -> String {
    if let Some(unknown) = logs.unknown() {
        output::note(&printable(&unknown));
    }
    let consumers = status.consumers.iter().map(|c| {
        let mine = || status.positions.iter().filter(|p| p.consumer == c.consumer);
        [
            c.consumer.clone(),
            output::or_dash(logs.state(&c.consumer)),
            mine().map(|p| p.applied).sum::<u64>().to_string(),
            suppressed(&mine().map(|p| p.duplicates).sum()),
            output::or_dash(mine().map(|p| logs.lag(p)).sum::<Option<i64>>()),
            capped(c.dead_letters),
            c.replayed.to_string(),
            output::or_dash(c.purged_before_ms.map(output::time)),
            output::or_dash(holder(status, &c.consumer).map(held_by)),
        ]
    });
    let header = [
        "consumer",
        "group",
        "applied",
        "duplicates suppressed",
        "lag",
        "dead letters",
        "replayed",
        "purged before",
        "horizon held by",
    ];
    let mut consumers = output::table(header, consumers).to_string();
    for one in paused {
        consumers.push_str(&format!("\n{} is paused {}", one.consumer, pause::described(one)));
    }
    let positions = status.positions.iter().map(|p| {
        [
            p.consumer.clone(),
            format!("{}/{}", p.topic, p.partition),
            output::or_dash(p.next_offset),
            output::or_dash(logs.lag(p)),
            if p.retired { "retired".to_owned() } else { output::or_dash(p.caught_up_ms.map(output::time)) },
            output::or_dash(p.log.as_deref()),
            output::or_dash(logs.owner(p)),
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
        "owner",
        "epoch",
        "starts without progress",
        "last progress",
    ];
    let positions = output::table(header, positions);
    let receipts = status.receipts_estimate;
    format!("{consumers}\n{positions}\nabout {receipts} receipts\n{}", outbox::as_text(&status.outbox))
}

fn by_cause(duplicates: &Duplicates) -> Value {
    Cause::ALL.iter().map(|cause| (cause.as_str().to_owned(), json!(duplicates.of(*cause)))).collect()
}

/// For people.
fn suppressed(duplicates: &Duplicates) -> String {
    let causes: Vec<String> =
        duplicates.by_cause().map(|(cause, count)| format!("{count} {}", cause.in_words())).collect();
    let total = duplicates.total().to_string();
    if causes.is_empty() { total } else { format!("{total}: {}", causes.join(", ")) }
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
            duplicates: Duplicates::default(),
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

//! `oncebox position move`.

use std::collections::BTreeMap;
use std::sync::Arc;

use oncebox_config::Config;
use oncebox_core::operate::Operator;
use oncebox_core::source::LogId;
use oncebox_core::store::{PositionKey, PositionStatus, StoreStatus};
use oncebox_kafka::admin::{Admin, Watermarks};
use serde_json::{Value, json};

use super::known;
use super::plan::{Known, Move, plan};
use crate::args::{Output, PositionMove, To};
use crate::cluster;
use crate::commands::audit::audited;
use crate::exit::{Answer, CommandResult, Exit, Failure};
use crate::load::Way;
use crate::output;
use crate::stores::ConfiguredStore;

pub(super) async fn relocate<S: ConfiguredStore>(
    store: &S,
    operator: &Operator<S>,
    config: &Config,
    status: &StoreStatus,
    wanted: &PositionMove,
) -> CommandResult {
    let (moves, log_now) = moved(store, operator, config, status, wanted).await?;
    show(wanted, &moves, log_now.as_ref())?;
    for caution in cautions(config, status, wanted, &moves) {
        output::note(&caution);
    }
    Ok(Answer::Yes)
}

/// Moves the positions, unless it is a dry run, or messages would be lost and nobody has accepted that. Says what was moved, and in
/// which log.
pub(crate) async fn moved<S: ConfiguredStore>(
    store: &S,
    operator: &Operator<S>,
    config: &Config,
    status: &StoreStatus,
    wanted: &PositionMove,
) -> Result<(Vec<Move>, Option<LogId>), Failure> {
    known(config, &status.positions, &wanted.consumer, &wanted.topic)?;
    let admin = cluster::admin(config, Way::of_consumer(config, wanted.consumer.as_str()))?;
    let meant = meant(&admin, wanted).await?;
    let log_now = log_now(&admin, &wanted.topic).await?;
    let moves = plans(&admin, status, wanted, meant, log_now.as_ref()).await?;
    let loses = moves.iter().any(Move::loses);
    if !wanted.dry_run {
        if loses && !wanted.accept_loss {
            return Err(Failure::data(format!("nothing was moved: {}", loss(&moves, &wanted.topic))));
        }
        let moved = |m: &Move| json!({ "partition": m.partition, "from": m.from, "to": m.to });
        let parameters = json!({
            "topic": wanted.topic, "partitions": moves.iter().map(moved).collect::<Vec<_>>(),
            "accept_loss": wanted.accept_loss,
        });
        let action = operator.action("position move").to(wanted.consumer.as_str()).with(parameters);
        let work = carry_out(store, wanted, &moves, log_now.as_ref());
        audited(operator, action, work, |()| json!({ "moved": moves.len() })).await?;
    }
    Ok((moves, log_now))
}

async fn log_now(admin: &Admin, topic: &str) -> Result<Option<LogId>, Failure> {
    let mut logs = admin.log_ids(&[topic.to_owned()]).await.map_err(|e| cluster::failure(&e))?;
    Ok(logs.remove(topic).flatten())
}

/// The partitions that are meant.
async fn meant(admin: &Admin, wanted: &PositionMove) -> Result<Vec<Watermarks>, Failure> {
    let topic = wanted.topic.as_str();
    let nothing = |text: String| Failure { exit: Exit::Negative, text };
    let all = admin.watermarks(topic).await.map_err(|e| cluster::failure(&e))?.ok_or_else(|| {
        nothing(format!(
            "there is no topic {topic}. If it will not come back: `oncebox position retire --consumer {} --topic {topic}`",
            wanted.consumer
        ))
    })?;
    let meant: Vec<Watermarks> =
        all.iter().filter(|w| wanted.partition.is_none_or(|p| p == w.partition)).copied().collect();
    if meant.is_empty() {
        return Err(nothing(format!("topic {topic} has {} partitions, counted from 0", all.len())));
    }
    Ok(meant)
}

/// What would happen to each of them.
async fn plans(
    admin: &Admin,
    status: &StoreStatus,
    wanted: &PositionMove,
    meant: Vec<Watermarks>,
    log_now: Option<&LogId>,
) -> Result<Vec<Move>, Failure> {
    let topic = wanted.topic.as_str();
    let partitions: Vec<i32> = meant.iter().map(|w| w.partition).collect();
    let at_time = match wanted.to {
        To::Time(ms) => offsets_at(admin, topic, &partitions, ms).await?,
        _ => BTreeMap::new(),
    };
    let consumer = status.consumers.iter().find(|c| c.consumer == wanted.consumer.as_str());
    let purged_before = consumer.and_then(|c| c.purged_before_ms);
    let horizon = match purged_before {
        Some(ms) => offsets_at(admin, topic, &partitions, ms).await?,
        None => BTreeMap::new(),
    };
    let mut moves = Vec::new();
    let mut wrong = Vec::new();
    for Watermarks { partition, low, high } in meant {
        let stored = position(status, wanted, partition);
        let known = Known {
            partition,
            next: stored.and_then(|p| p.next_offset),
            log: stored.and_then(|p| p.log.as_deref()).map(LogId::new),
            log_now: log_now.cloned(),
            low,
            high,
            at_time: at_time.get(&partition).copied().flatten(),
            // Where all messages are older, all of them may come again.
            horizon: purged_before.map(|_| horizon.get(&partition).copied().flatten().unwrap_or(high)),
        };
        match plan(&known, wanted.to) {
            Ok(planned) => moves.push(planned),
            Err(reason) => wrong.push(reason),
        }
    }
    if wrong.is_empty() {
        Ok(moves)
    } else {
        Err(Failure::data(format!("nothing was moved: {}", wrong.join("; "))))
    }
}

async fn offsets_at(
    admin: &Admin,
    topic: &str,
    partitions: &[i32],
    ms: i64,
) -> Result<BTreeMap<i32, Option<i64>>, Failure> {
    admin.offsets_for_time(topic, partitions, ms).await.map_err(|e| cluster::failure(&e))
}

fn position<'a>(
    status: &'a StoreStatus,
    wanted: &PositionMove,
    partition: i32,
) -> Option<&'a PositionStatus> {
    let place = (wanted.consumer.as_str(), wanted.topic.as_str(), partition);
    status.positions.iter().find(|p| (p.consumer.as_str(), p.topic.as_str(), p.partition) == place)
}

async fn carry_out<S: ConfiguredStore>(
    store: &S,
    wanted: &PositionMove,
    moves: &[Move],
    log: Option<&LogId>,
) -> Result<(), Failure> {
    let topic: Arc<str> = wanted.topic.as_str().into();
    for (done, Move { partition, to, .. }) in moves.iter().enumerate() {
        let key = PositionKey {
            consumer: wanted.consumer.clone(),
            topic: Arc::clone(&topic),
            partition: *partition,
        };
        store.move_position(&key, *to, log).await.map_err(|e| {
            let Failure { exit, text } = e.into();
            Failure {
                exit,
                text: format!("{done} of {} partitions were moved, then {key} failed: {text}", moves.len()),
            }
        })?;
    }
    Ok(())
}

/// What stands against the move, for people.
fn loss(moves: &[Move], topic: &str) -> String {
    let of = |count: fn(&Move) -> i64| -> i64 { moves.iter().map(count).sum() };
    let (lost, gone) = (of(|m| m.lost), of(|m| m.gone));
    let mut parts = Vec::new();
    if lost > 0 {
        parts.push(format!("{lost} messages of {topic} that were not applied would be skipped"));
    }
    if gone > 0 {
        parts.push(format!("{gone} were removed from {topic} before they were applied"));
    }
    format!("{}. To accept that: --accept-loss", parts.join(", and "))
}

fn show(wanted: &PositionMove, moves: &[Move], log: Option<&LogId>) -> Result<(), Failure> {
    if wanted.output.output == Output::Json {
        let rows: Vec<Value> = moves
            .iter()
            .map(|m| {
                json!({
                    "partition": m.partition, "from": m.from, "to": m.to, "other_log": m.other_log,
                    "not_applied": m.lost, "removed_before_applied": m.gone, "applied_again": m.again,
                })
            })
            .collect();
        return Ok(output::json(&json!({
            "dry_run": wanted.dry_run, "consumer": wanted.consumer.as_str(), "topic": wanted.topic,
            "log": log.map(LogId::as_str), "partitions": rows,
        }))?);
    }
    let rows = moves.iter().map(|m| {
        let from = output::or_dash(m.from);
        [
            m.partition.to_string(),
            if m.other_log { format!("{from} (another log)") } else { from },
            m.to.to_string(),
            (m.lost + m.gone).to_string(),
            m.again.to_string(),
        ]
    });
    let header = ["partition", "from", "to", "skipped, not applied", "may be applied again"];
    output::line(&output::table(header, rows).to_string())?;
    let verb = if wanted.dry_run { "would move" } else { "moved" };
    Ok(output::line(&format!(
        "{verb} {} of {} in {} partitions",
        wanted.consumer,
        wanted.topic,
        moves.len()
    ))?)
}

/// What the operator should know, beside the answer.
pub(crate) fn cautions(
    config: &Config,
    status: &StoreStatus,
    wanted: &PositionMove,
    moves: &[Move],
) -> Vec<String> {
    let mut said = Vec::new();
    if wanted.dry_run && !wanted.accept_loss && moves.iter().any(Move::loses) {
        said.push(format!("would be refused: {}", loss(moves, &wanted.topic)));
    }
    let again: i64 = moves.iter().map(|m| m.again).sum();
    if again == 0 {
        return said;
    }
    let consumer = status.consumers.iter().find(|c| c.consumer == wanted.consumer.as_str());
    let purged = output::or_dash(consumer.and_then(|c| c.purged_before_ms).map(output::time));
    let parks = config.inboxes.iter().any(|inbox| {
        inbox.consumer == wanted.consumer && inbox.stale == oncebox_core::inbox::StalePolicy::Park
    });
    let advice = if parks {
        "they become dead letters (stale = \"park\")"
    } else {
        "they would be applied again; stale = \"park\" makes dead letters of them instead"
    };
    said.push(format!(
        "warning: up to {again} messages are older than the receipts that were purged (before {purged}): {advice}"
    ));
    said
}

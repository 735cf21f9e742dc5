//! `oncebox dead`: look at dead letters, replay or drop them.

use std::collections::HashSet;
use std::path::Path;

use oncebox_core::config::Config;
use oncebox_core::{DeadFilter, OnFailure, Replayed, StoredDeadLetter, replay};
use serde_json::{Value, json};

use crate::args::{DeadAction, DeadChange, DeadSelection, Output};
use crate::commands::selection::{Numbered, PAGE, all_of, changed, deliberate};
use crate::exit::{Answer, CommandResult, Failure};
use crate::load;
use crate::output::{self, lossy, text};
use crate::stores::{SqlStore, WithStore, require_schema, with_store};

pub(crate) async fn run(file: &Path, action: DeadAction) -> CommandResult {
    let config = load::config(file)?;
    with_store(&config.store, Dead { action, config: &config }).await
}

struct Dead<'a> {
    action: DeadAction,
    config: &'a Config,
}

impl WithStore for Dead<'_> {
    type Output = CommandResult;

    async fn run<S: SqlStore>(self, store: S) -> CommandResult {
        require_schema(&store).await?;
        match self.action {
            DeadAction::List { selection, page, output } => {
                let filter = DeadFilter { limit: page.limit, after: page.after, ..filter(selection) };
                list(&store.dead_letters(&filter).await?, output.output)
            }
            DeadAction::Show { number, output } => {
                let filter = DeadFilter { numbers: vec![number], limit: 1, ..DeadFilter::default() };
                match store.dead_letters(&filter).await?.pop() {
                    Some(letter) => show(&letter, output.output),
                    None => {
                        eprintln!("there is no dead letter {number}");
                        Ok(Answer::No)
                    }
                }
            }
            DeadAction::Replay(DeadChange { selection, all, dry_run, output }) => {
                let filter = chosen(selection, all)?;
                if dry_run {
                    return list(&matching(&store, &filter).await?, output.output);
                }
                replay_all(&store, self.config, filter, output.output).await
            }
            DeadAction::Drop(DeadChange { selection, all, dry_run, output }) => {
                let filter = chosen(selection, all)?;
                if dry_run {
                    return list(&matching(&store, &filter).await?, output.output);
                }
                let mut dropped = 0;
                // A page at a time, so that no statement grows without bound.
                loop {
                    let page = store.drop_dead(&filter).await?;
                    dropped += page;
                    if page < u64::from(PAGE) {
                        break;
                    }
                }
                changed("dropped", dropped, "dead letters", output.output)
            }
        }
    }
}

fn filter(selection: DeadSelection) -> DeadFilter {
    DeadFilter {
        numbers: selection.numbers,
        consumer: selection.consumer,
        topic: selection.topic,
        tenant: selection.tenant,
        message_id: selection.message_id,
        key: selection.key.map(String::into_bytes),
        after: 0,
        limit: PAGE,
    }
}

/// Replay and drop change things, so "everything" has to be said.
fn chosen(selection: DeadSelection, all: bool) -> Result<DeadFilter, Failure> {
    let chosen = filter(selection);
    let everything = DeadFilter { limit: PAGE, ..DeadFilter::default() };
    deliberate("dead letters", "--consumer, --topic", chosen != everything, all)?;
    Ok(chosen)
}

impl Numbered for StoredDeadLetter {
    fn number(&self) -> i64 {
        self.number
    }
}

/// What a dry run shows.
async fn matching<S: SqlStore>(store: &S, filter: &DeadFilter) -> Result<Vec<StoredDeadLetter>, Failure> {
    let page = async |after| Ok(store.dead_letters(&DeadFilter { after, ..filter.clone() }).await?);
    all_of("dead letters", page).await
}

async fn replay_all<S: SqlStore>(
    store: &S,
    config: &Config,
    mut filter: DeadFilter,
    output: Output,
) -> CommandResult {
    let mut handlers = Vec::new();
    for inbox in &config.inboxes {
        let handler = store.prepare(&inbox.handler, inbox.payload).await?;
        handlers.push((inbox, handler));
    }
    let (mut applied, mut failed) = (0_u64, Vec::new());
    // Under `park-key` nothing may pass an earlier message of its key.
    let mut stuck = HashSet::new();
    loop {
        let page = store.dead_letters(&filter).await?;
        let Some(last) = page.last() else { break };
        filter.after = last.number;
        for stored in page {
            let number = stored.number;
            let Some((inbox, handler)) =
                handlers.iter().find(|(inbox, _)| inbox.consumer.as_str() == stored.consumer)
            else {
                failed.push((number, format!("no [[inbox]] has the consumer {}", stored.consumer)));
                continue;
            };
            let record = &stored.letter.record;
            let key = (stored.consumer.clone(), record.topic.clone(), record.partition, record.key.clone());
            if stuck.contains(&key) {
                failed.push((number, "behind an earlier dead letter of the same key that failed".to_owned()));
                continue;
            }
            let replayed = replay(store, handler, &inbox.identity, number).await;
            match replayed.map_err(|e| Failure::data(e.to_string()))? {
                Replayed::Applied | Replayed::Duplicate => applied += 1,
                Replayed::Gone => {}
                Replayed::Failed(reason) => {
                    failed.push((number, reason));
                    if inbox.on_failure == OnFailure::ParkKey && key.3.is_some() {
                        stuck.insert(key);
                    }
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
            output::line(&format!("replayed {applied} dead letters, {} failed again", failed.len()))?;
            for (number, reason) in &failed {
                eprintln!("dead letter {number}: {reason}");
            }
        }
    }
    Ok(if failed.is_empty() && applied > 0 { Answer::Yes } else { Answer::No })
}

fn list(letters: &[StoredDeadLetter], output: Output) -> CommandResult {
    match output {
        Output::Json => output::json(&letters.iter().map(as_json).collect::<Vec<_>>())?,
        Output::Table => {
            let rows = letters.iter().map(|stored| {
                let record = &stored.letter.record;
                [
                    stored.number.to_string(),
                    output::time(stored.failed_at_ms),
                    stored.consumer.clone(),
                    stored.letter.tenant.to_string(),
                    output::or_dash(stored.letter.message_id.as_deref()),
                    record.coordinates(),
                    stored.letter.attempts.to_string(),
                    output::short(&stored.letter.error),
                ]
            });
            let header =
                ["number", "failed at", "consumer", "tenant", "message id", "place", "attempts", "error"];
            output::line(&output::table(header, rows).to_string())?;
        }
    }
    Ok(if letters.is_empty() { Answer::No } else { Answer::Yes })
}

fn show(stored: &StoredDeadLetter, output: Output) -> CommandResult {
    if output == Output::Json {
        output::json(&as_json(stored))?;
        return Ok(Answer::Yes);
    }
    let letter = &stored.letter;
    let record = &letter.record;
    output::line(&format!("number      {}", stored.number))?;
    output::line(&format!("consumer    {}", stored.consumer))?;
    output::line(&format!("tenant      {}", letter.tenant))?;
    output::line(&format!("message id  {}", output::or_dash(letter.message_id.as_deref())))?;
    output::line(&format!("place       {}", record.coordinates()))?;
    output::line(&format!("produced    {}", output::or_dash(record.timestamp_ms.map(output::time))))?;
    output::line(&format!("failed at   {}", output::time(stored.failed_at_ms)))?;
    output::line(&format!("attempts    {}", letter.attempts))?;
    output::line(&format!("error       {}", letter.error))?;
    output::line(&format!("key         {}", text(record.key.as_deref())))?;
    for (name, value) in record.headers.iter() {
        output::line(&format!("header      {name}: {}", text(value)))?;
    }
    output::line(&format!("payload     {}", text(record.payload.as_deref())))?;
    Ok(Answer::Yes)
}

fn as_json(stored: &StoredDeadLetter) -> Value {
    let letter = &stored.letter;
    let record = &letter.record;
    json!({
        "number": stored.number,
        "consumer": stored.consumer,
        "tenant": letter.tenant.as_str(),
        "message_id": letter.message_id,
        "topic": &*record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "key": record.key.as_deref().map(lossy),
        "payload": record.payload.as_deref().map(lossy),
        "headers": output::headers(&record.headers),
        "timestamp_ms": record.timestamp_ms,
        "error": letter.error,
        "attempts": letter.attempts,
        "failed_at": output::time(stored.failed_at_ms),
    })
}

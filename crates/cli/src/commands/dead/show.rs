//! Dead letters on stdout.

use oncebox_core::store::{DeadSummary, StoredDeadLetter};
use serde_json::{Value, json};

use crate::args::Output;
use crate::exit::{Answer, CommandResult};
use crate::output::{self, lossy, or_dash, text, time};

pub(super) fn list(letters: &[DeadSummary], output: Output) -> CommandResult {
    match output {
        Output::Json => output::json(&letters.iter().map(summary_as_json).collect::<Vec<_>>())?,
        Output::Table => {
            let rows = letters.iter().map(|letter| {
                [
                    letter.number.to_string(),
                    time(letter.failed_at_ms),
                    letter.consumer.clone(),
                    letter.tenant.clone(),
                    or_dash(letter.message_id.as_deref()),
                    format!("{}/{}/{}", letter.topic, letter.partition, letter.offset),
                    letter.attempts.to_string(),
                    output::short(&letter.error),
                ]
            });
            let header =
                ["number", "failed at", "consumer", "tenant", "message id", "place", "attempts", "error"];
            output::line(&output::table(header, rows).to_string())?;
        }
    }
    Ok(if letters.is_empty() { Answer::No } else { Answer::Yes })
}

pub(super) fn whole(stored: &StoredDeadLetter, output: Output) -> CommandResult {
    if output == Output::Json {
        output::json(&as_json(stored))?;
        return Ok(Answer::Yes);
    }
    let letter = &stored.letter;
    let record = &letter.record;
    output::entry("number", &stored.number)?;
    output::entry("consumer", &stored.consumer)?;
    output::entry("tenant", &letter.tenant)?;
    output::entry("message id", &or_dash(letter.message_id.as_deref()))?;
    output::entry("place", &record.coordinates())?;
    output::entry("log", &or_dash(record.log.as_ref()))?;
    output::entry("produced", &or_dash(record.timestamp_ms.map(time)))?;
    output::entry("failed at", &time(stored.failed_at_ms))?;
    output::entry("attempts", &letter.attempts)?;
    output::entry("error", &letter.error)?;
    output::entry("key", &text(record.key.as_deref()))?;
    for (name, value) in record.headers.iter() {
        output::entry("header", &format!("{name}: {}", text(value)))?;
    }
    output::entry("payload", &text(record.payload.as_deref()))?;
    Ok(Answer::Yes)
}

fn summary_as_json(letter: &DeadSummary) -> Value {
    json!({
        "number": letter.number,
        "consumer": letter.consumer,
        "tenant": letter.tenant,
        "message_id": letter.message_id,
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "key": letter.key.as_deref().map(lossy),
        "payload_bytes": letter.payload_bytes,
        "error": letter.error,
        "attempts": letter.attempts,
        "failed_at": time(letter.failed_at_ms),
    })
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
        "log": record.log.as_ref().map(oncebox_core::source::LogId::as_str),
        "key": record.key.as_deref().map(lossy),
        "payload": record.payload.as_deref().map(lossy),
        "headers": output::headers(&record.headers),
        "timestamp_ms": record.timestamp_ms,
        "error": letter.error,
        "attempts": letter.attempts,
        "failed_at": time(stored.failed_at_ms),
    })
}

//! Dead letters on stdout.

use oncebox_core::store::{DeadSummary, LetterEdit, MAX_SUMMARY_BYTES, StoredDeadLetter, error_group};
use serde_json::{Value, json};

use crate::args::Output;
use crate::exit::{Answer, CommandResult};
use crate::output::{self, or_dash, text, time};

/// The letters; that there are none is a negative answer if some were asked for.
pub(super) fn list(letters: &[DeadSummary], is_filtered: bool, output: Output) -> CommandResult {
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
    output::listed(letters.is_empty(), is_filtered)
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
    output::entry("group", &error_group(&stored.consumer, &letter.error))?;
    output::entry("key", &text(record.key.as_deref()))?;
    for (name, value) in record.headers.iter() {
        output::entry("header", &format!("{name}: {}", text(value)))?;
    }
    output::entry("payload", &text(record.payload.as_deref()))?;
    if let Some(edit) = &stored.edit {
        let original = &edit.original;
        output::entry("changed", &format!("at {} by {}; what arrived was", time(edit.at_ms), edit.by))?;
        if original.key != record.key {
            output::entry("- key", &text(original.key.as_deref()))?;
        }
        if original.headers != record.headers {
            for (name, value) in original.headers.iter() {
                output::entry("- header", &format!("{name}: {}", text(value)))?;
            }
        }
        if original.payload != record.payload {
            output::entry("- payload", &text(original.payload.as_deref()))?;
        }
    }
    Ok(Answer::Yes)
}

pub(super) fn summary_as_json(letter: &DeadSummary) -> Value {
    let mut json = json!({
        "number": letter.number,
        "consumer": letter.consumer,
        "tenant": letter.tenant,
        "message_id": letter.message_id,
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "payload_bytes": letter.payload_bytes,
        "error": letter.error,
        "group": letter.group(),
        "attempts": letter.attempts,
        "failed_at": time(letter.failed_at_ms),
        "edited": letter.edited,
    });
    output::put_bytes(&mut json, "key", letter.key.as_deref().map(without_half_a_character));
    json
}

/// A key that was cut for the list may end within a character.
fn without_half_a_character(key: &[u8]) -> &[u8] {
    match std::str::from_utf8(key) {
        Err(e) if key.len() >= MAX_SUMMARY_BYTES && e.error_len().is_none() => &key[..e.valid_up_to()],
        _ => key,
    }
}

pub(super) fn as_json(stored: &StoredDeadLetter) -> Value {
    let letter = &stored.letter;
    let record = &letter.record;
    let mut json = json!({
        "number": stored.number,
        "consumer": stored.consumer,
        "tenant": letter.tenant.as_str(),
        "message_id": letter.message_id,
        "topic": &*record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "log": record.log.as_ref().map(oncebox_core::source::LogId::as_str),
        "headers": output::headers(&record.headers),
        "produced_at": record.timestamp_ms.map(time),
        "error": letter.error,
        "group": error_group(&stored.consumer, &letter.error),
        "attempts": letter.attempts,
        "failed_at": time(stored.failed_at_ms),
    });
    output::put_bytes(&mut json, "key", record.key.as_deref());
    output::put_bytes(&mut json, "payload", record.payload.as_deref());
    json["edit"] = stored.edit.as_ref().map_or(Value::Null, edit_as_json);
    json
}

fn edit_as_json(edit: &LetterEdit) -> Value {
    let mut original = json!({ "headers": output::headers(&edit.original.headers) });
    output::put_bytes(&mut original, "key", edit.original.key.as_deref());
    output::put_bytes(&mut original, "payload", edit.original.payload.as_deref());
    json!({ "by": edit.by, "at": time(edit.at_ms), "times": edit.times, "original": original })
}

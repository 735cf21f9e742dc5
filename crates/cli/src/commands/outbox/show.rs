//! Events on stdout.

use oncebox_core::store::{EventState, OutboxEntry};
use serde_json::{Value, json};

use crate::args::Output;
use crate::exit::{Answer, CommandResult};
use crate::output::{self, or_dash, text, time};

/// The events; that there are none is a negative answer if some were asked for.
pub(super) fn list(entries: &[OutboxEntry], is_filtered: bool, output: Output) -> CommandResult {
    match output {
        Output::Json => output::json(&entries.iter().map(as_json).collect::<Vec<_>>())?,
        Output::Table => {
            let rows = entries.iter().map(|entry| {
                let event = &entry.event;
                [
                    event.seq.to_string(),
                    time(event.created_at_ms),
                    event.topic.to_string(),
                    or_dash(event.key.as_deref().map(|key| text(Some(key)))),
                    state(entry),
                    event.attempts.to_string(),
                    entry.error.as_deref().map(output::short).unwrap_or_default(),
                ]
            });
            let header = ["number", "written at", "topic", "key", "state", "attempts", "error"];
            output::line(&output::table(header, rows).to_string())?;
        }
    }
    output::listed(entries.is_empty(), is_filtered)
}

pub(super) fn whole(entry: &OutboxEntry, output: Output) -> CommandResult {
    if output == Output::Json {
        output::json(&as_json(entry))?;
        return Ok(Answer::Yes);
    }
    let event = &entry.event;
    output::entry("number", &event.seq)?;
    output::entry("id", &event.id)?;
    output::entry("topic", &event.topic)?;
    output::entry("written at", &time(event.created_at_ms))?;
    if let Some(at) = event.deliver_at_ms {
        output::entry("deliver at", &time(at))?;
    }
    output::entry("state", &state(entry))?;
    output::entry("shard", &entry.shard)?;
    output::entry("attempts", &event.attempts)?;
    output::entry("error", &or_dash(entry.error.as_deref()))?;
    output::entry("consumer", &or_dash(entry.consumer.as_deref()))?;
    output::entry("tenant", &or_dash(entry.tenant.as_deref()))?;
    output::entry("caused by", &or_dash(event.causation_id.as_deref()))?;
    output::entry("key", &text(event.key.as_deref()))?;
    for (name, value) in event.headers.iter() {
        output::entry("header", &format!("{name}: {}", text(value)))?;
    }
    output::entry("payload", &text(event.payload.as_deref()))?;
    Ok(Answer::Yes)
}

/// The state, with the time that belongs to it.
fn state(entry: &OutboxEntry) -> String {
    let word = entry.state.as_str();
    match (entry.state, entry.state_at_ms) {
        (EventState::Held | EventState::Delayed, Some(at)) => format!("{word} until {}", time(at)),
        (EventState::Parked | EventState::Published, Some(at)) => format!("{word} at {}", time(at)),
        _ => word.to_owned(),
    }
}

fn as_json(entry: &OutboxEntry) -> Value {
    let event = &entry.event;
    let mut json = json!({
        "number": event.seq,
        "id": event.id.to_string(),
        "topic": &*event.topic,
        "headers": output::headers(&event.headers),
        "created_at": time(event.created_at_ms),
        "deliver_at": event.deliver_at_ms.map(time),
        "state": entry.state.as_str(),
        "state_at": entry.state_at_ms.map(time),
        "attempts": event.attempts,
        "error": entry.error,
        "shard": entry.shard,
        "consumer": entry.consumer,
        "tenant": entry.tenant,
        "causation_id": event.causation_id,
    });
    output::put_bytes(&mut json, "key", event.key.as_deref());
    output::put_bytes(&mut json, "payload", event.payload.as_deref());
    json
}

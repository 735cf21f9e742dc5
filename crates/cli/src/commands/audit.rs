//! `oncebox audit`: who did what. And what writes it down.

use std::path::Path;

use oncebox_core::operate::Operator;
use oncebox_core::store::{Action, AuditEntry, AuditFilter};
use serde_json::{Value, json};

use crate::args::{AuditArgs, Output};
use crate::exit::{CommandResult, Failure};
use crate::load;
use crate::output::{self, time};
use crate::stores::{ConfiguredStore, WithStore, require_schema, with_store};

/// How the audit names who runs a command.
pub(crate) fn operator_name(by: &str) -> String {
    let by = by.trim();
    format!("cli:{}", if by.is_empty() { "somebody" } else { by })
}

/// Does something, and writes it down: what `told` says of it, or why it failed.
pub(crate) async fn audited<S: ConfiguredStore, T>(
    operator: &Operator<S>,
    action: Action,
    work: impl Future<Output = Result<T, Failure>>,
    told: impl FnOnce(&T) -> Value,
) -> Result<T, Failure> {
    let ongoing = operator.begin(action).await?;
    let done = work.await;
    match &done {
        Ok(done) => ongoing.ended(told(done)).await,
        Err(failure) => ongoing.failed(&failure.text).await,
    }
    done
}

pub(crate) async fn run(file: &Path, args: AuditArgs) -> CommandResult {
    let config = load::config(file)?;
    with_store(&config.store, Audit(args)).await
}

struct Audit(AuditArgs);

impl WithStore for Audit {
    type Output = CommandResult;

    async fn run<S: ConfiguredStore>(self, store: S) -> CommandResult {
        require_schema(&store).await?;
        let AuditArgs { limit, before, action, consumer, who, output } = self.0;
        let is_filtered = before.is_some() || action.is_some() || consumer.is_some() || who.is_some();
        let entries = store.actions(&AuditFilter { who, action, consumer, before, limit }).await?;
        match output.output {
            Output::Json => output::json(&entries.iter().map(as_json).collect::<Vec<_>>())?,
            Output::Table => {
                let header = ["number", "at", "who", "action", "consumer", "parameters", "result"];
                output::line(&output::table(header, entries.iter().map(row)).to_string())?;
            }
        }
        output::listed(entries.is_empty(), is_filtered)
    }
}

fn as_json(entry: &AuditEntry) -> Value {
    json!({
        "number": entry.number, "at": time(entry.at_ms), "ended_at": entry.ended_at_ms.map(time),
        "who": entry.who, "action": entry.action, "consumer": entry.consumer, "parameters": entry.parameters,
        "result": entry.result, "error": entry.error,
    })
}

fn row(entry: &AuditEntry) -> [String; 7] {
    let result = match (&entry.error, &entry.result, entry.ended_at_ms) {
        (Some(error), _, _) => format!("failed: {}", output::short(error)),
        (None, result, Some(_)) => pairs(result.as_ref()),
        (None, result, None) => format!("not ended {}", pairs(result.as_ref())),
    };
    [
        entry.number.to_string(),
        time(entry.at_ms),
        entry.who.clone(),
        entry.action.clone(),
        output::or_dash(entry.consumer.as_deref()),
        pairs(Some(&entry.parameters)),
        result.trim_end().to_owned(),
    ]
}

/// An object as people write it.
fn pairs(value: Option<&Value>) -> String {
    let Some(Value::Object(map)) = value else { return String::new() };
    let pair = |(name, value): (&String, &Value)| match value {
        Value::String(text) => format!("{name} {text}"),
        other => format!("{name} {other}"),
    };
    map.iter().map(pair).collect::<Vec<_>>().join(", ")
}

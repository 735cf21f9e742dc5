//! `oncebox find`: one message by its id.

use std::path::Path;

use oncebox_config::Config;
use oncebox_core::names::{ConsumerName, MessageId, Tenant};
use oncebox_core::operate::{Found, FoundAt, find};
use oncebox_core::store::{FoundReceipt, OutboxEntry, StoreResult};
use serde_json::{Value, json};

use crate::args::Output;
use crate::exit::{Answer, CommandResult, Exit, Failure};
use crate::load;
use crate::output::{self, time};
use crate::stores::{ConfiguredStore, WithStore, require_schema, with_store};

pub(crate) async fn run(
    file: &Path,
    id: String,
    consumer: Option<ConsumerName>,
    tenant: Option<String>,
    output: Output,
) -> CommandResult {
    let usage = |e: &dyn std::fmt::Display| Failure { exit: Exit::Usage, text: e.to_string() };
    let id = MessageId::new(id).map_err(|e| usage(&e))?;
    let tenant = tenant.map(Tenant::new).transpose().map_err(|e| usage(&e))?;
    let config = load::config(file)?;
    with_store(&config.store, Find { config: &config, id, consumer, tenant, output }).await
}

struct Find<'a> {
    config: &'a Config,
    id: MessageId,
    consumer: Option<ConsumerName>,
    tenant: Option<Tenant>,
    output: Output,
}

impl WithStore for Find<'_> {
    type Output = CommandResult;

    async fn run<S: ConfiguredStore>(self, store: S) -> CommandResult {
        require_schema(&store).await?;
        let consumers = asked(&store, self.config, self.consumer.as_ref()).await?;
        let found = find(&store, &consumers, self.tenant.as_ref(), &self.id).await?;
        match self.output {
            Output::Json => output::json(&self.as_json(&found))?,
            Output::Table => self.tell(&found)?,
        }
        Ok(if found.is_seen() { Answer::Yes } else { Answer::No })
    }
}

/// Those that are asked: one, or those of the configuration and of the database.
pub(crate) async fn asked<S: ConfiguredStore>(
    store: &S,
    config: &Config,
    consumer: Option<&ConsumerName>,
) -> StoreResult<Vec<ConsumerName>> {
    if let Some(consumer) = consumer {
        return Ok(vec![consumer.clone()]);
    }
    let mut known: Vec<ConsumerName> = config.inboxes.iter().map(|inbox| inbox.consumer.clone()).collect();
    // A table without a column for consumers serves the one of the configuration.
    if config.store.adopt.is_none() {
        let stored = store.status(0).await?.consumers;
        known.extend(stored.into_iter().filter_map(|status| ConsumerName::new(status.consumer).ok()));
    }
    known.sort();
    known.dedup();
    Ok(known)
}

/// Receipts are found by consumer, tenant and id together: whether there may be some that nobody looked for.
pub(crate) fn has_tenants(config: &Config, tenant: Option<&Tenant>) -> bool {
    tenant.is_none() && config.inboxes.iter().any(|inbox| inbox.identity.tenant.is_some())
}

impl Find<'_> {
    fn has_tenants(&self) -> bool {
        has_tenants(self.config, self.tenant.as_ref())
    }

    fn as_json(&self, found: &Found) -> Value {
        json!({
            "message_id": self.id.as_str(),
            "seen": found.is_seen(),
            "consumers": found.at.iter().map(at_as_json).collect::<Vec<_>>(),
            "events": found.events.events.iter().map(event_as_json).collect::<Vec<_>>(),
            "traces": found.traces,
            "looked_at": {
                "consumers": found.asked.iter().map(ConsumerName::as_str).collect::<Vec<_>>(),
                "tenant": self.tenant.as_ref().map(Tenant::as_str),
                "all_tenants": !self.has_tenants(),
                "whole_outbox": found.events.looked_at_all,
            },
        })
    }

    fn tell(&self, found: &Found) -> Result<(), Failure> {
        for at in &found.at {
            let of_tenant = match at.tenant.as_str() {
                "" => String::new(),
                tenant => format!(" of tenant {tenant}"),
            };
            output::line(&format!("{}{of_tenant}: {}", at.consumer, settled(at)))?;
            for letter in &at.letters {
                output::line(&format!(
                    "  dead letter {} of {}: {}",
                    letter.number,
                    time(letter.failed_at_ms),
                    output::short(&letter.error)
                ))?;
            }
        }
        for entry in &found.events.events {
            let at = entry.state_at_ms.map(|at| format!(" ({})", time(at))).unwrap_or_default();
            output::line(&format!(
                "event {} to {}: {}{at}, id {}",
                entry.event.seq,
                entry.event.topic,
                entry.state.as_str(),
                entry.event.id
            ))?;
        }
        for trace in &found.traces {
            output::line(&format!("trace {trace}"))?;
        }
        if !found.is_seen() {
            output::line(&format!("not seen: no consumer has a receipt or a dead letter of {}", self.id))?;
        }
        if self.has_tenants() {
            output::note("receipts of tenants are found by --tenant only");
        }
        if !found.events.looked_at_all {
            output::note("only the newest events of the outbox were looked at");
        }
        Ok(())
    }
}

fn settled(at: &FoundAt) -> String {
    let when = |receipt: &FoundReceipt| match receipt.processed_at_ms {
        Some(ms) => format!("at {}", time(ms)),
        None => "at a time that its table does not tell".to_owned(),
    };
    match (&at.receipt, at.letters.is_empty()) {
        (Some(receipt), true) => format!("settled {}", when(receipt)),
        (Some(receipt), false) => format!("given up, not applied; its receipt is written {}", when(receipt)),
        (None, _) => "given up, without a receipt".to_owned(),
    }
}

fn at_as_json(at: &FoundAt) -> Value {
    let letter = |letter: &oncebox_core::store::DeadSummary| {
        json!({
            "number": letter.number, "failed_at": time(letter.failed_at_ms), "error": letter.error,
            "group": letter.group(), "attempts": letter.attempts, "edited": letter.edited,
        })
    };
    json!({
        "consumer": at.consumer.as_str(),
        "tenant": at.tenant.as_str(),
        "receipt": at.receipt.map(|receipt| json!({ "processed_at": receipt.processed_at_ms.map(time) })),
        "dead_letters": at.letters.iter().map(letter).collect::<Vec<_>>(),
    })
}

fn event_as_json(entry: &OutboxEntry) -> Value {
    json!({
        "number": entry.event.seq, "id": entry.event.id.to_string(), "topic": &*entry.event.topic,
        "consumer": entry.consumer, "tenant": entry.tenant, "state": entry.state.as_str(),
        "state_at": entry.state_at_ms.map(time), "created_at": time(entry.event.created_at_ms),
        "attempts": entry.event.attempts, "error": entry.error,
    })
}

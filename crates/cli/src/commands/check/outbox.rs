//! Where events go, and the queries that make them.

use oncebox_config::{Config, SweepConfig, WebhookConfig};
use oncebox_core::error::describe_whole;
use oncebox_core::store::{Finding, OutboxAdmin};

use crate::load;

/// What the configuration alone tells.
pub(super) fn relay(config: &Config) -> Vec<Finding> {
    if !config.outbox.relay {
        let detail = "no relay here (outbox.relay = false): events wait until another process publishes them";
        return vec![Finding::ok("outbox", detail.to_owned())];
    }
    let cluster = config.outbox.cluster.as_deref();
    let rest = match (&config.outbox.exchange, config.kafka.get(cluster)) {
        (Some(_), _) => "to RabbitMQ".to_owned(),
        (None, Some(_)) => cluster.map_or_else(|| "to Kafka".to_owned(), |name| format!("to Kafka ({name})")),
        (None, None) => "nowhere: they are parked, because there is no [kafka]".to_owned(),
    };
    // Webhooks that get copies take nothing away.
    let takes = config.webhooks.iter().any(|webhook| !webhook.copy) || !config.outbox.routes.is_empty();
    let other = if takes { "other " } else { "" };
    let mut findings = vec![Finding::ok("outbox", format!("the relay is on; {other}events go {rest}"))];
    findings.extend(config.webhooks.iter().flat_map(webhook));
    findings
}

fn webhook(config: &WebhookConfig) -> Vec<Finding> {
    let topics = config.topics.join(", ");
    let subject = match &config.name {
        Some(name) => format!("webhook {name} ({topics})"),
        None => format!("webhook {topics}"),
    };
    let origin = config.url.origin();
    if let Err(e) = load::webhook(config) {
        return vec![Finding::error(&subject, e.to_string())];
    }
    let mut findings = Vec::new();
    if config.url.is_in_the_clear() {
        let detail =
            format!("{origin} gets the events unencrypted; use https, or a receiver on this machine");
        findings.push(Finding::warning(&subject, detail));
    }
    if config.secret.is_none() {
        let detail = format!(
            "{origin} cannot tell our requests from others'; set `secret`, and check the signature there"
        );
        findings.push(Finding::warning(&subject, detail));
    }
    if findings.is_empty() {
        let goes = if config.copy { "copies go" } else { "goes" };
        findings.push(Finding::ok(&subject, format!("{goes} to {origin}, signed")));
    }
    findings
}

/// Whether the database takes the queries.
pub(super) async fn sweeps<S: OutboxAdmin>(store: &S, sweeps: &[SweepConfig]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for SweepConfig { every, sweep } in sweeps {
        let subject = format!("sweep {}", sweep.name);
        findings.push(match store.check_sweep(sweep).await {
            Ok(()) => {
                let every = humantime::format_duration(*every);
                Finding::ok(
                    &subject,
                    format!("the query is valid; runs every {every}, emits to {}", sweep.topic),
                )
            }
            Err(e) => Finding::error(&subject, describe_whole(&e)),
        });
    }
    findings
}

//! Reads the configuration file.

use std::path::Path;

use oncebox_core::config::{Config, InboxConfig, KafkaConfig, OutboxConfig, WebhookConfig};
use oncebox_core::inbox::Settings;
use oncebox_core::outbox::{ByEvent, RelaySettings};
use oncebox_kafka::Kafka;
use oncebox_webhook::Webhook;

use crate::exit::Failure;

/// The configuration, or everything that is wrong with it.
pub(crate) fn config(file: &Path) -> Result<Config, Failure> {
    let text = std::fs::read_to_string(file).map_err(|e| {
        Failure::config(format!(
            "cannot read {}: {e}. Write one with `oncebox init`, or name another with --config",
            file.display()
        ))
    })?;
    let env = |name: &str| std::env::var(name).ok();
    Config::parse(&text, &env)
        .map_err(|problems| Failure::config(problems.render(&file.display().to_string())))
}

/// The engine's settings of an inbox.
pub(crate) fn settings(config: &Config, inbox: &InboxConfig) -> Settings {
    Settings {
        identity: inbox.identity.clone(),
        start: inbox.start,
        batch: inbox.batch,
        lanes: inbox.lanes,
        retry: inbox.retry,
        crash_limit: inbox.crash_limit,
        on_failure: inbox.on_failure,
        stale: inbox.stale,
        retention: inbox.retention,
        purge_every: config.purge.every,
        ..Settings::default()
    }
}

/// The settings of the relay. Its name says where it runs.
pub(crate) fn relay_settings(outbox: &OutboxConfig) -> RelaySettings {
    let default = RelaySettings::default();
    let name = match nix::unistd::gethostname() {
        Ok(host) => format!("{} on {}", default.name, host.to_string_lossy()),
        Err(_) => default.name,
    };
    RelaySettings {
        name,
        source: outbox.source.clone(),
        keep: outbox.keep,
        lease: outbox.lease,
        batch: outbox.batch,
        poll: default.poll,
    }
}

/// The Kafka client of the configuration.
pub(crate) fn kafka(config: &KafkaConfig) -> Kafka {
    config
        .properties
        .iter()
        .fold(Kafka::brokers(config.brokers.as_str()), |kafka, (name, value)| kafka.property(name, value))
}

/// The sink of a webhook.
pub(crate) fn webhook(config: &WebhookConfig) -> Result<ByEvent<Webhook>, oncebox_webhook::Error> {
    let mut webhook = Webhook::to(config.url.expose())?.timeout(config.timeout).at_once(config.at_once);
    if let Some(secret) = &config.secret {
        webhook = webhook.secret(secret.expose())?;
    }
    for (name, value) in &config.headers {
        webhook = webhook.header(name, value.expose())?;
    }
    Ok(webhook.into_sink().retry(config.retry))
}

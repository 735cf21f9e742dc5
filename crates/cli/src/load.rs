//! Reads the configuration file.

#[cfg(test)]
mod tests;

use std::path::Path;

use oncebox_config::{
    Config, InboxConfig, KafkaConfig, OperationProblem, OperationUse, OutboxConfig, Problems,
    RefusedProperty, StoreKind, Surroundings, WebhookConfig,
};
use oncebox_core::inbox::Settings;
use oncebox_core::outbox::{ByEvent, RelaySettings};
use oncebox_kafka::Kafka;
use oncebox_mongodb::operations::{Problem, Standing, check_operation, check_sweep};
use oncebox_mysql::MysqlStore;
use oncebox_postgres::PgStore;
use oncebox_sql::SqlStore;
use oncebox_sqlite::SqliteStore;
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
    parse(&text).map_err(|problems| Failure::config(problems.render(&file.display().to_string())))
}

/// Brings the reader of the file together with what it does not know itself.
fn parse(text: &str) -> Result<Config, Problems> {
    let surroundings = Surroundings {
        env: &|name| std::env::var(name).ok(),
        check_dialect: &|store, sql| match store {
            StoreKind::Mysql => MysqlStore::check_dialect(sql),
            StoreKind::Postgres => PgStore::check_dialect(sql),
            StoreKind::Sqlite => SqliteStore::check_dialect(sql),
            // It speaks no SQL.
            StoreKind::Mongodb => Ok(()),
        },
        check_operation: &|store, place, json| match store {
            StoreKind::Mongodb => operation_problems(place, json),
            StoreKind::Mysql | StoreKind::Postgres | StoreKind::Sqlite => Vec::new(),
        },
        refused_property: &|name, value| {
            let oncebox_kafka::RefusedProperty { why, instead } =
                oncebox_kafka::refused_property(name, value)?;
            Some(RefusedProperty { why, instead })
        },
    };
    Config::parse(text, &surroundings)
}

fn operation_problems(place: OperationUse, json: &str) -> Vec<OperationProblem> {
    let problems = match place {
        OperationUse::Each(payload) => check_operation(json, Standing::Each(payload)),
        OperationUse::Batch(payload) => check_operation(json, Standing::Batch(payload)),
        OperationUse::Sweep => check_sweep(json),
    };
    let problem = |Problem { path, message, fix }| OperationProblem { path, message, fix };
    problems.into_iter().map(problem).collect()
}

/// The engine's settings of an inbox.
pub(crate) fn settings(config: &Config, inbox: &InboxConfig) -> Settings {
    let mut settings = Settings::default();
    settings.identity = inbox.identity.clone();
    settings.start = inbox.start;
    settings.batch = inbox.batch;
    settings.lanes = inbox.lanes;
    settings.retry = inbox.retry;
    settings.crash_limit = inbox.crash_limit;
    settings.on_failure = inbox.on_failure;
    settings.stale = inbox.stale;
    settings.retention = inbox.retention;
    settings.purge_every = config.purge.every;
    settings
}

/// The settings of the relay. Its name says where it runs.
pub(crate) fn relay_settings(outbox: &OutboxConfig) -> RelaySettings {
    let mut settings = RelaySettings::default();
    if let Ok(host) = nix::unistd::gethostname() {
        settings.name = format!("{} on {}", settings.name, host.to_string_lossy());
    }
    settings.source = outbox.source.clone();
    settings.keep = outbox.keep;
    settings.lease = outbox.lease;
    settings.batch = outbox.batch;
    settings
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
    let mut webhook = Webhook::to(config.url.expose())?;
    if let Some(timeout) = config.timeout {
        webhook = webhook.timeout(timeout);
    }
    if let Some(requests) = config.at_once {
        webhook = webhook.at_once(requests);
    }
    if let Some(secret) = &config.secret {
        webhook = webhook.secret(secret.expose())?;
    }
    for (name, value) in &config.headers {
        webhook = webhook.header(name, value.expose())?;
    }
    Ok(webhook.into_sink().retry(config.retry))
}

//! Reads the configuration file.

mod http;
mod kafka;
mod shares;
mod telemetry;
#[cfg(test)]
mod tests;

use std::path::Path;

use oncebox_config::{
    Config, FilterConfig, InboxConfig, OperationProblem, OperationUse, OutboxConfig, Problems,
    RabbitmqConfig, RabbitmqInbox, RefusedProperty, SourceConfig, StoreKind, Surroundings, WebhookConfig,
};
use oncebox_core::inbox::{Filter, Selector, Settings};
use oncebox_core::outbox::{ByEvent, RelaySettings};
use oncebox_http::{PathPattern, with_lower_case_headers};
use oncebox_kafka::TopicPattern;
use oncebox_mongodb::operations::{Problem, Standing, check_operation, check_sweep};
use oncebox_mysql::MysqlStore;
use oncebox_postgres::PgStore;
use oncebox_rabbitmq::{Rabbitmq, RabbitmqSink, RabbitmqSource};
use oncebox_sql::SqlStore;
use oncebox_sqlite::SqliteStore;
use oncebox_webhook::Webhook;

use crate::exit::Failure;
use crate::logging;
pub(crate) use http::http_inbox;
pub(crate) use kafka::Way;
pub(crate) use shares::Shares;
pub(crate) use telemetry::exporter;

/// The configuration, or everything that is wrong with it.
pub(crate) fn config(file: &Path) -> Result<Config, Failure> {
    config_and_text(file).map(|(config, _)| config)
}

/// The configuration, and the text it was read from.
pub(crate) fn config_and_text(file: &Path) -> Result<(Config, String), Failure> {
    let text = std::fs::read_to_string(file).map_err(|e| {
        Failure::config(format!(
            "cannot read {}: {e}. Write one with `oncebox init`, or name another with --config",
            file.display()
        ))
    })?;
    match parse(&text) {
        Ok(config) => Ok((config, text)),
        Err(problems) => Err(Failure::config(problems.render(&file.display().to_string()))),
    }
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
        check_log: &|filter| logging::check(filter),
        check_path: &|path| path.parse::<PathPattern>().map(|_| ()).map_err(|e| e.to_string()),
        refused_property: &|name, value| oncebox_kafka::refused_property(name, value).map(refused),
        refused_together: &|properties| {
            let (name, why) = oncebox_kafka::refused_together(properties)?;
            Some((name.to_owned(), refused(why)))
        },
        check_topic_pattern: &|pattern| TopicPattern::new(pattern).map(|_| ()),
    };
    Config::parse(text, &surroundings)
}

fn refused(property: oncebox_kafka::RefusedProperty) -> RefusedProperty {
    let oncebox_kafka::RefusedProperty { why, fix, instead } = property;
    RefusedProperty { why, fix, instead }
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
    settings.identity = match inbox.source {
        SourceConfig::Http(_) => with_lower_case_headers(inbox.identity.clone()),
        SourceConfig::Kafka(_) | SourceConfig::Rabbitmq(_) => inbox.identity.clone(),
    };
    settings.filter = inbox.filter.as_ref().map(|filter| filter_of(filter, &inbox.source));
    if let Some(kafka) = inbox.source.kafka() {
        settings.start = kafka.start;
    }
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

/// The names of headers are in lower case in messages that came by HTTP.
fn filter_of(filter: &FilterConfig, source: &SourceConfig) -> Filter {
    let selector = match (source, &filter.selector) {
        (SourceConfig::Http(_), Selector::Header(name)) => Selector::Header(name.to_ascii_lowercase()),
        (_, selector) => selector.clone(),
    };
    Filter::equals(selector, filter.equals.iter().cloned())
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

/// The RabbitMQ client of the configuration.
pub(crate) fn rabbitmq(config: &RabbitmqConfig) -> Result<Rabbitmq, oncebox_rabbitmq::Error> {
    Rabbitmq::nodes(config.url.expose())
}

/// The queue that an inbox reads.
pub(crate) fn rabbitmq_source(
    rabbitmq: &Rabbitmq,
    config: &RabbitmqInbox,
    inbox: &InboxConfig,
) -> Result<RabbitmqSource, oncebox_rabbitmq::Error> {
    let InboxConfig { identity, filter, .. } = inbox;
    let filter = filter.as_ref().map(|filter| &filter.selector);
    for selector in [Some(&identity.id), identity.tenant.as_ref(), filter].into_iter().flatten() {
        oncebox_rabbitmq::check_selector(selector)?;
    }
    let source = rabbitmq.source(&config.queue).prefetch(config.prefetch);
    match &config.key {
        Some(key) => source.key(key.clone()),
        None => Ok(source),
    }
}

/// Where in RabbitMQ events go, if any go there.
pub(crate) fn rabbitmq_sink(
    rabbitmq: &Rabbitmq,
    outbox: &OutboxConfig,
) -> Result<Option<RabbitmqSink>, oncebox_rabbitmq::Error> {
    if outbox.exchange.is_none() && outbox.routes.is_empty() {
        return Ok(None);
    }
    let mut sink = rabbitmq.sink(outbox.exchange.as_deref().unwrap_or_default())?;
    for route in &outbox.routes {
        for topics in &route.topics {
            sink = sink.route(topics, &route.exchange, &route.routing_key)?;
        }
    }
    Ok(Some(sink))
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
    if let Some(statuses) = &config.park_on {
        webhook = webhook.park_on(statuses.iter().copied())?;
    }
    for (name, value) in &config.headers {
        webhook = webhook.header(name, value.expose())?;
    }
    Ok(webhook.retry(config.retry).into_sink().park_keys(config.parks_keys))
}

//! Reads the configuration file.

#[cfg(test)]
mod tests;

use std::path::Path;

use axum::Router;
use axum::http::StatusCode;
use oncebox_config::{
    Config, InboxConfig, KafkaConfig, OperationProblem, OperationUse, OutboxConfig, Problems, RabbitmqConfig,
    RabbitmqInbox, RefusedProperty, SourceConfig, StoreKind, Surroundings, VerifyConfig, VerifyScheme,
    WebhookConfig,
};
use oncebox_core::error::BoxError;
use oncebox_core::inbox::{Identity, Settings};
use oncebox_core::outbox::{ByEvent, RelaySettings};
use oncebox_http::verify::{Access, BodySignature, Encoding, Verifier};
use oncebox_http::{HttpInbox, HttpSource, PathPattern, Reply, with_lower_case_headers};
use oncebox_kafka::Kafka;
use oncebox_mongodb::operations::{Problem, Standing, check_operation, check_sweep};
use oncebox_mysql::MysqlStore;
use oncebox_postgres::PgStore;
use oncebox_rabbitmq::{Rabbitmq, RabbitmqSink, RabbitmqSource};
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
        check_path: &|path| path.parse::<PathPattern>().map(|_| ()).map_err(|e| e.to_string()),
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
    settings.identity = match inbox.source {
        SourceConfig::Http(_) => with_lower_case_headers(inbox.identity.clone()),
        SourceConfig::Kafka(_) | SourceConfig::Rabbitmq(_) => inbox.identity.clone(),
    };
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

/// The RabbitMQ client of the configuration.
pub(crate) fn rabbitmq(config: &RabbitmqConfig) -> Result<Rabbitmq, oncebox_rabbitmq::Error> {
    Rabbitmq::nodes(config.url.expose())
}

/// The queue that an inbox reads.
pub(crate) fn rabbitmq_source(
    rabbitmq: &Rabbitmq,
    config: &RabbitmqInbox,
    identity: &Identity,
) -> Result<RabbitmqSource, oncebox_rabbitmq::Error> {
    for selector in [Some(&identity.id), identity.tenant.as_ref()].into_iter().flatten() {
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

/// The two halves of an inbox that takes requests, or what is wrong with it.
pub(crate) fn http_inbox(config: &oncebox_config::HttpInbox) -> Result<(Router, HttpSource), BoxError> {
    let mut limits = oncebox_http::Limits::default();
    limits.body_bytes = config.max_body;
    limits.answer_within = config.timeout;
    limits.copy_within = limits.copy_within.min(config.timeout);
    let mut reply = Reply::new(StatusCode::from_u16(config.status)?)?;
    if !config.body.is_empty() {
        let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&config.body).is_ok();
        let content_type = if is_json { "application/json" } else { "text/plain; charset=utf-8" };
        reply = reply.body(content_type, config.body.clone())?;
    }
    let mut inbox = HttpInbox::apply(config.path.parse()?).limits(limits).reply(reply);
    inbox = inbox.compare_bodies(config.compare_body);
    if let Some(key) = &config.key {
        inbox = inbox.key(key.clone());
    }
    if let Some(verify) = &config.verify {
        inbox = inbox.access(Access::Verified(verifier(verify)?));
    }
    Ok(inbox.open()?)
}

fn verifier(config: &VerifyConfig) -> Result<Verifier, BoxError> {
    let secrets = config.secrets.iter().cloned();
    let verifier = match &config.scheme {
        VerifyScheme::Standard => Verifier::standard_webhooks(secrets),
        VerifyScheme::Stripe => Verifier::stripe(secrets),
        VerifyScheme::Github => Verifier::github(secrets),
        VerifyScheme::Shopify => Verifier::shopify(secrets),
        VerifyScheme::Slack => Verifier::slack(secrets),
        VerifyScheme::Bearer => Verifier::bearer(secrets),
        VerifyScheme::Basic { user } => Verifier::basic(secrets.map(|secret| (user, secret))),
        VerifyScheme::Hmac { header, base64, prefix } => {
            let encoding = if *base64 { Encoding::Base64 } else { Encoding::Hex };
            let signature = BodySignature { header: header.parse()?, encoding, prefix: prefix.clone() };
            Verifier::hmac(secrets, signature)
        }
    }?;
    Ok(match config.tolerance {
        Some(tolerance) => verifier.tolerance(tolerance),
        None => verifier,
    })
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

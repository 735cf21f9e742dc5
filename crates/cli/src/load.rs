//! Reads the configuration file.

use std::path::Path;

use oncebox_config::{
    Config, InboxConfig, KafkaConfig, OutboxConfig, Problems, RefusedProperty, StoreKind, Surroundings,
    WebhookConfig,
};
use oncebox_core::inbox::Settings;
use oncebox_core::outbox::{ByEvent, RelaySettings};
use oncebox_kafka::Kafka;
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
            StoreKind::Postgres => PgStore::check_dialect(sql),
            StoreKind::Sqlite => SqliteStore::check_dialect(sql),
        },
        refused_property: &|name, value| {
            let oncebox_kafka::RefusedProperty { why, instead } =
                oncebox_kafka::refused_property(name, value)?;
            Some(RefusedProperty { why, instead })
        },
    };
    Config::parse(text, &surroundings)
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

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "[store]\nurl = \"sqlite://x\"\n[kafka]\nbrokers = \"k\"\n[kafka.properties]\n";

    #[test]
    fn every_reserved_property_is_named_with_its_line() {
        let reserved: Vec<_> = oncebox_kafka::reserved_properties().collect();
        let lines = reserved.iter().map(|name| format!("\"{name}\" = \"1\"\n"));
        let text =
            format!("{BASE}{}\"statistics.interval.ms\" = 0\nlisten = [1]\n", lines.collect::<String>());
        let problems = parse(&text).unwrap_err();
        let found: Vec<_> = problems.iter().map(|problem| (problem.line, problem.key.clone())).collect();
        let names = reserved.into_iter().chain(["statistics.interval.ms", "listen"]);
        let expected: Vec<_> =
            names.zip(6..).map(|(name, line)| (line, format!("kafka.properties.\"{name}\""))).collect();
        assert_eq!(found, expected);
        let said = problems.to_string();
        for fix in
            ["use `brokers` under [kafka]", "use `group` under [[inbox]]", "use `start` under [[inbox]]"]
        {
            assert!(said.contains(fix), "{said}");
        }
    }

    #[test]
    fn placeholders_of_sqlite_are_refused_on_sqlite_only() {
        let inbox = "[[inbox]]\nconsumer = \"a\"\ntopics = [\"t\"]\nid = \"key\"\n\
                     handler.each = [\"SELECT :payload ? 'a'\"]\n";
        let text = format!("{BASE}{inbox}");
        let problems = parse(&text).unwrap_err();
        assert!(
            problems.to_string().contains(
                ":10: inbox[0].handler.each[0]: `?` is a placeholder that nobody binds; use one of :id"
            ),
            "{problems}"
        );
        assert!(parse(&text.replace("sqlite://x", "postgres://db/x")).is_ok());
    }
}

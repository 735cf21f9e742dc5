//! How to reach a cluster, and the librdkafka properties that follow from what oncebox promises.

use std::collections::BTreeMap;
use std::fmt;

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

use crate::error::Error;
use crate::secrets::{Secrets, is_secret};
use crate::source::KafkaSource;

/// What we promise depends on these, so nobody may set them.
const RESERVED: [(&str, &str); 13] = [
    ("bootstrap.servers", "name the brokers where the cluster is named"),
    ("metadata.broker.list", "name the brokers where the cluster is named"),
    ("group.id", "the group is the consumer's name, or what `group` says"),
    ("group.protocol", "only the classic protocol is supported yet"),
    ("enable.auto.commit", "offsets are committed after the database has committed"),
    ("auto.commit.enable", "offsets are committed after the database has committed"),
    ("enable.auto.offset.store", "offsets are committed after the database has committed"),
    ("auto.offset.reset", "a gap must stop the partition; where a new consumer begins is what `start` says"),
    ("isolation.level", "messages of aborted transactions must not be applied"),
    ("check.crcs", "a damaged message must not be applied"),
    ("enable.partition.eof", "it is used by nobody and costs an event per partition"),
    ("allow.auto.create.topics", "a misspelt topic must be an error, not a new topic"),
    ("log.queue", "logs are read from a queue"),
];

/// Defaults that may be overridden.
///
/// They keep the memory of a process small whatever the backlog is: up to `queued.max.messages.kbytes` for each partition,
/// and a fetch more. Two of them look odd. When a partition has enough in its queue librdkafka waits
/// `fetch.queue.backoff.ms` before it looks again: a second by default, in which a queue as short as ours has long run dry.
/// And there is one fetch at a time for each broker: one that waits there for partitions without news, for
/// `fetch.wait.max.ms`, holds up a busy partition whose queue has run dry meanwhile.
const DEFAULTS: [(&str, &str); 10] = [
    ("client.id", "oncebox"),
    ("partition.assignment.strategy", "cooperative-sticky"),
    ("queued.max.messages.kbytes", "1024"),
    ("fetch.queue.backoff.ms", "10"),
    ("fetch.message.max.bytes", "262144"),
    ("fetch.max.bytes", "8388608"),
    ("fetch.wait.max.ms", "50"),
    ("fetch.error.backoff.ms", "200"),
    ("topic.metadata.refresh.interval.ms", "30000"),
    ("statistics.interval.ms", "5000"),
];

/// Names for the same property: who sets one means both.
const ALIASES: [(&str, &str); 1] = [("fetch.message.max.bytes", "max.partition.fetch.bytes")];

/// A Kafka cluster: its brokers and how to talk to them. Cheap enough to clone.
#[derive(Clone)]
pub struct Kafka {
    brokers: String,
    properties: BTreeMap<String, String>,
}

impl Kafka {
    /// The cluster behind these brokers: `host:port`, several with commas between them.
    pub fn brokers(brokers: impl Into<String>) -> Self {
        Self { brokers: brokers.into(), properties: BTreeMap::new() }
    }

    /// Sets a librdkafka property, such as `security.protocol` or `sasl.password`. Those that oncebox must set itself are
    /// refused by name when the client is built.
    #[must_use]
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.insert(name.into(), value.into());
        self
    }

    /// A source that reads these topics.
    pub fn source(&self, topics: impl IntoIterator<Item = impl Into<String>>) -> KafkaSource {
        KafkaSource::new(self.clone(), topics.into_iter().map(Into::into).collect())
    }

    /// The first property that may not be set, as an error: for checking a configuration before it runs.
    pub fn validate(&self) -> Result<(), Error> {
        if let Some((name, why)) = RESERVED.iter().find(|(name, _)| self.properties.contains_key(*name)) {
            return Err(Error::ReservedProperty { name: (*name).to_owned(), why });
        }
        if self.get("statistics.interval.ms") == Some("0") {
            let why = "the statistics tell whether brokers can be reached and how far behind we are; give an interval";
            return Err(Error::ReservedProperty { name: "statistics.interval.ms".to_owned(), why });
        }
        Ok(())
    }

    /// The brokers as given.
    pub(crate) fn broker_list(&self) -> &str {
        &self.brokers
    }

    pub(crate) fn get(&self, property: &str) -> Option<&str> {
        self.properties.get(property).map(String::as_str)
    }

    pub(crate) fn secrets(&self) -> Secrets {
        Secrets::among(self.properties.iter().map(|(name, value)| (name.as_str(), value.as_str())))
    }

    /// For a client that only asks questions.
    pub(crate) fn client_config(&self) -> Result<ClientConfig, Error> {
        self.validate()?;
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.brokers);
        config.set("client.id", "oncebox");
        config.set("allow.auto.create.topics", "false");
        for (name, value) in &self.properties {
            config.set(name, value);
        }
        // Without this the level follows the `log` crate, which is not where our logs go.
        let chatty = self.properties.contains_key("debug");
        config.set_log_level(if chatty { RDKafkaLogLevel::Debug } else { RDKafkaLogLevel::Info });
        Ok(config)
    }

    /// For a member of a group.
    pub(crate) fn consumer_config(&self, group: &str) -> Result<ClientConfig, Error> {
        let mut config = self.client_config()?;
        for (name, value) in DEFAULTS {
            let alias = ALIASES.iter().find(|(property, _)| *property == name).map(|(_, alias)| *alias);
            if self.get(name).is_none() && alias.is_none_or(|alias| self.get(alias).is_none()) {
                config.set(name, value);
            }
        }
        config
            .set("group.id", group)
            .set("group.protocol", "classic")
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "error")
            .set("isolation.level", "read_committed")
            .set("check.crcs", "true")
            .set("enable.partition.eof", "false");
        Ok(config)
    }
}

impl fmt::Debug for Kafka {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |(name, value): (&String, &String)| {
            (name.clone(), if is_secret(name) { "***".to_owned() } else { value.clone() })
        };
        f.debug_struct("Kafka")
            .field("brokers", &self.brokers)
            .field("properties", &self.properties.iter().map(shown).collect::<BTreeMap<_, _>>())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_properties_are_refused_by_name() {
        let error = Kafka::brokers("b").property("enable.auto.commit", "true").consumer_config("g");
        let text = error.expect_err("reserved").to_string();
        assert!(text.contains("enable.auto.commit"), "{text}");
    }

    #[test]
    fn properties_override_the_defaults_by_either_name() {
        let kafka =
            Kafka::brokers("b").property("max.partition.fetch.bytes", "7").property("client.id", "mine");
        let config = kafka.consumer_config("g").expect("valid");
        assert_eq!(config.get("client.id"), Some("mine"));
        assert_eq!(config.get("fetch.message.max.bytes"), None);
        assert_eq!(config.get("auto.offset.reset"), Some("error"));
    }

    #[test]
    fn secrets_are_not_shown() {
        let kafka =
            Kafka::brokers("b").property("sasl.password", "canary-1").property("sasl.username", "erp");
        let shown = format!("{kafka:?}");
        assert!(!shown.contains("canary-1") && shown.contains("erp"), "{shown}");
    }
}

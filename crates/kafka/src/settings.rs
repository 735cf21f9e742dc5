//! How to reach a cluster, and the configuration of each client of it.

use std::collections::BTreeMap;
use std::fmt;

use oncebox_core::secret::{Secrets, is_secret_name};
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

use crate::error::Error;
use crate::properties::{
    CONSUMER_DEFAULTS, PRODUCER_DEFAULTS, PRODUCER_MUSTS, RefusedProperty, is_chosen, refused_property,
};
use crate::sink::KafkaSink;
use crate::source::KafkaSource;

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

    /// A sink that publishes events: to the topic that each event names.
    #[must_use]
    pub fn sink(&self) -> KafkaSink {
        KafkaSink::new(self.clone())
    }

    /// The first property that may not be set, as an error: for checking a configuration before it runs.
    pub fn validate(&self) -> Result<(), Error> {
        for (name, value) in &self.properties {
            if let Some(RefusedProperty { why, instead }) = refused_property(name, value) {
                let fix =
                    instead.map_or_else(|| "remove it".to_owned(), |setting| format!("use `{setting}`"));
                return Err(Error::ReservedProperty { name: name.clone(), why, fix });
            }
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
        self.fill_up(&mut config, &CONSUMER_DEFAULTS);
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

    /// For the sink.
    pub(crate) fn producer_config(&self) -> Result<ClientConfig, Error> {
        let mut config = self.client_config()?;
        self.fill_up(&mut config, &PRODUCER_DEFAULTS);
        for (name, value) in PRODUCER_MUSTS {
            config.set(name, value);
        }
        Ok(config)
    }

    /// Adds the defaults for which the user has not chosen another value.
    fn fill_up(&self, config: &mut ClientConfig, defaults: &[(&str, &str)]) {
        for (name, value) in defaults {
            if !is_chosen(name, |property| self.get(property).is_some()) {
                config.set(*name, *value);
            }
        }
    }
}

impl fmt::Debug for Kafka {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |(name, value): (&String, &String)| {
            (name.clone(), if is_secret_name(name) { "***".to_owned() } else { value.clone() })
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
    fn one_table_serves_source_and_sink() {
        let kafka = Kafka::brokers("b")
            .property("message.max.bytes", "20000000")
            .property("statistics.interval.ms", "1000")
            .property("queue.buffering.max.ms", "7");
        let consumer = kafka.consumer_config("g").expect("valid");
        assert_eq!(consumer.get("fetch.max.bytes"), None, "a fetch must hold the largest message");
        assert_eq!(consumer.get("statistics.interval.ms"), Some("1000"));
        let producer = kafka.producer_config().expect("valid");
        assert_eq!(producer.get("message.max.bytes"), Some("20000000"));
        assert_eq!(producer.get("statistics.interval.ms"), Some("0"));
        assert_eq!(producer.get("linger.ms"), None);
        assert_eq!(producer.get("message.timeout.ms"), Some("0"));
    }

    #[test]
    fn what_the_order_of_events_depends_on_is_refused() {
        for name in ["enable.idempotence", "acks", "transactional.id", "delivery.timeout.ms", "max.in.flight"]
        {
            let error = Kafka::brokers("b").property(name, "1").validate().expect_err("reserved");
            assert!(error.to_string().contains(name), "{error}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let kafka =
            Kafka::brokers("b").property("sasl.password", "canary-1").property("sasl.username", "erp");
        let shown = format!("{kafka:?}");
        assert!(!shown.contains("canary-1") && shown.contains("erp"), "{shown}");
    }
}

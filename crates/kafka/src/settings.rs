//! How to reach a cluster, and the configuration of each client of it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use oncebox_core::secret::{Secrets, is_secret_name};
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

use crate::error::Error;
use crate::oauth::{Keeper, Oidc, Tokens};
use crate::properties::{
    CONSUMER_DEFAULTS, PRODUCER_DEFAULTS, PRODUCER_MUSTS, RefusedProperty, is_chosen, refused_property,
};
use crate::sign_in;
use crate::sink::KafkaSink;
use crate::source::{Ahead, KafkaSource};
use crate::trust;

/// A Kafka cluster: its brokers and how to talk to them. Cheap enough to clone.
#[derive(Clone)]
pub struct Kafka {
    brokers: String,
    properties: BTreeMap<String, String>,
    /// All clients of a cluster sign in with the same token.
    keeper: Arc<OnceLock<Arc<Keeper>>>,
}

impl Kafka {
    /// The cluster behind these brokers: `host:port`, several with commas between them.
    pub fn brokers(brokers: impl Into<String>) -> Self {
        Self { brokers: brokers.into(), properties: BTreeMap::new(), keeper: Arc::default() }
    }

    /// Sets a librdkafka property, such as `security.protocol` or `sasl.password`. Those that oncebox must set itself, and those
    /// that librdkafka does not know, are refused by name when the client is built.
    #[must_use]
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.insert(name.into(), value.into());
        // It may be another one who signs in now.
        self.keeper = Arc::default();
        self
    }

    /// A source that reads these topics: names, or patterns that begin with `^`. A topic that is created later and fits a pattern
    /// is read within `topic.metadata.refresh.interval.ms`.
    pub fn source(&self, topics: impl IntoIterator<Item = impl Into<String>>) -> KafkaSource {
        KafkaSource::new(self.clone(), topics.into_iter().map(Into::into).collect())
    }

    /// A sink that publishes events: to the topic that each event names.
    #[must_use]
    pub fn sink(&self) -> KafkaSink {
        KafkaSink::new(self.clone())
    }

    /// The first property that may not be set, or is missing, as an error: for checking a configuration before it runs.
    pub fn validate(&self) -> Result<(), Error> {
        for (name, value) in &self.properties {
            if let Some(RefusedProperty { why, fix, .. }) = refused_property(name, value) {
                return Err(Error::Property { name: name.clone(), why, fix });
            }
        }
        match sign_in::incomplete(&self.properties) {
            Some((name, why, fix)) => Err(Error::Property { name: name.to_owned(), why, fix }),
            None => Ok(()),
        }
    }

    /// Makes a client and lets go of it: for finding out whether librdkafka takes the configuration, such as the files that it
    /// names. Nobody has to answer.
    pub fn try_out(&self) -> Result<(), Error> {
        self.admin(Duration::ZERO).map(drop)
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

    /// What a client signs in with, if it does so with tokens.
    pub(crate) fn tokens(&self) -> Tokens {
        let keeper = Oidc::of(&self.properties)
            .map(|oidc| Arc::clone(self.keeper.get_or_init(|| Arc::new(Keeper::start(oidc)))));
        Tokens::of(keeper)
    }

    /// For a client that only asks questions.
    pub(crate) fn client_config(&self) -> Result<ClientConfig, Error> {
        self.validate()?;
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.brokers);
        config.set("client.id", "oncebox");
        config.set("allow.auto.create.topics", "false");
        if let Some(location) = trust::location().filter(|_| self.wants_authorities()) {
            config.set("ssl.ca.location", location);
        }
        for (name, value) in self.properties.iter().filter(|(name, _)| !Oidc::is_ours(name)) {
            config.set(name, value);
        }
        // Without this the level follows the `log` crate, which is not where our logs go.
        let chatty = self.properties.contains_key("debug");
        config.set_log_level(if chatty { RDKafkaLogLevel::Debug } else { RDKafkaLogLevel::Info });
        Ok(config)
    }

    /// Whether certificates are checked, and the user has not said by whom.
    fn wants_authorities(&self) -> bool {
        let protocol = self.get("security.protocol").unwrap_or_default().to_ascii_lowercase();
        protocol.ends_with("ssl")
            && ["ssl.ca.location", "ssl.ca.pem"].iter().all(|name| self.get(name).is_none())
    }

    /// For a member of a group.
    pub(crate) fn consumer_config(&self, group: &str, ahead: Ahead) -> Result<ClientConfig, Error> {
        let mut config = self.client_config()?;
        self.fill_up(&mut config, &CONSUMER_DEFAULTS);
        self.fill_up(&mut config, &ahead.properties());
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
    fn fill_up(&self, config: &mut ClientConfig, defaults: &[(&str, impl AsRef<str>)]) {
        for (name, value) in defaults {
            if !is_chosen(name, |property| self.get(property).is_some()) {
                config.set(*name, value.as_ref());
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

    const AHEAD: Ahead = Ahead { bytes: 64 << 20, partitions: 6 };

    #[test]
    fn reserved_properties_are_refused_by_name() {
        let error = Kafka::brokers("b").property("enable.auto.commit", "true").consumer_config("g", AHEAD);
        let text = error.expect_err("reserved").to_string();
        assert!(text.contains("enable.auto.commit"), "{text}");
    }

    #[test]
    fn properties_override_the_defaults_by_either_name() {
        let kafka =
            Kafka::brokers("b").property("max.partition.fetch.bytes", "7").property("client.id", "mine");
        let config = kafka.consumer_config("g", AHEAD).expect("valid");
        assert_eq!(config.get("client.id"), Some("mine"));
        assert_eq!(config.get("fetch.message.max.bytes"), None);
        assert_eq!(config.get("queued.max.messages.kbytes"), Some("1024"));
        assert_eq!(config.get("auto.offset.reset"), Some("error"));
    }

    #[test]
    fn one_table_serves_source_and_sink() {
        let kafka = Kafka::brokers("b")
            .property("message.max.bytes", "20000000")
            .property("statistics.interval.ms", "1000")
            .property("queue.buffering.max.ms", "7");
        let consumer = kafka.consumer_config("g", AHEAD).expect("valid");
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
    fn the_authorities_of_this_machine_are_trusted_unless_others_are_named() {
        let location = |properties: &[(&str, &str)]| {
            let kafka = properties
                .iter()
                .fold(Kafka::brokers("b"), |kafka, (name, value)| kafka.property(*name, *value));
            kafka.client_config().expect("valid").get("ssl.ca.location").map(str::to_owned)
        };
        let tls = ("security.protocol", "SSL");
        assert_eq!(location(&[]), None);
        assert_eq!(location(&[tls]), trust::location());
        assert_eq!(location(&[tls, ("ssl.ca.location", "/mine")]).as_deref(), Some("/mine"));
        assert_eq!(location(&[tls, ("ssl.ca.pem", "mine")]), None);
    }

    #[test]
    fn what_librdkafka_does_not_know_is_refused_by_name() {
        for (name, value) in
            [("sasl.usernam", "erp"), ("security.protocol", "tls"), ("socket.timeout.ms", "soon")]
        {
            let error = Kafka::brokers("b").property(name, value).validate().expect_err("wrong");
            assert!(error.is_configuration() && error.to_string().contains(name), "{error}");
        }
        let error =
            Kafka::brokers("b").property("ssl.key.password\0", "canary").validate().expect_err("wrong");
        assert!(!error.to_string().contains("canary"), "{error}");
    }

    #[test]
    fn librdkafka_does_not_hear_of_the_token_endpoint() {
        let kafka = [
            ("security.protocol", "SASL_PLAINTEXT"),
            ("sasl.mechanism", "OAUTHBEARER"),
            ("sasl.oauthbearer.method", "oidc"),
            ("sasl.oauthbearer.client.id", "erp"),
            ("sasl.oauthbearer.client.secret", "canary"),
            ("sasl.oauthbearer.token.endpoint.url", "http://127.0.0.1:1/token"),
            ("https.ca.location", "/mine"),
        ]
        .into_iter()
        .fold(Kafka::brokers("b"), |kafka, (name, value)| kafka.property(name, value));
        let config = kafka.consumer_config("g", AHEAD).expect("valid");
        assert_eq!(config.get("sasl.mechanism"), Some("OAUTHBEARER"));
        assert!(config.create_native_config().is_ok(), "librdkafka takes what is left");
    }

    #[test]
    fn secrets_are_not_shown() {
        let kafka =
            Kafka::brokers("b").property("sasl.password", "canary-1").property("sasl.username", "erp");
        let shown = format!("{kafka:?}");
        assert!(!shown.contains("canary-1") && shown.contains("erp"), "{shown}");
    }
}

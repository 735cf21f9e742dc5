//! The Kafka clients of the configuration.

use std::collections::BTreeMap;

use oncebox_config::{Config, KafkaInbox, OutboxConfig, cluster_heading};
use oncebox_core::names::ConsumerName;
use oncebox_kafka::Kafka;

use crate::exit::Failure;

/// A way to a cluster: its name, if it has one, and the properties of an inbox over its own. Whoever goes the same way can
/// share a client, and what it signs in with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Way<'a> {
    cluster: Option<&'a str>,
    over: Option<&'a BTreeMap<String, String>>,
}

impl<'a> Way<'a> {
    /// To a cluster as it stands in the file.
    pub(crate) fn to(cluster: Option<&'a str>) -> Self {
        Self { cluster, over: None }
    }

    /// The way of an inbox.
    pub(crate) fn of(read: &'a KafkaInbox) -> Self {
        Self { cluster: read.cluster.as_deref(), over: Some(&read.properties).filter(|own| !own.is_empty()) }
    }

    /// The way of the relay.
    pub(crate) fn of_relay(outbox: &'a OutboxConfig) -> Self {
        Self::to(outbox.cluster.as_deref())
    }

    /// The way of a consumer. One that has no inbox here may have had one that read from `[kafka]`.
    pub(crate) fn of_consumer(config: &'a Config, consumer: &str) -> Self {
        let inbox = config.inboxes.iter().find(|inbox| inbox.consumer.as_str() == consumer);
        inbox.and_then(|inbox| inbox.source.kafka()).map_or(Self::to(None), Way::of)
    }

    /// Whether it is a cluster as it stands in the file.
    pub(crate) fn is_plain(self) -> bool {
        self.over.is_none()
    }

    /// Whether the configuration has the cluster.
    pub(crate) fn leads_somewhere(self, config: &Config) -> bool {
        config.kafka.get(self.cluster).is_some()
    }

    /// The client.
    pub(crate) fn kafka(self, config: &Config) -> Result<Kafka, Failure> {
        let missing = || Failure::config(format!("{} is missing", self.heading()));
        let cluster = config.kafka.get(self.cluster).ok_or_else(missing)?;
        let properties = cluster.properties.iter().chain(self.over.into_iter().flatten());
        let kafka = Kafka::brokers(cluster.brokers.as_str());
        Ok(properties.fold(kafka, |kafka, (name, value)| kafka.property(name, value)))
    }

    /// As it stands in the file.
    pub(crate) fn heading(self) -> String {
        cluster_heading(self.cluster)
    }

    /// For people: the cluster, and whose way it is if only one inbox goes it.
    pub(crate) fn name(self, consumer: Option<&ConsumerName>) -> String {
        let cluster = self.cluster.map_or_else(|| "kafka".to_owned(), |name| format!("kafka {name}"));
        match consumer.filter(|_| self.over.is_some()) {
            Some(consumer) => format!("{cluster} as {consumer}"),
            None => cluster,
        }
    }
}

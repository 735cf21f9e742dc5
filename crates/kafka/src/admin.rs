//! Questions about a cluster, for `oncebox check` and `oncebox status`. Nothing here joins a group or changes anything.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, ConfigResource, ResourceSpecifier};
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaRespErr;

use crate::callbacks::log;
use crate::error::Error;
use crate::secrets::Secrets;
use crate::settings::Kafka;

/// A cluster that can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// Its brokers as `host:port`.
    pub brokers: Vec<String>,
}

/// A topic and the settings that matter for an inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicSettings {
    /// How long messages are kept; `None` is for ever.
    pub retention: Option<Duration>,
    /// `delete`, `compact` or both with a comma.
    pub cleanup_policy: String,
    /// `CreateTime` or `LogAppendTime`.
    pub timestamp_type: String,
}

/// One partition and how far a group has come in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionLag {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The oldest offset that the broker still has.
    pub low: i64,
    /// One past the newest offset.
    pub high: i64,
    /// What the group has committed, if it has.
    pub committed: Option<i64>,
}

impl PartitionLag {
    /// How many offsets are behind `next`: the position in the database, or the committed offset.
    #[must_use]
    pub fn behind(&self, next: i64) -> i64 {
        (self.high - next.max(self.low)).max(0)
    }
}

/// Asks a cluster. Cheap to clone.
#[derive(Clone)]
pub struct Admin {
    kafka: Kafka,
    client: Arc<BaseConsumer<Quiet>>,
    timeout: Duration,
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").field("kafka", &self.kafka).finish_non_exhaustive()
    }
}

impl Kafka {
    /// A client that asks the cluster, and gives up on each question after `timeout`.
    pub fn admin(&self, timeout: Duration) -> Result<Admin, Error> {
        let secrets = self.secrets();
        let client = self
            .client_config()?
            .create_with_context(Quiet(secrets.clone()))
            .map_err(|e| Error::configuration(&e, &secrets))?;
        Ok(Admin { kafka: self.clone(), client: Arc::new(client), timeout })
    }
}

impl Admin {
    /// The brokers, if one of them answers.
    pub async fn cluster(&self) -> Result<Cluster, Error> {
        self.blocking(|admin| {
            let found = admin.client.fetch_metadata(None, admin.timeout);
            let found = found.map_err(|e| Error::request(admin.unreachable(), &e))?;
            let brokers = found.brokers().iter().map(|b| format!("{}:{}", b.host(), b.port())).collect();
            Ok(Cluster { brokers })
        })
        .await
    }

    /// How many partitions the topic has; `None` if there is no such topic.
    pub async fn partitions(&self, topic: &str) -> Result<Option<usize>, Error> {
        let topic = topic.to_owned();
        self.blocking(move |admin| admin.partition_numbers(&topic).map(|found| found.map(|all| all.len())))
            .await
    }

    /// How long the topic keeps messages, and how.
    pub async fn topic_settings(&self, topic: &str) -> Result<TopicSettings, Error> {
        let what = || format!("the settings of topic {topic}");
        let admin: AdminClient<Quiet> = self
            .kafka
            .client_config()?
            .create_with_context(Quiet(self.kafka.secrets()))
            .map_err(|e| Error::configuration(&e, &self.kafka.secrets()))?;
        let options = AdminOptions::new().request_timeout(Some(self.timeout));
        let answers = admin.describe_configs([&ResourceSpecifier::Topic(topic)], &options).await;
        let answer = answers.map_err(|e| Error::request(what(), &e))?.into_iter().next();
        let resource = answer
            .unwrap_or(Err(RDKafkaErrorCode::UnknownTopic))
            .map_err(|code| Error::request(what(), &KafkaError::AdminOp(code)))?;
        // The binding drops the error of a single topic: what is left is an answer without any setting.
        if resource.get("retention.ms").is_none() {
            return Err(Error::request(what(), &KafkaError::AdminOp(RDKafkaErrorCode::UnknownTopic)));
        }
        Ok(settings_of(&resource))
    }

    /// How far a group has come in these topics, partition by partition. A topic that does not exist is an error.
    pub async fn lag(&self, group: &str, topics: &[String]) -> Result<Vec<PartitionLag>, Error> {
        let (group, topics) = (group.to_owned(), topics.to_owned());
        self.blocking(move |admin| admin.lag_of(&group, &topics)).await
    }

    fn lag_of(&self, group: &str, topics: &[String]) -> Result<Vec<PartitionLag>, Error> {
        let mut list = TopicPartitionList::new();
        for topic in topics {
            let missing =
                || Error::Request { what: format!("topic {topic}"), reason: "there is no such topic".into() };
            for partition in self.partition_numbers(topic)?.ok_or_else(missing)? {
                list.add_partition(topic, partition);
            }
        }
        let committed = self.committed(group, list)?;
        let lag_of = |((topic, partition), offset): ((String, i32), Offset)| {
            let watermarks = self.client.fetch_watermarks(&topic, partition, self.timeout);
            let (low, high) =
                watermarks.map_err(|e| Error::request(format!("the ends of {topic}/{partition}"), &e))?;
            let committed = if let Offset::Offset(offset) = offset { Some(offset) } else { None };
            Ok(PartitionLag { topic, partition, low, high, committed })
        };
        committed.into_iter().map(lag_of).collect()
    }

    /// Asking what a group has committed takes a client that names the group; it does not join.
    fn committed(
        &self,
        group: &str,
        list: TopicPartitionList,
    ) -> Result<BTreeMap<(String, i32), Offset>, Error> {
        let secrets = self.kafka.secrets();
        let client: BaseConsumer<Quiet> = self
            .kafka
            .client_config()?
            .set("group.id", group)
            .create_with_context(Quiet(secrets.clone()))
            .map_err(|e| Error::configuration(&e, &secrets))?;
        let found = client.committed_offsets(list, self.timeout);
        let found =
            found.map_err(|e| Error::request(format!("the committed offsets of group {group}"), &e))?;
        Ok(found.to_topic_map().into_iter().collect())
    }

    fn partition_numbers(&self, topic: &str) -> Result<Option<Vec<i32>>, Error> {
        let found = self.client.fetch_metadata(Some(topic), self.timeout);
        let found = found.map_err(|e| Error::request(self.unreachable(), &e))?;
        let Some(found) = found.topics().iter().find(|t| t.name() == topic) else { return Ok(None) };
        match found.error() {
            None => {
                Ok(Some(found.partitions().iter().map(rdkafka::metadata::MetadataPartition::id).collect()))
            }
            Some(RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART) => Ok(None),
            Some(other) => Err(Error::request(
                format!("topic {topic}"),
                &KafkaError::MetadataFetch(RDKafkaErrorCode::from(other)),
            )),
        }
    }

    fn unreachable(&self) -> String {
        format!("no broker of {} answers", self.kafka.broker_list())
    }

    /// librdkafka's calls block: off the runtime with them.
    async fn blocking<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Self) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let admin = self.clone();
        let answer = tokio::task::spawn_blocking(move || ask(&admin)).await;
        answer.unwrap_or_else(|panic| Err(Error::Fatal(panic.to_string())))
    }
}

/// `-1` stands for ever.
fn settings_of(resource: &ConfigResource) -> TopicSettings {
    let value = |name: &str| resource.get(name).and_then(|entry| entry.value.clone()).unwrap_or_default();
    TopicSettings {
        retention: value("retention.ms").parse().ok().map(Duration::from_millis),
        cleanup_policy: value("cleanup.policy"),
        timestamp_type: value("message.timestamp.type"),
    }
}

/// Whose errors are returned, not logged.
struct Quiet(Secrets);

impl ClientContext for Quiet {
    fn log(&self, _level: RDKafkaLogLevel, facility: &str, text: &str) {
        log(&self.0, RDKafkaLogLevel::Debug, facility, text);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        log(&self.0, RDKafkaLogLevel::Debug, &error.to_string(), reason);
    }
}

impl ConsumerContext for Quiet {}

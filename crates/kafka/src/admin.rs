//! Questions about a cluster, for `oncebox check`, `oncebox status` and `oncebox position`. Nothing here joins a group or changes anything.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use oncebox_core::source::LogId;
use rdkafka::admin::{AdminClient, AdminOptions, ConfigResource, ResourceSpecifier};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaRespErr;

use crate::error::Error;
use crate::log_ids::log_ids;
use crate::quiet::Quiet;
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

/// Where the log of a partition begins and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watermarks {
    /// The partition.
    pub partition: i32,
    /// The oldest offset that the broker still has.
    pub low: i64,
    /// One past the newest offset that can be read: messages of transactions that are still open lie behind it.
    pub high: i64,
}

/// Asks a cluster. Cheap to clone.
#[derive(Clone)]
pub struct Admin {
    kafka: Kafka,
    client: Arc<BaseConsumer<Quiet>>,
    /// Made when it is needed: only the settings of topics are asked for with it, and it has a thread of its own.
    settings_client: Arc<OnceLock<AdminClient<Quiet>>>,
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
        Ok(Admin { kafka: self.clone(), client: Arc::new(client), settings_client: Arc::default(), timeout })
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
        let admin = self.settings_client()?;
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

    fn settings_client(&self) -> Result<&AdminClient<Quiet>, Error> {
        if let Some(client) = self.settings_client.get() {
            return Ok(client);
        }
        let secrets = self.kafka.secrets();
        let client = self.kafka.client_config()?.create_with_context(Quiet(secrets.clone()));
        let client = client.map_err(|e| Error::configuration(&e, &secrets))?;
        Ok(self.settings_client.get_or_init(|| client))
    }

    /// Which log stands behind each of these topics now: what a position belongs to. A topic that does not exist is left
    /// out; `None` stands for brokers that are too old to tell.
    pub async fn log_ids(&self, topics: &[String]) -> Result<BTreeMap<String, Option<LogId>>, Error> {
        let topics = topics.to_owned();
        self.blocking(move |admin| {
            let names: Vec<&str> = topics.iter().map(String::as_str).collect();
            let found = log_ids(admin.client.client(), &names, admin.timeout);
            let found = found.map_err(|e| Error::request("the ids of the topics", &e))?;
            let missing = Some(RDKafkaErrorCode::UnknownTopicOrPartition);
            let there = found
                .into_iter()
                .filter(|(_, log)| !matches!(log, Err(e) if e.rdkafka_error_code() == missing));
            there
                .map(|(topic, log)| {
                    let log = log.map_err(|e| Error::request(format!("the id of topic {topic}"), &e))?;
                    Ok((topic, log))
                })
                .collect()
        })
        .await
    }

    /// Where the logs of all partitions of a topic begin and end, ascending; `None` if there is no such topic.
    pub async fn watermarks(&self, topic: &str) -> Result<Option<Vec<Watermarks>>, Error> {
        let topic = topic.to_owned();
        self.blocking(move |admin| {
            let Some(mut partitions) = admin.partition_numbers(&topic)? else { return Ok(None) };
            partitions.sort_unstable();
            partitions
                .into_iter()
                .map(|partition| admin.watermarks_of(&topic, partition))
                .collect::<Result<_, _>>()
                .map(Some)
        })
        .await
    }

    fn watermarks_of(&self, topic: &str, partition: i32) -> Result<Watermarks, Error> {
        let found = self.client.fetch_watermarks(topic, partition, self.timeout);
        let (low, high) =
            found.map_err(|e| Error::request(format!("the ends of {topic}/{partition}"), &e))?;
        Ok(Watermarks { partition, low, high })
    }

    /// The first offset of each of these partitions whose timestamp is at or after this time, in milliseconds since 1970;
    /// `None` where all messages are older.
    pub async fn offsets_for_time(
        &self,
        topic: &str,
        partitions: &[i32],
        ms: i64,
    ) -> Result<BTreeMap<i32, Option<i64>>, Error> {
        if partitions.is_empty() {
            return Ok(BTreeMap::new());
        }
        let (topic, partitions) = (topic.to_owned(), partitions.to_owned());
        self.blocking(move |admin| {
            let failed =
                |e: KafkaError| Error::request(format!("the offsets of topic {topic} at a time"), &e);
            let mut list = TopicPartitionList::with_capacity(partitions.len());
            for partition in partitions {
                // Negative times have meanings of their own.
                let time = Offset::Offset(ms.max(0));
                list.add_partition_offset(&topic, partition, time).map_err(failed)?;
            }
            let found = admin.client.offsets_for_times(list, admin.timeout).map_err(failed)?;
            let offset = |offset| if let Offset::Offset(offset) = offset { Some(offset) } else { None };
            let elements = found.elements();
            let offsets = elements.iter().map(|e| e.error().map(|()| (e.partition(), offset(e.offset()))));
            offsets.collect::<Result<_, _>>().map_err(failed)
        })
        .await
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
            let Watermarks { low, high, .. } = self.watermarks_of(&topic, partition)?;
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

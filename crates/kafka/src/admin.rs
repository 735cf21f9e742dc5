//! Questions about a cluster, for `oncebox check`, `oncebox status` and `oncebox position`. Nothing here joins a group or changes anything.

mod group;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use oncebox_core::source::LogId;
use oncebox_kafka_ffi::TopicPattern;
use rdkafka::admin::{AdminClient, AdminOptions, ConfigResource, ResourceSpecifier};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::{Metadata, MetadataTopic};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaRespErr;

pub use group::{Group, Member};

use crate::ends::{Committed, End, Offsets, Place, by_leader, committed, ends};
use crate::error::Error;
use crate::hints::is_refusal;
use crate::log_ids::log_ids;
use crate::quiet::Quiet;
use crate::settings::Kafka;

/// How long librdkafka is asked before it is listened to.
const TURN: Duration = Duration::from_millis(500);
/// The most events that are served between two turns.
const MAX_EVENTS: usize = 100;

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

/// Asks a cluster. Cheap to clone, not cheap to make: it has connections and threads of its own.
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
        let client = self
            .client_config()?
            .create_with_context(Quiet::of(self))
            .map_err(|e| Error::configuration(&e, &self.secrets()))?;
        Ok(Admin { kafka: self.clone(), client: Arc::new(client), settings_client: Arc::default(), timeout })
    }
}

impl Admin {
    /// The brokers, if one of them answers.
    pub async fn cluster(&self) -> Result<Cluster, Error> {
        self.blocking(|admin| {
            let found = admin.metadata(None)?;
            let brokers = found.brokers().iter().map(|b| format!("{}:{}", b.host(), b.port())).collect();
            Ok(Cluster { brokers })
        })
        .await
    }

    /// The topics whose names match, in the order of their names.
    pub async fn matching(&self, pattern: TopicPattern) -> Result<Vec<String>, Error> {
        self.blocking(move |admin| {
            let found = admin.metadata(None)?;
            let names = found.topics().iter().map(MetadataTopic::name);
            let mut names: Vec<String> =
                names.filter(|name| pattern.matches(name)).map(str::to_owned).collect();
            names.sort_unstable();
            Ok(names)
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
        // The first question of this client; it has no other way to sign in.
        self.blocking(|admin| {
            let client = admin.settings_client()?.inner();
            client.context().tokens.wait_and_hand_to(client, admin.timeout)
        })
        .await?;
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

    /// Drops it on a thread of its own: librdkafka waits for its threads and connections, which a thread of the runtime should
    /// not.
    pub fn close(self) {
        // Without a thread it is dropped here.
        std::thread::Builder::new().name("kafka-close".into()).spawn(move || drop(self)).ok();
    }

    fn settings_client(&self) -> Result<&AdminClient<Quiet>, Error> {
        if let Some(client) = self.settings_client.get() {
            return Ok(client);
        }
        let client = self.kafka.client_config()?.create_with_context(Quiet::of(&self.kafka));
        let client = client.map_err(|e| Error::configuration(&e, &self.kafka.secrets()))?;
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
            let name: Arc<str> = topic.into();
            let places: Vec<Place> =
                partitions.into_iter().map(|partition| (Arc::clone(&name), partition)).collect();
            admin.watermarks_of(&places).map(Some)
        })
        .await
    }

    /// In the order of the places. All of them are asked for at once.
    fn watermarks_of(&self, places: &[Place]) -> Result<Vec<Watermarks>, Error> {
        let failed = |e: &KafkaError| Error::request("the ends of the partitions", e);
        // librdkafka would wait for a leader in vain, and not say whose.
        let all: Vec<&Place> = places.iter().collect();
        let led =
            by_leader(&self.client, all.clone(), |place| *place, self.timeout).map_err(|e| failed(&e))?;
        if let Some(((topic, partition), e)) = led.not_led.first() {
            return Err(Error::request(format!("the leader of {topic}/{partition}"), e));
        }
        let ask = |end| ends(&self.client, &all, end, self.timeout).map_err(|e| failed(&e));
        let (lows, highs) = (ask(End::Oldest)?, ask(End::Newest)?);
        let unanswered = || Err(KafkaError::OffsetFetch(RDKafkaErrorCode::UnknownPartition));
        let of = |offsets: &Offsets, place: &Place| {
            let offset = offsets.get(place).cloned().unwrap_or_else(unanswered);
            offset.map_err(|e| Error::request(format!("the ends of {}/{}", place.0, place.1), &e))
        };
        let watermarks = |place: &Place| {
            Ok(Watermarks { partition: place.1, low: of(&lows, place)?, high: of(&highs, place)? })
        };
        places.iter().map(watermarks).collect()
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
        let mut places: Vec<Place> = Vec::new();
        for topic in topics {
            let missing =
                || Error::Request { what: format!("topic {topic}"), reason: "there is no such topic".into() };
            let name: Arc<str> = topic.as_str().into();
            let partitions = self.partition_numbers(topic)?.ok_or_else(missing)?;
            places.extend(partitions.into_iter().map(|partition| (Arc::clone(&name), partition)));
        }
        places.sort_unstable();
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let mut committed = self.committed(group, &places)?;
        let watermarks = self.watermarks_of(&places)?;
        let lags = places.into_iter().zip(watermarks).map(|(place, Watermarks { low, high, .. })| {
            let committed =
                committed.remove(&place).and_then(Result::ok).flatten().map(|commit| commit.offset);
            PartitionLag { topic: place.0.to_string(), partition: place.1, low, high, committed }
        });
        Ok(lags.collect())
    }

    /// Asking what a group has committed takes a client that names the group; it does not join.
    fn committed(&self, group: &str, places: &[Place]) -> Result<Committed, Error> {
        let client: BaseConsumer<Quiet> = self
            .kafka
            .client_config()?
            .set("group.id", group)
            // It never joins, so it is not the member of this name.
            .remove("group.instance.id")
            .create_with_context(Quiet::of(&self.kafka))
            .map_err(|e| Error::configuration(&e, &self.kafka.secrets()))?;
        client.context().tokens.wait_and_hand_to(client.client(), self.timeout)?;
        let places: Vec<&Place> = places.iter().collect();
        committed(&client, &places, self.timeout)
            .map_err(|e| Error::request(format!("the committed offsets of group {group}"), &e))
    }

    fn partition_numbers(&self, topic: &str) -> Result<Option<Vec<i32>>, Error> {
        let found = self.metadata(Some(topic))?;
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

    /// Asked in short turns. In between librdkafka may say what is wrong; a broker that does not let us in is not waited for.
    fn metadata(&self, topic: Option<&str>) -> Result<Metadata, Error> {
        let deadline = Instant::now() + self.timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let error = match self.client.fetch_metadata(topic, left.min(TURN)) {
                Ok(found) => return Ok(found),
                Err(error) => error,
            };
            for _ in 0..MAX_EVENTS {
                self.client.poll(Duration::ZERO);
            }
            let trouble = self.client.context().trouble();
            let refused = trouble.as_ref().is_some_and(|(code, _)| is_refusal(*code));
            if refused || Instant::now() >= deadline {
                let what = format!("no broker of {} answers", self.kafka.broker_list());
                let reason = trouble.map_or_else(|| error.to_string(), |(_, reason)| reason);
                return Err(Error::Request { what, reason });
            }
        }
    }

    /// librdkafka's calls block: off the runtime with them.
    async fn blocking<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Self) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let admin = self.clone();
        let answer = tokio::task::spawn_blocking(move || {
            admin.client.context().tokens.wait_and_hand_to(admin.client.client(), admin.timeout)?;
            ask(&admin)
        })
        .await;
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

//! The demo's Kafka: in this process, or the user's own.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;

use super::{CONSUMER, PROCESSES};
use crate::exit::{Exit, Failure};
use crate::output;

const PARTITIONS: i32 = 4;
/// How long the broker may take for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A broker with the demo's topics in it.
pub(crate) struct Broker {
    pub(crate) servers: String,
    topics: Vec<String>,
    /// The broker in this process.
    inside: Option<MockCluster<'static, DefaultProducerContext>>,
}

/// What a consumer process reads, as a member of which group.
pub(crate) struct Subscription<'a> {
    pub(crate) topic: &'a str,
    pub(crate) group: String,
}

impl Broker {
    /// A broker in this process, unless one is given.
    pub(crate) fn new(given: Option<&str>) -> Result<Self, Failure> {
        let name = format!("oncebox-demo-{}", uuid::Uuid::now_v7().simple());
        Ok(match given {
            Some(servers) => Self { servers: servers.to_owned(), topics: vec![name], inside: None },
            None => {
                let inside = MockCluster::new(1).map_err(|e| unusable(&e))?;
                let topics = (0..PROCESSES).map(|nth| format!("{name}-{nth}")).collect();
                Self { servers: inside.bootstrap_servers(), topics, inside: Some(inside) }
            }
        })
    }

    pub(crate) async fn create_topics(&self) -> Result<(), Failure> {
        if let Some(inside) = &self.inside {
            let mut topics = self.topics.iter();
            return topics
                .try_for_each(|topic| inside.create_topic(topic, PARTITIONS, 1).map_err(|e| unusable(&e)));
        }
        let new: Vec<NewTopic<'_>> = self
            .topics
            .iter()
            .map(|topic| NewTopic::new(topic, PARTITIONS, TopicReplication::Fixed(1)))
            .collect();
        let options =
            AdminOptions::new().operation_timeout(Some(ANSWER_TIMEOUT)).request_timeout(Some(ANSWER_TIMEOUT));
        let admin = admin(&self.servers).map_err(|e| unusable(&e))?;
        let created = admin.create_topics(&new, &options).await.map_err(|e| unusable(&e))?;
        match created.into_iter().find_map(Result::err) {
            Some((topic, code)) => Err(unusable(&format!("creating topic {topic}: {code}"))),
            None => Ok(()),
        }
    }

    pub(crate) fn describe(&self) -> String {
        match self.inside {
            Some(_) => "a broker in this process".to_owned(),
            None => format!("Kafka at {}", self.servers),
        }
    }

    /// What the nth process reads in its nth life.
    ///
    /// With a real Kafka all processes are one group, and a kill is a rebalance. The in-process broker knows too little of
    /// groups for that: it waits for dead members and lets them lead. There each process has a topic of its own, and each life
    /// a new group; where to go on is in the database anyway.
    pub(crate) fn subscription(&self, process: usize, life: u32) -> Subscription<'_> {
        match self.inside {
            Some(_) => Subscription {
                topic: &self.topics[process % self.topics.len()],
                group: format!("{CONSUMER}-{process}-{life}"),
            },
            None => Subscription { topic: &self.topics[0], group: CONSUMER.to_owned() },
        }
    }

    /// The topic for each article: one article is always on the same one, so its order holds.
    pub(crate) fn topics(&self) -> Vec<String> {
        self.topics.clone()
    }

    /// How many produced messages may wait unread. The in-process broker keeps only about 5 MB a partition and drops the
    /// oldest without a word, so the producer must not run far ahead.
    pub(crate) fn most_unread(&self) -> i64 {
        if self.inside.is_some() { 8_000 } else { 200_000 }
    }

    /// Removes the topic and the group from the user's own Kafka.
    pub(crate) async fn remove_topics(&self) {
        if self.inside.is_some() {
            return;
        }
        let topics: Vec<&str> = self.topics.iter().map(String::as_str).collect();
        let options =
            AdminOptions::new().operation_timeout(Some(ANSWER_TIMEOUT)).request_timeout(Some(ANSWER_TIMEOUT));
        let removed = async {
            let admin = admin(&self.servers).map_err(|e| e.to_string())?;
            // A group that never was, or whose killed members are not missed yet, holds nothing but offsets of the topic.
            admin.delete_groups(&[CONSUMER], &options).await.ok();
            match admin.delete_topics(&topics, &options).await.map_err(|e| e.to_string())?.pop() {
                Some(Err((_, RDKafkaErrorCode::UnknownTopicOrPartition))) | Some(Ok(_)) | None => Ok(()),
                Some(Err((_, code))) => Err(code.to_string()),
            }
        };
        if let Err(error) = removed.await {
            output::note(&format!("the topic {} could not be removed: {error}", topics.join(", ")));
        }
    }
}

fn unusable(reason: &dyn std::fmt::Display) -> Failure {
    Failure { exit: Exit::Unreachable, text: format!("the broker cannot be used: {reason}") }
}

fn admin(servers: &str) -> rdkafka::error::KafkaResult<AdminClient<DefaultClientContext>> {
    ClientConfig::new().set("bootstrap.servers", servers).create()
}

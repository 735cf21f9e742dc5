//! Messages that travel through Kafka: one in this process, or the user's own.

use std::thread;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer as _, ThreadedProducer};

use super::courier::Sections;
use super::producer::{Carrier, Order};
use super::{CONSUMER, PROCESSES};
use crate::exit::{Exit, Failure};
use crate::output;

const PARTITIONS: i32 = 4;
/// How long the broker may take for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A broker with the demo's topics in it.
pub(crate) struct Broker {
    servers: String,
    topics: Vec<String>,
    /// The broker in this process.
    inside: Option<MockCluster<'static, DefaultProducerContext>>,
}

/// What a consumer process reads, as a member of which group.
struct Subscription<'a> {
    topic: &'a str,
    group: String,
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
    fn subscription(&self, process: usize, life: u32) -> Subscription<'_> {
        match self.inside {
            Some(_) => Subscription {
                topic: &self.topics[process % self.topics.len()],
                group: format!("{CONSUMER}-{process}-{life}"),
            },
            None => Subscription { topic: &self.topics[0], group: CONSUMER.to_owned() },
        }
    }

    /// The part of a consumer's configuration that says where it reads from.
    pub(crate) fn sections(&self, process: usize, life: u32) -> Sections {
        let Subscription { topic, group } = self.subscription(process, life);
        let servers = &self.servers;
        Sections {
            broker: format!(
                r#"[kafka]
brokers = "{servers}"
[kafka.properties]
"session.timeout.ms" = "6000"
"heartbeat.interval.ms" = "500"
"#
            ),
            inbox: format!("group = \"{group}\"\ntopics = [\"{topic}\"]\nid = \"header:event_id\""),
        }
    }

    pub(crate) fn carrier(&self) -> Result<impl Carrier + use<>, Failure> {
        let producer = ClientConfig::new()
            .set("bootstrap.servers", &self.servers)
            .set("enable.idempotence", "true")
            .set("linger.ms", "5")
            .create()
            .map_err(|e| unusable(&e))?;
        // The in-process broker keeps only about 5 MB a partition and drops the oldest without a word, so the producer must
        // not run far ahead.
        let most_unread = if self.inside.is_some() { 8_000 } else { 200_000 };
        Ok(ToTopics { producer, topics: self.topics.clone(), most_unread })
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

/// One article is always on the same topic, so its order holds.
struct ToTopics {
    producer: ThreadedProducer<DefaultProducerContext>,
    topics: Vec<String>,
    most_unread: i64,
}

impl Carrier for ToTopics {
    fn carry(&mut self, order: &Order) -> Result<(), String> {
        let topic = &self.topics[order.sku() as usize % self.topics.len()];
        let (key, id, payload) = (order.key(), order.id(), order.payload());
        let mut record = BaseRecord::to(topic)
            .key(&key)
            .payload(&payload)
            .headers(OwnedHeaders::new().insert(Header { key: "event_id", value: Some(id) }));
        while let Err((error, same)) = self.producer.send(record) {
            if error != KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) {
                return Err(error.to_string());
            }
            record = same;
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), String> {
        self.producer.flush(Duration::from_secs(60)).map_err(|e| e.to_string())
    }

    fn most_unread(&self) -> i64 {
        self.most_unread
    }
}

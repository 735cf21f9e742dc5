//! The demo's Kafka: in this process, or the user's own.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;

use super::{CONSUMER, PROCESSES};
use crate::exit::{Exit, Failure};

const PARTITIONS: i32 = 4;

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
    pub(crate) async fn open(given: Option<&str>) -> Result<Self, Failure> {
        let name = format!("oncebox-demo-{}", uuid::Uuid::now_v7().simple());
        let failed = |e: &dyn std::fmt::Display| Failure {
            exit: Exit::Unreachable,
            text: format!("the broker cannot be used: {e}"),
        };
        let Some(servers) = given else {
            let mock = MockCluster::new(1).map_err(|e| failed(&e))?;
            let topics: Vec<String> = (0..PROCESSES).map(|nth| format!("{name}-{nth}")).collect();
            for topic in &topics {
                mock.create_topic(topic, PARTITIONS, 1).map_err(|e| failed(&e))?;
            }
            return Ok(Self { servers: mock.bootstrap_servers(), topics, inside: Some(mock) });
        };
        let new = NewTopic::new(&name, PARTITIONS, TopicReplication::Fixed(1));
        let options = AdminOptions::new().operation_timeout(Some(Duration::from_secs(30)));
        let created = admin(servers)
            .map_err(|e| failed(&e))?
            .create_topics([&new], &options)
            .await
            .map_err(|e| failed(&e))?;
        if let Some(Err((topic, code))) = created.into_iter().next() {
            return Err(failed(&format!("creating topic {topic}: {code}")));
        }
        Ok(Self { servers: servers.to_owned(), topics: vec![name], inside: None })
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

    /// Removes the topic from the user's own Kafka.
    pub(crate) async fn close(self) {
        if self.inside.is_some() {
            return;
        }
        let topics: Vec<&str> = self.topics.iter().map(String::as_str).collect();
        if let Ok(admin) = admin(&self.servers)
            && let Err(error) = admin.delete_topics(&topics, &AdminOptions::new()).await
        {
            eprintln!("the topic {} could not be removed: {error}", topics.join(", "));
        }
    }
}

fn admin(servers: &str) -> rdkafka::error::KafkaResult<AdminClient<DefaultClientContext>> {
    ClientConfig::new().set("bootstrap.servers", servers).create()
}

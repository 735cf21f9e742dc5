//! The demo's Kafka: in this process, or the user's own.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;

use crate::exit::{Exit, Failure};

const PARTITIONS: i32 = 4;

/// A broker with the demo's topic in it.
pub(crate) struct Broker {
    pub(crate) servers: String,
    pub(crate) topic: String,
    /// Keeps the in-process broker alive.
    mock: Option<MockCluster<'static, DefaultProducerContext>>,
}

impl Broker {
    pub(crate) async fn open(given: Option<&str>) -> Result<Self, Failure> {
        let topic = format!("oncebox-demo-{}", uuid::Uuid::now_v7().simple());
        let failed = |e: &dyn std::fmt::Display| Failure {
            exit: Exit::Unreachable,
            text: format!("the broker cannot be used: {e}"),
        };
        match given {
            None => {
                let mock = MockCluster::new(1).map_err(|e| failed(&e))?;
                mock.create_topic(&topic, PARTITIONS, 1).map_err(|e| failed(&e))?;
                Ok(Self { servers: mock.bootstrap_servers(), topic, mock: Some(mock) })
            }
            Some(servers) => {
                let new = NewTopic::new(&topic, PARTITIONS, TopicReplication::Fixed(1));
                let created = admin(servers)
                    .map_err(|e| failed(&e))?
                    .create_topics(
                        [&new],
                        &AdminOptions::new().operation_timeout(Some(Duration::from_secs(30))),
                    )
                    .await
                    .map_err(|e| failed(&e))?;
                if let Some(Err((_, code))) = created.into_iter().next() {
                    return Err(failed(&format!("creating topic {topic}: {code}")));
                }
                Ok(Self { servers: servers.to_owned(), topic, mock: None })
            }
        }
    }

    pub(crate) fn describe(&self) -> String {
        match self.mock {
            Some(_) => "a broker in this process".to_owned(),
            None => format!("Kafka at {}", self.servers),
        }
    }

    /// A killed member leaves its partitions idle for this long. A real broker refuses less than six seconds.
    pub(crate) fn session_timeout_ms(&self) -> u32 {
        if self.mock.is_some() { 1_500 } else { 6_000 }
    }

    /// How many produced messages may wait unread. The in-process broker keeps only about 5 MB a partition and drops the
    /// oldest without a word, so the producer must not run far ahead.
    pub(crate) fn most_unread(&self) -> i64 {
        if self.mock.is_some() { 8_000 } else { 200_000 }
    }

    /// Removes the topic from the user's own Kafka.
    pub(crate) async fn close(self) {
        if self.mock.is_none()
            && let Ok(admin) = admin(&self.servers)
            && let Err(error) = admin.delete_topics(&[&self.topic], &AdminOptions::new()).await
        {
            eprintln!("the topic {} could not be removed: {error}", self.topic);
        }
    }
}

fn admin(servers: &str) -> rdkafka::error::KafkaResult<AdminClient<DefaultClientContext>> {
    ClientConfig::new().set("bootstrap.servers", servers).create()
}

//! The producers of a sink, each leased to one batch at a time, for a topic that exists: a producer would wait for one that does
//! not, and hold up the relay without a word.
//!
//! librdkafka can only purge a producer as a whole, and a fatal error ends it as a whole. With one batch to a producer
//! neither touches another batch, and a relay that drops its batch takes back exactly that.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::Producer as _;
use rdkafka::types::RDKafkaRespErr;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::blocking::on_a_thread;
use super::producer::{Client, Producer};
use super::trouble::Trouble;
use crate::error::Error;
use crate::settings::Kafka;

/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct Pool {
    kafka: Kafka,
    trouble: Arc<Trouble>,
    /// How long nothing may be confirmed before a producer is given up.
    stall: Duration,
    /// The last one used is taken first, so that a sink with little to do keeps few connections busy.
    idle: Mutex<Vec<Producer>>,
    permits: Semaphore,
    /// The topics that were seen. One is forgotten when something goes wrong with it.
    topics: Mutex<HashSet<String>>,
}

impl Pool {
    pub(super) fn new(kafka: Kafka, producers: usize, stall: Duration) -> Self {
        let permits = Semaphore::new(producers);
        Self {
            kafka,
            trouble: Arc::default(),
            stall,
            idle: Mutex::default(),
            permits,
            topics: Mutex::default(),
        }
    }

    pub(super) fn kafka(&self) -> &Kafka {
        &self.kafka
    }

    pub(super) fn stall(&self) -> Duration {
        self.stall
    }

    /// Waits for a producer that is free, and makes sure that the topic exists.
    pub(super) async fn lease(&self, topic: &str) -> Result<Leased<'_>, Error> {
        let permit = self.permits.acquire().await.map_err(|closed| Error::Fatal(closed.to_string()))?;
        let idle = self.next_idle();
        let producer = match idle {
            Some(producer) => producer,
            None => self.create(topic).await?,
        };
        producer.renew_token();
        let leased = Leased { pool: self, producer: Some(producer), _permit: permit };
        if !self.topics().contains(topic) {
            let (client, name) = (leased.producer().client().clone(), topic.to_owned());
            on_a_thread(move || ask(&client, &name)).await?;
            self.topics().insert(topic.to_owned());
        }
        Ok(leased)
    }

    /// The next lease looks for this topic again.
    pub(super) fn forget(&self, topic: &str) {
        self.topics().remove(topic);
    }

    /// One that has not broken down while it was idle.
    fn next_idle(&self) -> Option<Producer> {
        let mut idle = self.idle();
        std::iter::from_fn(|| idle.pop()).find(Producer::is_clean)
    }

    /// librdkafka starts threads, may read certificates, and asks the brokers.
    async fn create(&self, topic: &str) -> Result<Producer, Error> {
        let (kafka, trouble, topic) = (self.kafka.clone(), Arc::clone(&self.trouble), topic.to_owned());
        let stall = self.stall;
        on_a_thread(move || Producer::create(&kafka, trouble, stall, &topic)).await
    }

    fn topics(&self) -> MutexGuard<'_, HashSet<String>> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Producer>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A producer of one batch. When the lease ends before everything is reported, or something failed, the producer ends too,
/// and with it what was not sent yet.
pub(super) struct Leased<'a> {
    pool: &'a Pool,
    /// Present until the lease ends.
    producer: Option<Producer>,
    _permit: SemaphorePermit<'a>,
}

impl Leased<'_> {
    pub(super) fn producer(&self) -> &Producer {
        self.producer.as_ref().expect("present until the lease ends")
    }

    /// Goes on with a new producer.
    pub(super) async fn replace(&mut self, topic: &str) -> Result<(), Error> {
        self.producer = Some(self.pool.create(topic).await?);
        Ok(())
    }
}

impl Drop for Leased<'_> {
    fn drop(&mut self) {
        if let Some(producer) = self.producer.take().filter(Producer::is_clean) {
            self.pool.idle().push(producer);
        }
    }
}

fn ask(client: &Client, topic: &str) -> Result<(), Error> {
    use RDKafkaRespErr::{RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE, RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART};
    let failed = |e: &KafkaError| Error::request(format!("whether topic {topic} exists"), e);
    let metadata = client.client().fetch_metadata(Some(topic), ANSWER_TIMEOUT).map_err(|e| failed(&e))?;
    let found = metadata.topics().iter().find(|found| found.name() == topic);
    let unknown = || Error::UnknownTopic(topic.to_owned());
    match found.ok_or_else(unknown)?.error() {
        // A topic that was just created gets its leader soon: the producer waits for it.
        None | Some(RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE) => Ok(()),
        Some(RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART) => Err(unknown()),
        Some(other) => Err(failed(&KafkaError::MetadataFetch(RDKafkaErrorCode::from(other)))),
    }
}

//! The producers of a sink, each leased to one batch at a time.
//!
//! librdkafka can only purge a producer as a whole, and a fatal error ends it as a whole. With one batch to a producer
//! neither touches another batch, and a relay that drops its batch takes back exactly that.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

use super::blocking::on_a_thread;
use super::producer::Producer;
use super::trouble::Trouble;
use crate::error::Error;
use crate::settings::Kafka;

pub(super) struct Pool {
    kafka: Kafka,
    trouble: Arc<Trouble>,
    /// How long nothing may be confirmed before a producer is given up.
    stall: Duration,
    /// The last one used is taken first, so that a sink with little to do keeps few connections busy.
    idle: Mutex<Vec<Producer>>,
    permits: Semaphore,
}

impl Pool {
    pub(super) fn new(kafka: Kafka, producers: usize, stall: Duration) -> Self {
        let permits = Semaphore::new(producers);
        Self { kafka, trouble: Arc::default(), stall, idle: Mutex::default(), permits }
    }

    pub(super) fn kafka(&self) -> &Kafka {
        &self.kafka
    }

    pub(super) fn stall(&self) -> Duration {
        self.stall
    }

    /// Waits for a producer that is free.
    pub(super) async fn lease(&self, topic: &str) -> Result<Leased<'_>, Error> {
        let permit = self.permits.acquire().await.map_err(|closed| Error::Fatal(closed.to_string()))?;
        let idle = self.next_idle();
        let producer = match idle {
            Some(producer) => producer,
            None => self.create(topic).await?,
        };
        Ok(Leased { pool: self, producer: Some(producer), _permit: permit })
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

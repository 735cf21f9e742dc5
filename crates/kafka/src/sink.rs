//! Publishes events to Kafka.

mod batch;
mod blocking;
mod failure;
mod pool;
mod producer;
mod reports;
#[cfg(test)]
mod stall_tests;
mod trouble;

use std::fmt;
use std::time::Duration;

use oncebox_core::error::BoxError;
use oncebox_core::outbox::{Delivery, OutgoingEvent, Sink};

use crate::error::Error;
use crate::settings::Kafka;
use batch::Batch;
use pool::Pool;

/// How many batches may be under way at once: each has a producer of its own.
const MAX_BATCHES: usize = 5;

/// How long Kafka may confirm nothing of a batch before the batch is given up. librdkafka itself would wait for ever, for the
/// leader of one partition say, and meanwhile no other topic would have the place of this batch.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Publishes events: the topic, the key, the payload and the headers are those of the event, the timestamp is when it was
/// written.
///
/// Topics are never created: events to one that does not exist wait for it. While no broker can be reached events wait as
/// well, and those of a partition without a leader: a batch of which nothing is confirmed for half a minute is tried again
/// later, so that others have their turn. An event that the broker refuses for its own sake, such as one that is larger than
/// its topic allows, is given up.
pub struct KafkaSink {
    pool: Pool,
}

impl KafkaSink {
    pub(crate) fn new(kafka: Kafka) -> Self {
        Self::with_stall(kafka, STALL_TIMEOUT)
    }

    fn with_stall(kafka: Kafka, stall: Duration) -> Self {
        Self { pool: Pool::new(kafka, MAX_BATCHES, stall) }
    }

    async fn publish(&self, topic: &str, events: &[OutgoingEvent]) -> Result<Vec<Delivery>, Error> {
        let mut leased = self.pool.lease(topic).await?;
        let mut batch = Batch::new(events);
        while let Some(run) = batch.next_run() {
            if leased.producer().is_spent() {
                leased.replace(topic).await?;
            }
            let reports = leased.producer().send(run.iter().map(|at| &events[*at])).await?;
            let taken_in = batch.take_in(&run, &reports);
            if leased.producer().has_stalled() && batch.undecided() > 0 {
                self.pool.forget(topic);
                return self.stalled(topic, batch);
            }
            if let Err(code) = taken_in {
                self.pool.forget(topic);
                let stopped_by = leased.producer().stopped_by();
                return Err(failure::of_batch(topic, batch.undecided(), events.len(), code, stopped_by));
            }
        }
        Ok(batch.into_deliveries())
    }

    /// What was confirmed of a batch that is given up need not be sent again.
    fn stalled(&self, topic: &str, mut batch: Batch<'_>) -> Result<Vec<Delivery>, Error> {
        let error = failure::of_stalled(topic, batch.undecided(), batch.len(), self.pool.stall());
        if batch.undecided() == batch.len() {
            return Err(error);
        }
        batch.give_up(&error.to_string());
        Ok(batch.into_deliveries())
    }
}

impl Sink for KafkaSink {
    async fn deliver(&self, events: &[OutgoingEvent]) -> Result<Vec<Delivery>, BoxError> {
        match events.first() {
            Some(first) => Ok(self.publish(first.topic(), events).await?),
            None => Ok(Vec::new()),
        }
    }

    fn concurrency(&self) -> usize {
        MAX_BATCHES
    }

    fn system(&self) -> Option<&'static str> {
        Some("kafka")
    }
}

impl fmt::Debug for KafkaSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSink").field("kafka", self.pool.kafka()).finish_non_exhaustive()
    }
}

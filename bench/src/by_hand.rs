//! What people write by hand: poll, BEGIN, receipt, effect, COMMIT, store the offset; one transaction per message, and
//! nothing of the hard parts (no isolation of bad messages, no fence, no retention).

mod queue;

use std::time::Duration;

use anyhow::{Context, Result};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::{Headers, Message};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use crate::contestant::Job;
use crate::feed::is_rabbitmq;
use crate::server::{Server, Update, on_server};

pub(crate) async fn run(job: Job) -> Result<()> {
    on_server!(&job.store, S => run_on::<S>(&job, false).await)
}

/// The same without a transaction.
pub(crate) async fn run_in_two_steps(job: Job) -> Result<()> {
    on_server!(&job.store, S => run_on::<S>(&job, true).await)
}

async fn run_on<S: Server>(job: &Job, in_two_steps: bool) -> Result<()> {
    if is_rabbitmq(&job.brokers) {
        return queue::run_on::<S>(job).await;
    }
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", &job.brokers)
        .set("group.id", &job.consumer)
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .create()?;
    consumer.subscribe(&[&job.topic])?;
    let mut server = S::connect(&job.store).await?;
    let mut handled = 0_u64;
    loop {
        let Some(message) = consumer.poll(Duration::from_millis(100)) else { continue };
        let message = message?;
        let id = message
            .headers()
            .and_then(|h| h.iter().find(|h| h.key == "event_id"))
            .and_then(|h| h.value)
            .context("a message without its id")?;
        let id = std::str::from_utf8(id)?;
        let update: Update = serde_json::from_slice(message.payload().context("a tombstone")?)?;

        if in_two_steps {
            server.apply_in_two_steps(id, &update).await?;
        } else {
            server.apply_by_hand(id, &update).await?;
        }

        handled += 1;
        if handled.is_multiple_of(1_000) {
            let mut next = TopicPartitionList::new();
            next.add_partition_offset(&job.topic, message.partition(), Offset::Offset(message.offset() + 1))?;
            consumer.commit(&next, CommitMode::Async)?;
        }
    }
}

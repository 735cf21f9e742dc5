//! The same from a queue of RabbitMQ: one transaction and one acknowledgement per message.

use anyhow::{Context, Result};
use futures_util::StreamExt;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;

use crate::contestant::{Job, PREFETCH};
use crate::feed;
use crate::server::{Server, Update};

pub(super) async fn run_on<S: Server>(job: &Job) -> Result<()> {
    let (_connection, channel) = feed::connect(&job.brokers).await?;
    channel.basic_qos(PREFETCH, BasicQosOptions::default()).await?;
    let mut server = S::connect(&job.store).await?;
    let options = BasicConsumeOptions::default();
    let queue = job.topic.as_str().into();
    let mut deliveries =
        channel.basic_consume(queue, "by-hand".into(), options, FieldTable::default()).await?;
    while let Some(delivery) = deliveries.next().await {
        let delivery = delivery?;
        let id = delivery.properties.message_id().as_ref().context("a message without its id")?;
        let update: Update = serde_json::from_slice(&delivery.data)?;
        server.apply_by_hand(id.as_str(), &update).await?;
        delivery.ack(BasicAckOptions::default()).await?;
    }
    Ok(())
}

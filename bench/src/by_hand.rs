//! What people write by hand: poll, BEGIN, receipt, effect, COMMIT, store the offset; one transaction per message, and
//! nothing of the hard parts (no isolation of bad messages, no fence, no retention).

use std::time::Duration;

use anyhow::{Context, Result};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::{Headers, Message};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use sqlx::{Connection, PgConnection};

use crate::contestant::Job;

#[derive(serde::Deserialize)]
struct Update {
    sku: String,
    qty: i32,
}

pub(crate) async fn run(job: Job) -> Result<()> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", &job.brokers)
        .set("group.id", &job.consumer)
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .create()?;
    consumer.subscribe(&[&job.topic])?;
    let mut conn = PgConnection::connect(&job.store).await?;
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

        let mut tx = conn.begin().await?;
        let receipt = sqlx::query(
            "INSERT INTO received (consumer, message_id) VALUES ('stock', $1) ON CONFLICT DO NOTHING",
        )
        .bind(id)
        .execute(&mut *tx)
        .await?;
        if receipt.rows_affected() == 1 {
            sqlx::query("UPDATE stock SET on_hand = on_hand - $1 WHERE sku = $2")
                .bind(update.qty)
                .bind(&update.sku)
                .execute(&mut *tx)
                .await?;
            sqlx::query("INSERT INTO ledger (message_id, sku, qty) VALUES ($1, $2, $3)")
                .bind(id)
                .bind(&update.sku)
                .bind(update.qty)
                .execute(&mut *tx)
                .await?;
        }
        tx.commit().await?;

        handled += 1;
        if handled.is_multiple_of(1_000) {
            let mut next = TopicPartitionList::new();
            next.add_partition_offset(&job.topic, message.partition(), Offset::Offset(message.offset() + 1))?;
            consumer.commit(&next, CommitMode::Async)?;
        }
    }
}

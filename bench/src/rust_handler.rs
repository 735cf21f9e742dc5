//! The same effect as an oncebox handler in Rust, per message.

use anyhow::{Result, anyhow};
use oncebox::Selector;
use oncebox::kafka::Kafka;
use oncebox::postgres::PgStore;
use oncebox::{BatchBounds, Inbox, Message};
use sqlx::PgConnection;
use tokio::signal::unix::{SignalKind, signal};

use crate::contestant::Job;

#[derive(serde::Deserialize)]
struct Update {
    sku: String,
    qty: i32,
}

async fn deduct(tx: &mut PgConnection, message: &Message) -> oncebox::Result {
    let update: Update = message.json()?;
    sqlx::query("UPDATE stock SET on_hand = on_hand - $1 WHERE sku = $2")
        .bind(update.qty)
        .bind(&update.sku)
        .execute(&mut *tx)
        .await?;
    sqlx::query("INSERT INTO ledger (message_id, sku, qty) VALUES ($1, $2, $3)")
        .bind(message.id().as_str())
        .bind(&update.sku)
        .bind(update.qty)
        .execute(tx)
        .await?;
    Ok(())
}

pub(crate) async fn run(job: Job) -> Result<()> {
    let store = PgStore::connect(&job.store).await?;
    store.migrate().await?;
    let mut terminate = signal(SignalKind::terminate())?;
    Inbox::new(job.consumer, store)?
        .id(Selector::Header("event_id".into()))
        .batch_bounds(BatchBounds { messages: 1_000, ..BatchBounds::default() })
        .each(deduct)
        .run(Kafka::brokers(job.brokers).source([job.topic]), async move {
            terminate.recv().await;
        })
        .await
        .map_err(|e| anyhow!(e))
}

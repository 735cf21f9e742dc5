//! The same effect as an oncebox handler in Rust, per message, and as one in SQL.

use anyhow::Result;
use oncebox::Selector;
use oncebox::kafka::Kafka;
use oncebox::postgres::PgStore;
use oncebox::sql::SqlInbox;
use oncebox::{BatchBounds, Inbox, Message, Worker};
use sqlx::PgConnection;
use tokio::signal::unix::{SignalKind, signal};

use crate::contestant::{EACH, Job};

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
    let worker = inbox(&job).await?.each(deduct);
    apply(worker, job).await
}

/// The same statements as the daemon's.
pub(crate) async fn run_sql(job: Job) -> Result<()> {
    let worker = inbox(&job).await?.sql_each(EACH).await?;
    apply(worker, job).await
}

async fn inbox(job: &Job) -> Result<Inbox<PgStore>> {
    let store = PgStore::connect(&job.store).await?;
    store.migrate().await?;
    Ok(Inbox::new(&job.consumer, store)?
        .id(Selector::Header("event_id".into()))
        .batch_bounds(BatchBounds { messages: 1_000, ..BatchBounds::default() }))
}

async fn apply(worker: Worker<PgStore>, job: Job) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let source = Kafka::brokers(job.brokers).source([job.topic]);
    let terminated = async move {
        terminate.recv().await;
    };
    Ok(worker.run(source, terminated).await?)
}

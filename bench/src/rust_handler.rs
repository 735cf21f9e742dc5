//! The same effect as an oncebox handler in Rust, per message, and as one in SQL.

use anyhow::Result;
use oncebox::Selector;
use oncebox::kafka::Kafka;
use oncebox::sql::SqlInbox;
use oncebox::store::InboxStore;
use oncebox::{BatchBounds, Inbox, Worker};
use tokio::signal::unix::{SignalKind, signal};

use crate::contestant::Job;
use crate::server::{Mysql, Postgres, Server, is_mysql};

pub(crate) async fn run(job: Job) -> Result<()> {
    if is_mysql(&job.store) {
        apply(inbox::<Mysql>(&job).await?.each(Mysql::deduct), job).await
    } else {
        apply(inbox::<Postgres>(&job).await?.each(Postgres::deduct), job).await
    }
}

/// The same statements as the daemon's.
pub(crate) async fn run_sql(job: Job) -> Result<()> {
    if is_mysql(&job.store) {
        apply(inbox::<Mysql>(&job).await?.sql_each(Mysql::EACH).await?, job).await
    } else {
        apply(inbox::<Postgres>(&job).await?.sql_each(Postgres::EACH).await?, job).await
    }
}

async fn inbox<S: Server>(job: &Job) -> Result<Inbox<S::Store>> {
    let store = S::store(&job.store).await?;
    Ok(Inbox::new(&job.consumer, store)?
        .id(Selector::Header("event_id".into()))
        .batch_bounds(BatchBounds { messages: 1_000, ..BatchBounds::default() }))
}

async fn apply<S: InboxStore>(worker: Worker<S>, job: Job) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let source = Kafka::brokers(job.brokers).source([job.topic]);
    let terminated = async move {
        terminate.recv().await;
    };
    Ok(worker.run(source, terminated).await?)
}

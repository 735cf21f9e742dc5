//! The same effect as an oncebox handler in Rust: per message, and sent in groups.

use anyhow::Result;
use oncebox::Selector;
use oncebox::kafka::Kafka;
use oncebox::store::InboxStore;
use oncebox::{BatchBounds, Inbox, Worker};
use tokio::signal::unix::{SignalKind, signal};

use crate::contestant::Job;
use crate::server::{Server, on_server};

pub(crate) async fn run(job: Job) -> Result<()> {
    on_server!(&job.store, S => apply(inbox::<S>(&job).await?.each(S::deduct), job).await)
}

/// Sent as the daemon would send it.
pub(crate) async fn run_grouped(job: Job) -> Result<()> {
    on_server!(&job.store, S => apply(S::grouped(inbox::<S>(&job).await?).await?, job).await)
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

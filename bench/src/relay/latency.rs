//! How long after its commit an event is seen, one at a time, with nothing else to do.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use oncebox::kafka::Kafka;
use oncebox::outbox::events_committed;
use oncebox::postgres::PgStore;
use oncebox::{Emit, Event, Relay};
use sqlx::{Connection, PgConnection};
use tokio::sync::oneshot;

use super::consumer::Watcher;

/// Milliseconds.
pub(super) struct Latency {
    p50: f64,
    p95: f64,
}

impl Latency {
    pub(super) fn row(&self) -> String {
        format!("{:.1} | {:.1}", self.p50, self.p95)
    }
}

/// Emits single events with pauses. `tell`: the relay is told of each commit.
pub(super) async fn measure(
    url: &str,
    brokers: &str,
    topic: &str,
    events: usize,
    tell: bool,
) -> Result<Latency> {
    let store = PgStore::connect(url).await?;
    store.migrate().await?;
    let mut conn = PgConnection::connect(url).await?;
    let mut watcher = Watcher::start(brokers, topic)?;
    let (stop, stopped) = oneshot::channel::<()>();
    let relay = Relay::new(store).sink(Kafka::brokers(brokers).sink());
    let running = tokio::spawn(relay.run(async move {
        stopped.await.ok();
    }));
    let mut millis = Vec::with_capacity(events);
    // The first ones open connections and find the topic.
    for number in 0..events + 10 {
        let id;
        let committed = {
            let mut tx = conn.begin().await?;
            id = tx
                .emit(Event::to(topic).key("k").json(&number)?)
                .await
                .map_err(|error| anyhow!(error))?
                .to_string();
            tx.commit().await?;
            Instant::now()
        };
        if tell {
            events_committed();
        }
        let seen = loop {
            let next = tokio::time::timeout(Duration::from_secs(20), watcher.seen.recv()).await?;
            let (seen_id, at) = next.context("the consumer ended")?;
            if seen_id == id {
                break at;
            }
        };
        if number >= 10 {
            millis.push(seen.saturating_duration_since(committed).as_secs_f64() * 1_000.0);
        }
        // Uneven, so that it does not fall into step with any poll.
        tokio::time::sleep(Duration::from_millis(300 + 37 * (number as u64 % 7))).await;
    }
    stop.send(()).ok();
    running.await?.map_err(|error| anyhow!(error))?;
    millis.sort_by(f64::total_cmp);
    let at = |share: f64| millis[((millis.len() - 1) as f64 * share) as usize];
    Ok(Latency { p50: at(0.5), p95: at(0.95) })
}

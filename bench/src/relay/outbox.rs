//! The relay: the same events, from a table.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use oncebox::Relay;
use oncebox::kafka::Kafka;
use oncebox::postgres::PgStore;
use sqlx::{Connection, PgConnection};
use tokio::sync::oneshot;

/// Events per second from the start of the relay until the outbox is empty.
pub(super) async fn rate(url: &str, brokers: &str, topic: &str, events: u32, payload: usize) -> Result<f64> {
    let store = PgStore::connect(url).await?;
    store.migrate().await?;
    let mut conn = PgConnection::connect(url).await?;
    sqlx::query(
        "INSERT INTO oncebox_outbox (topic, key, payload) \
         SELECT $1, convert_to('key-' || n % 1000, 'UTF8'), convert_to(repeat('x', $2), 'UTF8') \
         FROM generate_series(1, $3) AS n",
    )
    .bind(topic)
    .bind(i32::try_from(payload)?)
    .bind(i32::try_from(events)?)
    .execute(&mut conn)
    .await?;
    for settle in ["VACUUM ANALYZE oncebox_outbox", "CHECKPOINT"] {
        sqlx::query(settle).execute(&mut conn).await?;
    }

    let (stop, stopped) = oneshot::channel::<()>();
    let relay = Relay::new(store).sink(Kafka::brokers(brokers).sink());
    let started = Instant::now();
    let running = tokio::spawn(relay.run(async move {
        stopped.await.ok();
    }));
    let limit = started + Duration::from_secs(180);
    loop {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let left: bool =
            sqlx::query_scalar("SELECT EXISTS (SELECT FROM oncebox_outbox)").fetch_one(&mut conn).await?;
        if !left {
            break;
        }
        if Instant::now() > limit {
            bail!("the relay is not done after three minutes");
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    stop.send(()).ok();
    running.await?.map_err(|error| anyhow!(error))?;
    Ok(f64::from(events) / seconds)
}

//! The yardstick: a producer that has its messages in memory.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};

/// Events per second until the last of them is acknowledged.
pub(super) async fn rate(brokers: &str, topic: &str, events: u32, payload: usize) -> Result<f64> {
    let (brokers, topic) = (brokers.to_owned(), topic.to_owned());
    tokio::task::spawn_blocking(move || produce(&brokers, &topic, events, payload)).await?
}

fn produce(brokers: &str, topic: &str, events: u32, payload: usize) -> Result<f64> {
    let producer: ThreadedProducer<DefaultProducerContext> = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("enable.idempotence", "true")
        .set("partitioner", "murmur2_random")
        .create()?;
    let payload = "x".repeat(payload);
    let started = Instant::now();
    for number in 0..events {
        let key = format!("key-{}", number % 1_000);
        // The headers that the relay writes, with the same lengths.
        let id = uuid::Uuid::now_v7().to_string();
        let headers = OwnedHeaders::new_with_capacity(6)
            .insert(Header { key: "oncebox-id", value: Some(&id) })
            .insert(Header { key: "ce_id", value: Some(&id) })
            .insert(Header { key: "ce_specversion", value: Some("1.0") })
            .insert(Header { key: "ce_source", value: Some("oncebox") })
            .insert(Header { key: "ce_type", value: Some(topic) })
            .insert(Header { key: "ce_time", value: Some("2026-01-01T00:00:00.000Z") });
        let mut record = BaseRecord::to(topic).key(&key).payload(&payload).headers(headers);
        while let Err((error, same)) = producer.send(record) {
            if error != KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) {
                return Err(error.into());
            }
            record = same;
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    producer.flush(Duration::from_secs(120)).context("flushing the producer")?;
    Ok(f64::from(events) / started.elapsed().as_secs_f64())
}

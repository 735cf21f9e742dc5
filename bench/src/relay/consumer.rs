//! A consumer that says when it sees which event.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use tokio::sync::mpsc;

/// Reads partition 0 of a topic from its end on a thread of its own, until dropped.
pub(super) struct Watcher {
    pub(super) seen: mpsc::UnboundedReceiver<(String, Instant)>,
    stop: Arc<AtomicBool>,
}

impl Watcher {
    pub(super) fn start(brokers: &str, topic: &str) -> Result<Self> {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", brokers)
            .set("group.id", "bench-watcher")
            .set("enable.auto.commit", "false")
            .create()?;
        let mut from = TopicPartitionList::new();
        from.add_partition_offset(topic, 0, Offset::Beginning)?;
        consumer.assign(&from)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, seen) = mpsc::unbounded_channel();
        let stopped = Arc::clone(&stop);
        std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let Some(Ok(message)) = consumer.poll(Duration::from_millis(100)) else { continue };
                let now = Instant::now();
                let id = message.headers().and_then(|headers| {
                    headers.iter().find(|h| h.key == "oncebox-id").and_then(|h| h.value.map(<[u8]>::to_vec))
                });
                let id = id.and_then(|id| String::from_utf8(id).ok()).unwrap_or_default();
                if sender.send((id, now)).is_err() {
                    return;
                }
            }
        });
        Ok(Self { seen, stop })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

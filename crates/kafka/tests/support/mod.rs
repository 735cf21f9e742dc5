//! An engine over a database that lives in memory, and producers for topics to read.

#![allow(dead_code, clippy::unwrap_used, unreachable_pub)]

pub mod events;
pub mod gauges;
pub mod logs;
pub mod memory;
pub mod mock;
pub mod produce;
pub mod topics;

use std::time::{Duration, Instant};

use oncebox_core::inbox::Selector;
use oncebox_core::inbox::{BatchBounds, Inbox, Settings};
use oncebox_core::monitor::Monitor;
use oncebox_kafka::KafkaSource;
use tokio_util::sync::CancellationToken;

use memory::{Apply, Memory};

/// A running consumer. Dropping it does not stop it; [`Running::stop`] does, and waits.
pub struct Running {
    pub monitor: Monitor,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    pub fn start(consumer: &str, memory: &Memory, source: KafkaSource) -> Self {
        Self::start_with(consumer, memory, source, |_| {})
    }

    pub fn start_with(
        consumer: &str,
        memory: &Memory,
        source: KafkaSource,
        change: impl FnOnce(&mut Settings),
    ) -> Self {
        let mut settings = Settings::default();
        settings.identity.id = Selector::Coordinates;
        change(&mut settings);
        let (monitor, stop) = (Monitor::default(), CancellationToken::new());
        let inbox = Inbox::new(consumer, memory.clone()).unwrap().settings(settings).monitor(monitor.clone());
        let task = tokio::spawn(inbox.apply(Apply).serve(source, stop.clone()));
        Self { monitor, stop, task }
    }

    pub async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }

    /// What stands still or fails, as text.
    pub fn problems(&self) -> Vec<String> {
        self.monitor.report().into_iter().filter_map(|l| Some(format!("{}: {}", l.name, l.error?))).collect()
    }
}

/// Tiny bounds, so that streams fill up at once.
pub fn tiny(settings: &mut Settings) {
    settings.batch = BatchBounds { messages: 5, bytes: 1 << 20 };
}

/// Waits for something to become true; panics with `what` when it does not.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "not within 30 s: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub fn init_logs() {
    tracing_subscriber::fmt().with_max_level(tracing::Level::ERROR).with_test_writer().try_init().ok();
}

//! How the source is, for `/healthz` and the metrics; and how much is left to read.

use std::sync::atomic::{AtomicU64, Ordering};

use oncebox_core::metrics::{self, Gauge};
use oncebox_core::monitor::LoopHandle;
use oncebox_core::source::{Intake, Stream};

/// What one channel has delivered, and how much of that is answered. Deliveries are numbered from 1.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) delivered: AtomicU64,
    pub(super) answered: AtomicU64,
}

impl Counts {
    fn open(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed).saturating_sub(self.answered.load(Ordering::Relaxed))
    }
}

/// Reports as the loop `rabbitmq:<consumer>`.
#[derive(Debug)]
pub(super) struct Health {
    handle: LoopHandle,
    lag: Gauge,
    stopped: Gauge,
}

impl Health {
    pub(super) fn new(intake: &Intake, queue: &str) -> Self {
        let consumer = intake.consumer();
        let name = format!("rabbitmq:{consumer}");
        Self {
            handle: intake.monitor().register_with(name, queue, "RabbitMQ is read again"),
            lag: metrics::lag_messages(consumer.to_owned()),
            stopped: metrics::partitions_stopped(consumer.to_owned()),
        }
    }

    /// True if that is worth a line in the log.
    pub(super) fn failed(&self, reason: &str) -> bool {
        self.handle.failed(reason)
    }

    /// The broker has answered how much waits in the queue, while nothing is read.
    pub(super) fn saw_waiting(&self, waiting: u32) {
        self.lag.set(f64::from(waiting));
        self.stopped.set(0.0);
        self.handle.succeeded();
    }

    /// The broker has answered how much waits in the queue.
    pub(super) fn saw(&self, waiting: u32, counts: &Counts, stream: &Stream) {
        let lag = u64::from(waiting) + counts.open();
        self.lag.set(lag as f64);
        stream.lag_is(lag);
        self.stopped.set(if stream.stopped().is_some() { 1.0 } else { 0.0 });
        self.handle.succeeded();
    }
}

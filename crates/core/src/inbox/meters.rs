//! The metrics of one consumer. No key, id, tenant or payload ever becomes a label.

use std::time::Duration;

use metrics::{Counter, Histogram, counter, histogram};

use crate::names::ConsumerName;

#[derive(Debug)]
pub(crate) struct Meters {
    pub(crate) applied: Counter,
    pub(crate) duplicate: Counter,
    pub(crate) dead: Counter,
    pub(crate) retried: Counter,
    batch_size: Histogram,
    transaction_seconds: Histogram,
}

impl Meters {
    pub(crate) fn new(consumer: &ConsumerName) -> Self {
        let outcome = |outcome: &'static str| counter!("oncebox_messages_total", "consumer" => consumer.to_string(), "outcome" => outcome);
        Self {
            applied: outcome("applied"),
            duplicate: outcome("duplicate"),
            dead: outcome("dead"),
            retried: outcome("retried"),
            batch_size: histogram!("oncebox_batch_size", "consumer" => consumer.to_string()),
            transaction_seconds: histogram!("oncebox_transaction_seconds", "consumer" => consumer.to_string()),
        }
    }

    pub(crate) fn committed(&self, messages: usize, took: Duration) {
        self.batch_size.record(messages as f64);
        self.transaction_seconds.record(took.as_secs_f64());
    }
}

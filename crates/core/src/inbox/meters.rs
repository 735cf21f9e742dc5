//! The metrics of one consumer.

use std::time::Duration;

use crate::metrics::{Counter, Histogram, batch_size, messages_total, transaction_seconds};
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
        let outcome = |outcome: &'static str| messages_total(consumer.to_string(), outcome);
        Self {
            applied: outcome("applied"),
            duplicate: outcome("duplicate"),
            dead: outcome("dead"),
            retried: outcome("retried"),
            batch_size: batch_size(consumer.to_string()),
            transaction_seconds: transaction_seconds(consumer.to_string()),
        }
    }

    pub(crate) fn committed(&self, messages: usize, took: Duration) {
        self.batch_size.record(messages as f64);
        self.transaction_seconds.record(took.as_secs_f64());
    }
}

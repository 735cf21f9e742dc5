//! The metrics of one consumer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::item::Item;
use crate::metrics::{
    Counter, Histogram, batch_size, duplicates_total, messages_total, redelivered_total, transaction_seconds,
};
use crate::monitor::{Monitor, Tally};
use crate::names::ConsumerName;
use crate::source::{Answer, Answered};
use crate::store::{Cause, Duplicates};

#[derive(Debug)]
pub(crate) struct Meters {
    tally: Arc<Tally>,
    applied: Counter,
    duplicate: Counter,
    /// In the order of [`Cause::ALL`].
    causes: [Counter; Cause::ALL.len()],
    differs: Counter,
    dead: Counter,
    pub(crate) retried: Counter,
    pub(crate) filtered: Counter,
    redelivered_applied: Counter,
    redelivered_duplicate: Counter,
    batch_size: Histogram,
    transaction_seconds: Histogram,
}

impl Meters {
    pub(crate) fn new(consumer: &ConsumerName, monitor: &Monitor) -> Self {
        let outcome = |outcome: &'static str| messages_total(consumer.to_string(), outcome);
        let redelivered = |outcome: &'static str| redelivered_total(consumer.to_string(), outcome);
        Self {
            tally: monitor.tally(consumer.as_str()),
            applied: outcome("applied"),
            duplicate: outcome("duplicate"),
            causes: Cause::ALL.map(|cause| duplicates_total(consumer.to_string(), cause.as_str())),
            differs: outcome("differs"),
            dead: outcome("dead"),
            retried: outcome("retried"),
            filtered: outcome("filtered"),
            redelivered_applied: redelivered("applied"),
            redelivered_duplicate: redelivered("duplicate"),
            batch_size: batch_size(consumer.to_string()),
            transaction_seconds: transaction_seconds(consumer.to_string()),
        }
    }

    /// Counts those that the broker had delivered before, by what became of them.
    pub(crate) fn redelivered(&self, items: &[Item], answers: &[Answered]) {
        for (_, Answered { answer, .. }) in
            items.iter().zip(answers).filter(|(item, _)| item.record().redelivered)
        {
            match answer {
                Answer::Applied => self.redelivered_applied.increment(1),
                Answer::Duplicate | Answer::Differs => self.redelivered_duplicate.increment(1),
                Answer::Parked | Answer::Filtered | Answer::GivenBack(_) => {}
            }
        }
    }

    pub(crate) fn applied(&self, messages: u64) {
        self.applied.increment(messages);
        self.tally.applied.fetch_add(messages, Ordering::Relaxed);
    }

    pub(crate) fn dead(&self, letters: u64) {
        self.dead.increment(letters);
        self.tally.dead.fetch_add(letters, Ordering::Relaxed);
    }

    /// Counts those that were skipped because their receipt exists, by whether they were copies, and copies by their cause.
    pub(crate) fn skipped(&self, answers: &[Answered]) {
        let differ = answers.iter().filter(|one| one.answer == Answer::Differs).count() as u64;
        self.differs.increment(differ);
        let copies = answers.iter().filter(|one| one.answer == Answer::Duplicate);
        let copies: Duplicates = copies.filter_map(|one| one.cause).collect();
        self.duplicate.increment(copies.total());
        for (counter, cause) in self.causes.iter().zip(Cause::ALL) {
            counter.increment(copies.of(cause));
        }
        self.tally.skipped(copies);
    }

    pub(crate) fn committed(&self, messages: usize, took: Duration) {
        self.batch_size.record(messages as f64);
        self.transaction_seconds.record(took.as_secs_f64());
    }
}

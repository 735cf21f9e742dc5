//! Dead letters: messages that were given up, kept whole.

use std::future::Future;

use super::{PositionKey, Store, StoreResult};
use crate::message::Record;
use crate::names::{ConsumerName, Tenant};

/// A message that was given up, as it is written down.
#[derive(Debug, Clone)]
pub struct DeadLetter {
    /// The tenant, if it is known.
    pub tenant: Tenant,
    /// The id; `None` if the message had none.
    pub message_id: Option<String>,
    /// The message, whole.
    pub record: Record,
    /// Why it was given up.
    pub error: String,
    /// How often it was tried.
    pub attempts: u32,
}

/// A dead letter as it is stored.
#[derive(Debug, Clone)]
pub struct StoredDeadLetter {
    /// Its number, for `oncebox dead show N`.
    pub number: i64,
    /// The consumer that gave it up.
    pub consumer: String,
    /// What was written down.
    pub letter: DeadLetter,
    /// When, in milliseconds since 1970.
    pub failed_at_ms: i64,
}

/// A dead letter in a list: without its payload and headers, which may be large.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadSummary {
    /// Its number.
    pub number: i64,
    /// The consumer that gave it up.
    pub consumer: String,
    /// The tenant, `""` when none.
    pub tenant: String,
    /// The id; `None` if the message had none.
    pub message_id: Option<String>,
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The offset.
    pub offset: i64,
    /// The first [`MAX_SUMMARY_BYTES`] bytes of its key.
    pub key: Option<Vec<u8>>,
    /// How long its payload is; `None` for a tombstone.
    pub payload_bytes: Option<u64>,
    /// The first [`MAX_SUMMARY_BYTES`] characters of why it was given up.
    pub error: String,
    /// How often it was tried.
    pub attempts: u32,
    /// When it was given up, in milliseconds since 1970.
    pub failed_at_ms: i64,
}

/// How much of a key or an error a [`DeadSummary`] holds.
pub const MAX_SUMMARY_BYTES: usize = 256;

/// Which dead letters are meant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadFilter {
    /// Only these numbers; all if empty.
    pub numbers: Vec<i64>,
    /// Only of this consumer.
    pub consumer: Option<String>,
    /// Only of this topic.
    pub topic: Option<String>,
    /// Only of this tenant.
    pub tenant: Option<String>,
    /// Only with this message id.
    pub message_id: Option<String>,
    /// Only with this key.
    pub key: Option<Vec<u8>>,
    /// Only above this number: the next page.
    pub after: i64,
    /// At most this many.
    pub limit: u32,
}

/// The dead letters of a database.
pub trait DeadLetters: Store {
    /// Writes dead letters. One without an id is written once per (topic, partition, offset).
    fn park(
        &self,
        txn: &mut Self::Txn,
        consumer: &ConsumerName,
        letters: &[DeadLetter],
    ) -> impl Future<Output = StoreResult<()>> + Send;

    /// Which of these keys have a dead letter in this partition.
    fn parked_keys(
        &self,
        txn: &mut Self::Txn,
        position: &PositionKey,
        keys: &[&[u8]],
    ) -> impl Future<Output = StoreResult<Vec<Vec<u8>>>> + Send;

    /// Opens a transaction, removes this dead letter in it and writes its receipt, or makes it as young as a new one: from
    /// now on the retention counts anew. `None` if the letter is gone.
    fn take_dead(
        &self,
        number: i64,
    ) -> impl Future<Output = StoreResult<Option<(Self::Txn, StoredDeadLetter)>>> + Send;

    /// The first dead letter of the same consumer, topic, partition and key that was written before this one, which was
    /// just taken. `None` if there is none, or if it has no key.
    fn letter_before(
        &self,
        txn: &mut Self::Txn,
        taken: &StoredDeadLetter,
    ) -> impl Future<Output = StoreResult<Option<i64>>> + Send;

    /// Dead letters by filter, ordered by number, without their payloads.
    fn dead_letters(&self, filter: &DeadFilter)
    -> impl Future<Output = StoreResult<Vec<DeadSummary>>> + Send;

    /// One dead letter, whole.
    fn dead_letter(&self, number: i64) -> impl Future<Output = StoreResult<Option<StoredDeadLetter>>> + Send;

    /// Removes dead letters for good; their receipts stay. Returns how many.
    fn drop_dead(&self, filter: &DeadFilter) -> impl Future<Output = StoreResult<u64>> + Send;
}

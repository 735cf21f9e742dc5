//! Dead letters: messages that were given up, kept whole.

use std::future::Future;

use bytes::Bytes;

use super::{PositionKey, Store, StoreResult, error_group};
use crate::message::{Headers, Record};
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
    /// Who has changed it since, and what it was before; `None` if nobody has.
    pub edit: Option<LetterEdit>,
}

/// What an operator may change of a dead letter: not whose message it is, which its receipt knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LetterContent {
    /// The key.
    pub key: Option<Bytes>,
    /// The payload; `None` is a tombstone.
    pub payload: Option<Bytes>,
    /// The headers.
    pub headers: Headers,
}

impl LetterContent {
    /// What a record has of it.
    #[must_use]
    pub fn of(record: &Record) -> Self {
        Self { key: record.key.clone(), payload: record.payload.clone(), headers: record.headers.clone() }
    }
}

/// That a dead letter was changed. What arrived is kept beside it until the letter goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LetterEdit {
    /// Who changed it last.
    pub by: String,
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
    /// How often it was changed.
    pub times: u32,
    /// What arrived.
    pub original: LetterContent,
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
    /// Whether somebody has changed it since.
    pub edited: bool,
}

impl DeadSummary {
    /// Which of the [`DeadGroup`]s it belongs to.
    #[must_use]
    pub fn group(&self) -> String {
        error_group(&self.consumer, &self.error)
    }
}

/// Dead letters of one consumer whose errors read alike: see [`error_group`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadGroup {
    /// Its name.
    pub group: String,
    /// The consumer.
    pub consumer: String,
    /// The first [`MAX_SUMMARY_BYTES`] characters of the newest letter's error.
    pub error: String,
    /// How many letters it has, up to the cap that was given to [`DeadLetters::dead_groups`].
    pub letters: u64,
    /// How many different keys its letters have, the oldest [`MAX_KEYED_LETTERS`] of them. Under `park-key` these keys are held back.
    pub keys: u64,
    /// When the first of its letters was given up, in milliseconds since 1970.
    pub first_ms: i64,
    /// When the newest was.
    pub last_ms: i64,
    /// The number of the newest.
    pub newest: i64,
}

/// How many letters of a group are looked at for their keys: unlike counting, that reads each of them.
pub const MAX_KEYED_LETTERS: u64 = 100;

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
    /// Only of this [`DeadGroup`].
    pub group: Option<String>,
    /// Only with this text in their error, as it is written.
    pub error: Option<String>,
    /// Only given up at this time or later, in milliseconds since 1970.
    pub failed_from_ms: Option<i64>,
    /// Only given up before this time, in milliseconds since 1970.
    pub failed_until_ms: Option<i64>,
    /// Only above this number: the next page.
    pub after: i64,
    /// Only below this number: the next page of a list that begins with the newest.
    pub before: Option<i64>,
    /// Whether the list begins with the newest.
    pub newest_first: bool,
    /// At most this many.
    pub limit: u32,
}

/// The dead letters of a database.
pub trait DeadLetters: Store {
    /// Writes dead letters, each with its [`error_group`]. One without an id is written once per (topic, partition, offset).
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

    /// Dead letters by filter, ordered by number or the other way round, without their payloads.
    fn dead_letters(&self, filter: &DeadFilter)
    -> impl Future<Output = StoreResult<Vec<DeadSummary>>> + Send;

    /// One dead letter, whole.
    fn dead_letter(&self, number: i64) -> impl Future<Output = StoreResult<Option<StoredDeadLetter>>> + Send;

    /// Removes dead letters for good; their receipts stay. Returns how many.
    fn drop_dead(&self, filter: &DeadFilter) -> impl Future<Output = StoreResult<u64>> + Send;

    /// Counts a letter of this consumer as replayed, in a transaction of its own: one for all would make replays wait for each
    /// other's handlers. So a process that dies just then does not count its last one.
    fn count_replay(&self, consumer: &ConsumerName) -> impl Future<Output = StoreResult<()>> + Send;

    /// The groups of a consumer, or of all; at most `limit`, in no order. Each counts its letters up to `count_cap`, the oldest
    /// first. What it costs does not grow with the table. Letters that have no group yet are left out: see
    /// [`DeadLetters::group_letters`].
    fn dead_groups(
        &self,
        consumer: Option<&str>,
        limit: u32,
        count_cap: u64,
    ) -> impl Future<Output = StoreResult<Vec<DeadGroup>>> + Send;

    /// Gives up to `limit` letters their group that were written by an older oncebox. Returns how many.
    fn group_letters(&self, limit: u32) -> impl Future<Output = StoreResult<u64>> + Send;

    /// Changes a dead letter, which was changed `times_seen` times before, and keeps what arrived beside it. False if it is gone,
    /// or if somebody else has changed it since.
    fn edit_dead(
        &self,
        number: i64,
        times_seen: u32,
        content: &LetterContent,
        by: &str,
    ) -> impl Future<Output = StoreResult<bool>> + Send;
}

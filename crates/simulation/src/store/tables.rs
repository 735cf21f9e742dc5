//! What is committed.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use oncebox_core::inbox::{Fingerprint, ReceiptKey};
use oncebox_core::source::{LogId, LogMark};
use oncebox_core::store::{AuditEntry, Duplicates, EventState, Pause, SHARDS, StoredDeadLetter, StoredEvent};
use uuid::Uuid;

use crate::plan::Place;

/// A position, or anything else that a consumer has of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    pub(crate) consumer: usize,
    pub(crate) place: Place,
}

/// All tables. Cloned when the replica begins to lag.
#[derive(Debug, Clone)]
pub(crate) struct Tables {
    pub(crate) receipts: BTreeMap<ReceiptKey, ReceiptRow>,
    /// What the handlers wrote, in the order of the commits.
    pub(crate) effects: Vec<Effect>,
    /// The last effect of each message.
    pub(crate) applied: BTreeMap<EffectOf, usize>,
    pub(crate) positions: BTreeMap<Spot, PositionRow>,
    pub(crate) attempts: BTreeMap<(Spot, i64), u32>,
    pub(crate) letters: BTreeMap<i64, LetterRow>,
    /// Letters that an operator has dropped: consumer and message, or the place of a record without an id.
    pub(crate) dropped: BTreeSet<(usize, String)>,
    pub(crate) purged_before: BTreeMap<usize, i64>,
    pub(crate) paused: BTreeMap<String, Pause>,
    /// How many letters of a consumer were replayed.
    pub(crate) replayed: BTreeMap<usize, u64>,
    pub(crate) audit: BTreeMap<i64, AuditEntry>,
    pub(crate) purger: Purger,
    pub(crate) outbox: BTreeMap<i64, EventRowState>,
    /// Every event that was ever committed.
    pub(crate) emitted: BTreeSet<i64>,
    /// How far a relay with a cursor would be in each shard: only for that mistake.
    pub(crate) cursors: BTreeMap<u16, i64>,
    pub(crate) shards: Vec<Shard>,
    pub(crate) relays: BTreeMap<Uuid, RelayRow>,
}

impl Default for Tables {
    fn default() -> Self {
        Self {
            receipts: BTreeMap::new(),
            effects: Vec::new(),
            applied: BTreeMap::new(),
            positions: BTreeMap::new(),
            attempts: BTreeMap::new(),
            letters: BTreeMap::new(),
            dropped: BTreeSet::new(),
            purged_before: BTreeMap::new(),
            paused: BTreeMap::new(),
            replayed: BTreeMap::new(),
            audit: BTreeMap::new(),
            purger: Purger::default(),
            outbox: BTreeMap::new(),
            emitted: BTreeSet::new(),
            cursors: BTreeMap::new(),
            shards: vec![Shard::default(); usize::from(SHARDS)],
            relays: BTreeMap::new(),
        }
    }
}

/// Which message a receipt is for.
#[derive(Debug, Clone)]
pub(crate) struct ReceiptOf {
    pub(crate) consumer: usize,
    pub(crate) tenant: String,
    pub(crate) id: String,
    /// What its payload was, where copies are compared with it.
    pub(crate) fingerprint: Option<Fingerprint>,
}

impl ReceiptOf {
    /// Whether both are for the same message, whatever its payload.
    pub(crate) fn is_for_that_of(&self, other: &Self) -> bool {
        (self.consumer, &self.tenant, &self.id) == (other.consumer, &other.tenant, &other.id)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct ReceiptRow {
    pub(crate) of: ReceiptOf,
    /// By the clocks.
    pub(crate) processed_at_ms: i64,
    /// In truth.
    pub(crate) true_ms: i64,
}

/// Which message of which consumer.
pub(crate) type EffectOf = (usize, String);

/// What a handler wrote for a message.
#[derive(Debug, Clone)]
pub(crate) struct Effect {
    pub(crate) consumer: usize,
    pub(crate) id: String,
    pub(crate) key: Option<Bytes>,
    pub(crate) place: Place,
    pub(crate) offset: i64,
    /// Its place in a queue, where the offset is only the number of a delivery.
    pub(crate) seq: i64,
    /// Which of the logs that had this name, as the number of times it was written anew; of a queue, the channel.
    pub(crate) writing: i64,
    /// When the record was appended.
    pub(crate) appended_ms: i64,
    /// When the transaction began.
    pub(crate) true_ms: i64,
    pub(crate) replayed: bool,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct PositionRow {
    pub(crate) epoch: i64,
    pub(crate) next_offset: Option<i64>,
    pub(crate) log: Option<LogId>,
    pub(crate) mark: Option<LogMark>,
    pub(crate) floor: Option<i64>,
    pub(crate) starts: u32,
    pub(crate) commits: i64,
    /// Counters for people.
    pub(crate) applied: u64,
    pub(crate) duplicates: Duplicates,
    /// How far anything was ever settled, and below which offset records come again because they were wanted.
    pub(crate) settled_to: Option<i64>,
    pub(crate) rewound_to: Option<i64>,
    /// The last commit.
    pub(crate) updated_ms: i64,
    pub(crate) caught_up_ms: Option<i64>,
    pub(crate) retired: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct LetterRow {
    pub(crate) consumer: usize,
    pub(crate) place: Place,
    pub(crate) stored: StoredDeadLetter,
    /// The transaction that is about to remove it.
    pub(crate) taken_by: Option<u64>,
}

#[derive(Debug, Clone)]
pub(crate) struct EventRowState {
    pub(crate) event: StoredEvent,
    pub(crate) shard: u16,
    pub(crate) consumer: Option<String>,
    pub(crate) tenant: Option<String>,
    pub(crate) held_until_ms: Option<i64>,
    pub(crate) parked_ms: Option<i64>,
    pub(crate) published_ms: Option<i64>,
    pub(crate) error: Option<String>,
}

impl EventRowState {
    pub(crate) fn is_pending(&self) -> bool {
        self.parked_ms.is_none() && self.published_ms.is_none()
    }

    pub(crate) fn is_early(&self, now_ms: i64) -> bool {
        self.event.deliver_at_ms.is_some_and(|at| at > now_ms)
    }
}

impl Tables {
    /// Whether an earlier event of its topic and key has to wait.
    pub(crate) fn is_behind(&self, seq: i64, now_ms: i64) -> bool {
        let Some(event) = self.outbox.get(&seq).map(|row| &row.event) else { return false };
        event.key.is_some()
            && self.outbox.range(..seq).any(|(_, row)| {
                let waits = row.is_early(now_ms) || row.held_until_ms.is_some_and(|until| until > now_ms);
                row.is_pending() && waits && (&row.event.topic, &row.event.key) == (&event.topic, &event.key)
            })
    }

    /// Where an event stands.
    pub(crate) fn state(&self, row: &EventRowState, now_ms: i64) -> EventState {
        match row {
            _ if row.published_ms.is_some() => EventState::Published,
            _ if row.parked_ms.is_some() => EventState::Parked,
            _ if row.is_early(now_ms) => EventState::Delayed,
            _ if row.held_until_ms.is_some() || self.is_behind(row.event.seq, now_ms) => EventState::Held,
            _ => EventState::Pending,
        }
    }
}

/// A relay that is alive until then.
#[derive(Debug, Clone)]
pub(crate) struct RelayRow {
    pub(crate) name: String,
    pub(crate) until_ms: i64,
}

/// Whose turn it is to purge, and where the pass is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Purger {
    pub(crate) turn: Option<u64>,
    pub(crate) until_ms: i64,
    /// The last receipt that was looked at.
    pub(crate) reached: Option<ReceiptKey>,
    /// Steps of this pass.
    pub(crate) done: u64,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Shard {
    pub(crate) relay: Option<Uuid>,
    pub(crate) epoch: i64,
    pub(crate) until_ms: i64,
}

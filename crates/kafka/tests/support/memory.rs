//! A store in memory: receipts, effects and positions change together, positions are fenced by epochs.

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use oncebox_core::inbox::{Failure, ReceiptKey};
use oncebox_core::message::{Message, Record};
use oncebox_core::names::ConsumerName;
use oncebox_core::source::{LogId, LogMark};
use oncebox_core::store::{
    Advance, Claim, Claimed, DeadFilter, DeadGroup, DeadLetter, DeadLetters, DeadSummary, ErrorClass,
    LetterContent, Ownership, Pause, PauseNote, Pauses, PositionKey, Positions, Progress, Purge, PurgePass,
    Purged, Store, StoreError, StoreResult, StoredDeadLetter,
};

#[derive(Clone, Default)]
pub struct Memory(Arc<Mutex<Inner>>);

#[derive(Default)]
pub struct Inner {
    receipts: HashSet<ReceiptKey>,
    pub applied: Vec<Message>,
    pub positions: HashMap<(String, i32), Position>,
    /// How long each transaction takes.
    pub pace: Duration,
}

#[derive(Default, Clone, Debug)]
pub struct Position {
    pub next: Option<i64>,
    pub epoch: i64,
    pub log: Option<LogId>,
    pub mark: Option<LogMark>,
    pub floor: Option<i64>,
    pub caught_up_ms: Option<i64>,
    pub settled_to: Option<i64>,
    pub rewound_to: Option<i64>,
}

impl Position {
    fn advance(&mut self, progress: &Progress<'_>) {
        self.next = self.next.max(progress.next_offset);
        self.log = progress.log.cloned().or(self.log.take());
        self.mark = [self.mark, progress.mark].into_iter().flatten().max_by_key(|mark| mark.offset);
        self.caught_up_ms = self.caught_up_ms.max(progress.caught_up_ms);
        self.settled_to = self.settled_to.max(progress.settled_to);
        self.rewound_to = self.rewound_to.max(progress.rewound_to);
    }
}

/// The effects of a transaction that is not committed yet.
pub struct Txn {
    receipts: Vec<ReceiptKey>,
    effects: Vec<Message>,
}

impl Deref for Txn {
    type Target = Vec<Message>;
    fn deref(&self) -> &Self::Target {
        &self.effects
    }
}

impl DerefMut for Txn {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.effects
    }
}

impl Memory {
    pub fn get(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    pub fn count(&self) -> usize {
        self.get().applied.len()
    }

    pub fn position(&self, topic: &str, partition: i32) -> Option<i64> {
        self.get().positions.get(&(topic.to_owned(), partition)).and_then(|p| p.next)
    }

    pub fn set_position(&self, topic: &str, partition: i32, next: i64) {
        self.change_position(topic, partition, |position| position.next = Some(next));
    }

    pub fn change_position(&self, topic: &str, partition: i32, change: impl FnOnce(&mut Position)) {
        change(self.get().positions.entry((topic.to_owned(), partition)).or_default());
    }

    /// Everything about a position that is there.
    pub fn stored(&self, topic: &str, partition: i32) -> Position {
        self.get().positions[&(topic.to_owned(), partition)].clone()
    }

    pub fn records(&self) -> Vec<Record> {
        self.get().applied.iter().map(|m| m.record().clone()).collect()
    }

    /// The applied offsets of one partition, in the order they were applied.
    pub fn offsets(&self, topic: &str, partition: i32) -> Vec<i64> {
        let of = |r: &&Record| &*r.topic == topic && r.partition == partition;
        self.records().iter().filter(of).map(|r| r.offset).collect()
    }
}

fn place(key: &PositionKey) -> (String, i32) {
    (key.topic.to_string(), key.partition)
}

impl Store for Memory {
    type Conn = Vec<Message>;
    type Txn = Txn;

    async fn claim(&self, _consumer: &ConsumerName, claims: &[Claim<'_>]) -> StoreResult<Claimed<Txn>> {
        let inner = self.get();
        let fresh: Vec<bool> = claims.iter().map(|c| !inner.receipts.contains(&c.key)).collect();
        let receipts = claims.iter().map(|c| c.key).collect();
        Ok(Claimed {
            txn: Txn { receipts, effects: Vec::new() },
            fresh,
            collisions: Vec::new(),
            refused: Vec::new(),
            fingerprints: Vec::new(),
        })
    }

    async fn claim_within(
        &self,
        _conn: &mut Vec<Message>,
        _consumer: &ConsumerName,
        _claims: &[Claim<'_>],
    ) -> StoreResult<Vec<bool>> {
        panic!("not used by a source")
    }

    async fn commit(&self, txn: Txn, advance: Option<Advance<'_>>) -> StoreResult<()> {
        let pace = self.get().pace;
        if !pace.is_zero() {
            tokio::time::sleep(pace).await;
        }
        let mut inner = self.get();
        if let Some(advance) = advance {
            let position = inner.positions.entry(place(&advance.owner.key)).or_default();
            if position.epoch != advance.owner.epoch {
                return Err(StoreError::fenced("commit"));
            }
            position.advance(&advance.progress);
        }
        inner.receipts.extend(txn.receipts);
        inner.applied.extend(txn.effects);
        Ok(())
    }

    async fn rollback(&self, _txn: Txn) {}

    async fn undo(&self, _txn: Txn) -> StoreResult<()> {
        Ok(())
    }

    fn classify(_error: &(dyn Error + 'static)) -> ErrorClass {
        ErrorClass::Failed
    }
}

impl Positions for Memory {
    async fn acquire(&self, key: &PositionKey) -> StoreResult<Ownership> {
        let mut inner = self.get();
        let position = inner.positions.entry(place(key)).or_default();
        position.epoch += 1;
        Ok(Ownership {
            key: key.clone(),
            epoch: position.epoch,
            next_offset: position.next,
            log: position.log.clone(),
            mark: position.mark,
            floor: position.floor,
            was_retired: false,
            starts: 1,
            commits: 0,
            attempts_recorded: false,
            settled_to: position.settled_to,
            rewound_to: position.rewound_to,
        })
    }

    async fn record_progress(&self, owner: &Ownership, progress: Progress<'_>) -> StoreResult<()> {
        let mut inner = self.get();
        let position = inner.positions.entry(place(&owner.key)).or_default();
        if position.epoch != owner.epoch {
            return Err(StoreError::fenced("record_progress"));
        }
        position.advance(&progress);
        Ok(())
    }

    async fn release(&self, _owner: &Ownership) -> StoreResult<()> {
        Ok(())
    }

    async fn record_attempt(&self, _owner: &Ownership, _offset: i64) -> StoreResult<u32> {
        Ok(1)
    }

    async fn withdraw_attempt(&self, _owner: &Ownership, _offset: i64) -> StoreResult<()> {
        Ok(())
    }

    async fn move_position(&self, _: &PositionKey, _: i64, _: Option<&LogId>) -> StoreResult<()> {
        panic!("not used by a source")
    }

    async fn retire_positions(&self, _: &ConsumerName, _: &str) -> StoreResult<u64> {
        panic!("not used by a source")
    }
}

impl DeadLetters for Memory {
    async fn park(
        &self,
        _txn: &mut Txn,
        _consumer: &ConsumerName,
        letters: &[DeadLetter],
    ) -> StoreResult<()> {
        panic!("nothing should be given up: {letters:?}")
    }

    async fn parked_keys(&self, _: &mut Txn, _: &PositionKey, _: &[&[u8]]) -> StoreResult<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    async fn letter_before(&self, _: &mut Txn, _: &StoredDeadLetter) -> StoreResult<Option<i64>> {
        Ok(None)
    }

    async fn take_dead(&self, _number: i64) -> StoreResult<Option<(Txn, StoredDeadLetter)>> {
        Ok(None)
    }

    async fn dead_letters(&self, _: &DeadFilter) -> StoreResult<Vec<DeadSummary>> {
        Ok(Vec::new())
    }

    async fn dead_letter(&self, _: i64) -> StoreResult<Option<StoredDeadLetter>> {
        Ok(None)
    }

    async fn drop_dead(&self, _: &DeadFilter) -> StoreResult<u64> {
        Ok(0)
    }

    async fn count_replay(&self, _: &ConsumerName) -> StoreResult<()> {
        Ok(())
    }

    async fn dead_groups(&self, _: Option<&str>, _: u32, _: u64) -> StoreResult<Vec<DeadGroup>> {
        Ok(Vec::new())
    }

    async fn group_letters(&self, _: u32) -> StoreResult<u64> {
        Ok(0)
    }

    async fn edit_dead(&self, _: i64, _: u32, _: &LetterContent, _: &str) -> StoreResult<bool> {
        Ok(false)
    }
}

impl Pauses for Memory {
    async fn pause(&self, _: &ConsumerName, _: &PauseNote) -> StoreResult<bool> {
        Ok(false)
    }

    async fn resume(&self, _: &ConsumerName) -> StoreResult<bool> {
        Ok(false)
    }

    async fn paused(&self) -> StoreResult<Vec<Pause>> {
        Ok(Vec::new())
    }
}

impl Purge for Memory {
    async fn purged_before(&self, _: &mut Txn, _: &ConsumerName) -> StoreResult<Option<i64>> {
        Ok(None)
    }

    async fn purge(&self, _: PurgePass<'_>) -> StoreResult<Purged> {
        Ok(Purged::default())
    }
}

/// The handler: remembers the messages.
pub struct Apply;

impl oncebox_core::inbox::Apply<Memory> for Apply {
    async fn apply(&self, conn: &mut Vec<Message>, fresh: &[Message]) -> Result<(), Failure> {
        conn.extend_from_slice(fresh);
        Ok(())
    }
}

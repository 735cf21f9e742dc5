//! A store whose process dies at a commit: from then on nothing reaches the database.

use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use oncebox_core::error::Wording;
use oncebox_core::inbox::Selector;
use oncebox_core::names::ConsumerName;
use oncebox_core::source::LogId;
use oncebox_core::store::{
    Adopt, Advance, Claim, Claimed, DeadFilter, DeadGroup, DeadLetter, DeadLetters, DeadSummary, ErrorClass,
    InboxStore, LetterContent, Ownership, Pause, PauseNote, Pauses, PositionKey, Positions, Progress, Purge,
    PurgePass, Purged, Store, StoreError, StoreResult, StoredDeadLetter,
};

/// When the process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CrashPoint {
    /// The handler has done its work, the commit is not sent.
    BeforeCommit,
    /// The database has committed, nobody has heard of it.
    AfterCommit,
}

/// How the process is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Life {
    /// It runs.
    #[default]
    Alive,
    /// It runs, and dies at the next commit.
    Doomed(CrashPoint),
    /// It is dead. Its last transaction was to apply so many messages.
    Dead { at: CrashPoint, applies: u64 },
}

/// The life of the process, as the test decides it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Process(Arc<Mutex<Life>>);

impl Process {
    fn lock(&self) -> MutexGuard<'_, Life> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a new life. The tasks of the last one must have ended.
    pub(crate) fn begin(&self, crash: Option<CrashPoint>) {
        *self.lock() = crash.map_or(Life::Alive, Life::Doomed);
    }

    pub(crate) fn life(&self) -> Life {
        *self.lock()
    }

    fn dies(&self, at: CrashPoint, applies: u64) -> StoreError {
        *self.lock() = Life::Dead { at, applies };
        died()
    }

    fn alive(&self) -> StoreResult<()> {
        match self.life() {
            Life::Dead { .. } => Err(died()),
            Life::Alive | Life::Doomed(_) => Ok(()),
        }
    }
}

/// What ends every task of the engine without another word to the database: to be fenced.
fn died() -> StoreError {
    StoreError::new(ErrorClass::Fenced, "the test", "the process has died")
}

/// The store of a process that may die.
#[derive(Debug, Clone)]
pub(crate) struct Crashable<S> {
    pub(crate) store: S,
    pub(crate) process: Process,
}

impl<S: InboxStore> Store for Crashable<S> {
    type Conn = S::Conn;
    type Txn = S::Txn;

    fn adopted(&self) -> Option<&Adopt> {
        self.store.adopted()
    }

    fn further(&self) -> &[(String, Selector)] {
        self.store.further()
    }

    async fn claim(&self, consumer: &ConsumerName, claims: &[Claim<'_>]) -> StoreResult<Claimed<Self::Txn>> {
        self.process.alive()?;
        self.store.claim(consumer, claims).await
    }

    async fn claim_within(
        &self,
        conn: &mut Self::Conn,
        consumer: &ConsumerName,
        claims: &[Claim<'_>],
    ) -> StoreResult<Vec<bool>> {
        self.process.alive()?;
        self.store.claim_within(conn, consumer, claims).await
    }

    async fn commit(&self, txn: Self::Txn, advance: Option<Advance<'_>>) -> StoreResult<()> {
        let at = match self.process.life() {
            Life::Alive => return self.store.commit(txn, advance).await,
            Life::Dead { .. } => return Err(died()),
            Life::Doomed(at) => at,
        };
        match at {
            CrashPoint::BeforeCommit => drop(txn),
            CrashPoint::AfterCommit => self.store.commit(txn, advance).await?,
        }
        Err(self.process.dies(at, advance.map_or(0, |advance| advance.applied)))
    }

    async fn rollback(&self, txn: Self::Txn) {
        // Without the process the transaction ends with its connection.
        if self.process.alive().is_ok() {
            self.store.rollback(txn).await;
        }
    }

    async fn undo(&self, txn: Self::Txn) -> StoreResult<()> {
        match self.process.alive() {
            Ok(()) => self.store.undo(txn).await,
            Err(_) => Ok(()),
        }
    }

    fn wording(error: &(dyn Error + 'static), class: ErrorClass) -> Option<Wording> {
        S::wording(error, class)
    }

    fn classify(error: &(dyn Error + 'static)) -> ErrorClass {
        S::classify(error)
    }
}

impl<S: InboxStore> Positions for Crashable<S> {
    async fn acquire(&self, key: &PositionKey) -> StoreResult<Ownership> {
        self.process.alive()?;
        self.store.acquire(key).await
    }

    async fn record_progress(&self, owner: &Ownership, progress: Progress<'_>) -> StoreResult<()> {
        self.process.alive()?;
        self.store.record_progress(owner, progress).await
    }

    async fn release(&self, owner: &Ownership) -> StoreResult<()> {
        self.process.alive()?;
        self.store.release(owner).await
    }

    async fn record_attempt(&self, owner: &Ownership, offset: i64) -> StoreResult<u32> {
        self.process.alive()?;
        self.store.record_attempt(owner, offset).await
    }

    async fn withdraw_attempt(&self, owner: &Ownership, offset: i64) -> StoreResult<()> {
        self.process.alive()?;
        self.store.withdraw_attempt(owner, offset).await
    }

    async fn move_position(
        &self,
        key: &PositionKey,
        next_offset: i64,
        log: Option<&LogId>,
    ) -> StoreResult<()> {
        self.process.alive()?;
        self.store.move_position(key, next_offset, log).await
    }

    async fn retire_positions(&self, consumer: &ConsumerName, topic: &str) -> StoreResult<u64> {
        self.process.alive()?;
        self.store.retire_positions(consumer, topic).await
    }
}

impl<S: InboxStore> DeadLetters for Crashable<S> {
    async fn park(
        &self,
        txn: &mut Self::Txn,
        consumer: &ConsumerName,
        letters: &[DeadLetter],
    ) -> StoreResult<()> {
        self.process.alive()?;
        self.store.park(txn, consumer, letters).await
    }

    async fn parked_keys(
        &self,
        txn: &mut Self::Txn,
        position: &PositionKey,
        keys: &[&[u8]],
    ) -> StoreResult<Vec<Vec<u8>>> {
        self.process.alive()?;
        self.store.parked_keys(txn, position, keys).await
    }

    async fn take_dead(&self, number: i64) -> StoreResult<Option<(Self::Txn, StoredDeadLetter)>> {
        self.process.alive()?;
        self.store.take_dead(number).await
    }

    async fn letter_before(&self, txn: &mut Self::Txn, taken: &StoredDeadLetter) -> StoreResult<Option<i64>> {
        self.process.alive()?;
        self.store.letter_before(txn, taken).await
    }

    async fn dead_letters(&self, filter: &DeadFilter) -> StoreResult<Vec<DeadSummary>> {
        self.process.alive()?;
        self.store.dead_letters(filter).await
    }

    async fn dead_letter(&self, number: i64) -> StoreResult<Option<StoredDeadLetter>> {
        self.process.alive()?;
        self.store.dead_letter(number).await
    }

    async fn drop_dead(&self, filter: &DeadFilter) -> StoreResult<u64> {
        self.process.alive()?;
        self.store.drop_dead(filter).await
    }

    async fn count_replay(&self, consumer: &ConsumerName) -> StoreResult<()> {
        self.process.alive()?;
        self.store.count_replay(consumer).await
    }

    async fn dead_groups(
        &self,
        consumer: Option<&str>,
        limit: u32,
        count_cap: u64,
    ) -> StoreResult<Vec<DeadGroup>> {
        self.process.alive()?;
        self.store.dead_groups(consumer, limit, count_cap).await
    }

    async fn group_letters(&self, limit: u32) -> StoreResult<u64> {
        self.process.alive()?;
        self.store.group_letters(limit).await
    }

    async fn edit_dead(
        &self,
        number: i64,
        times_seen: u32,
        content: &LetterContent,
        by: &str,
    ) -> StoreResult<bool> {
        self.process.alive()?;
        self.store.edit_dead(number, times_seen, content, by).await
    }
}

impl<S: InboxStore> Pauses for Crashable<S> {
    async fn pause(&self, consumer: &ConsumerName, note: &PauseNote) -> StoreResult<bool> {
        self.store.pause(consumer, note).await
    }

    async fn resume(&self, consumer: &ConsumerName) -> StoreResult<bool> {
        self.store.resume(consumer).await
    }

    async fn paused(&self) -> StoreResult<Vec<Pause>> {
        self.store.paused().await
    }
}

impl<S: InboxStore> Purge for Crashable<S> {
    async fn purged_before(&self, txn: &mut Self::Txn, consumer: &ConsumerName) -> StoreResult<Option<i64>> {
        self.process.alive()?;
        self.store.purged_before(txn, consumer).await
    }

    async fn purge(&self, pass: PurgePass<'_>) -> StoreResult<Purged> {
        self.process.alive()?;
        self.store.purge(pass).await
    }
}

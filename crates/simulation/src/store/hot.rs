//! [`Store`] of the model database.

use std::error::Error;
use std::time::Duration;

use oncebox_core::inbox::ReceiptKey;
use oncebox_core::names::ConsumerName;
use oncebox_core::source::LogId;
use oncebox_core::store::{
    Advance, Check, Claim, Claimed, DeadFilter, DeadLetter, DeadLetters, DeadSummary, ErrorClass, Finding,
    Migrate, Migration, Ownership, PositionKey, Positions, Progress, Purge, PurgePass, Purged, Status, Store,
    StoreResult, StoreStatus, StoredDeadLetter,
};

use super::access::{away, error};
use super::{Conn, ModelError, ModelStore, Txn};
use crate::check::letter_name;
use crate::coverage::Event;
use crate::mistake::{Mistake, made};
use crate::plan::Fault;
use crate::world::{About, Inner};

/// How long a statement waits for another transaction.
const LOCK_TIMEOUT: Duration = Duration::from_secs(15);

impl Store for ModelStore {
    type Conn = Conn;
    type Txn = Txn;

    async fn claim(&self, consumer: &ConsumerName, claims: &[Claim<'_>]) -> StoreResult<Claimed<Txn>> {
        self.reach().await?;
        let txn = self.begin();
        let fresh = self.claim_in(txn.id, consumer, claims).await?;
        self.answer(Ok(())).await?;
        Ok(Claimed { txn, fresh, collisions: Vec::new() })
    }

    async fn claim_within(
        &self,
        conn: &mut Conn,
        consumer: &ConsumerName,
        claims: &[Claim<'_>],
    ) -> StoreResult<Vec<bool>> {
        self.reach().await?;
        self.claim_in(conn.id, consumer, claims).await
    }

    async fn commit(&self, txn: Txn, advance: Option<Advance<'_>>) -> StoreResult<()> {
        self.commit_txn(txn, advance).await
    }

    async fn rollback(&self, txn: Txn) {
        self.world.takes_time(self.actor).await;
        drop(txn);
    }

    fn classify(error: &(dyn Error + 'static)) -> ErrorClass {
        let mut cause = Some(error);
        while let Some(inner) = cause {
            if let Some(model) = inner.downcast_ref::<ModelError>() {
                return model.class;
            }
            cause = inner.source();
        }
        ErrorClass::Failed
    }
}

impl Positions for ModelStore {
    async fn acquire(&self, key: &PositionKey) -> StoreResult<Ownership> {
        self.take_over(key).await
    }

    async fn record_progress(&self, owner: &Ownership, progress: Progress<'_>) -> StoreResult<()> {
        self.write_progress(owner, progress).await
    }

    async fn release(&self, owner: &Ownership) -> StoreResult<()> {
        self.give_back(owner).await
    }

    async fn record_attempt(&self, owner: &Ownership, offset: i64) -> StoreResult<u32> {
        self.write_attempt(owner, offset).await
    }

    async fn withdraw_attempt(&self, owner: &Ownership, offset: i64) -> StoreResult<()> {
        self.take_back_attempt(owner, offset).await
    }

    async fn move_position(
        &self,
        key: &PositionKey,
        next_offset: i64,
        log: Option<&LogId>,
    ) -> StoreResult<()> {
        self.set_position(key, next_offset, log).await
    }

    async fn retire_positions(&self, consumer: &ConsumerName, topic: &str) -> StoreResult<u64> {
        self.operation(|inner| {
            let consumer = inner.log.consumer_index(consumer.as_str());
            let topic = inner.log.place(topic, 0).topic;
            let rows = inner.db.tables.positions.iter_mut();
            let mut retired = 0;
            for (_, row) in rows.filter(|(spot, _)| spot.consumer == consumer && spot.place.topic == topic) {
                row.retired = true;
                retired += 1;
            }
            Ok(retired)
        })
        .await
    }
}

impl DeadLetters for ModelStore {
    async fn park(&self, txn: &mut Txn, consumer: &ConsumerName, letters: &[DeadLetter]) -> StoreResult<()> {
        self.statement(txn.id, |inner, id| inner.park(id, consumer, letters)).await
    }

    async fn parked_keys(
        &self,
        txn: &mut Txn,
        position: &PositionKey,
        keys: &[&[u8]],
    ) -> StoreResult<Vec<Vec<u8>>> {
        self.statement(txn.id, |inner, _| Ok(inner.parked_keys(position, keys))).await
    }

    async fn take_dead(&self, number: i64) -> StoreResult<Option<(Txn, StoredDeadLetter)>> {
        self.take_letter(number).await
    }

    async fn letter_before(&self, txn: &mut Txn, taken: &StoredDeadLetter) -> StoreResult<Option<i64>> {
        self.statement(txn.id, |inner, _| Ok(inner.letter_before(taken))).await
    }

    async fn dead_letters(&self, filter: &DeadFilter) -> StoreResult<Vec<DeadSummary>> {
        let summary = |stored: StoredDeadLetter| DeadSummary {
            number: stored.number,
            consumer: stored.consumer,
            tenant: stored.letter.tenant.as_str().to_owned(),
            message_id: stored.letter.message_id,
            topic: stored.letter.record.topic.to_string(),
            partition: stored.letter.record.partition,
            offset: stored.letter.record.offset,
            key: stored.letter.record.key.map(|key| key.to_vec()),
            payload_bytes: stored.letter.record.payload.map(|payload| payload.len() as u64),
            error: stored.letter.error,
            attempts: stored.letter.attempts,
            failed_at_ms: stored.failed_at_ms,
        };
        self.operation(|inner| Ok(inner.letters(filter).into_iter().map(summary).collect())).await
    }

    async fn dead_letter(&self, number: i64) -> StoreResult<Option<StoredDeadLetter>> {
        self.operation(|inner| Ok(inner.db.tables.letters.get(&number).map(|row| row.stored.clone()))).await
    }

    async fn drop_dead(&self, filter: &DeadFilter) -> StoreResult<u64> {
        self.operation(|inner| {
            let letters = inner.letters(filter);
            let mut dropped = 0;
            for stored in letters {
                let Some(row) = inner.db.tables.letters.get(&stored.number) else { continue };
                if row.taken_by.is_some() {
                    continue;
                }
                let name = (row.consumer, letter_name(row));
                inner.db.tables.letters.remove(&stored.number);
                inner.db.tables.dropped.insert(name);
                dropped += 1;
            }
            Ok(dropped)
        })
        .await
    }
}

impl Purge for ModelStore {
    async fn purged_before(&self, txn: &mut Txn, consumer: &ConsumerName) -> StoreResult<Option<i64>> {
        self.statement(txn.id, |inner, _| {
            let consumer = inner.log.consumer_index(consumer.as_str());
            Ok(inner.db.tables.purged_before.get(&consumer).copied())
        })
        .await
    }

    async fn purge(&self, pass: PurgePass<'_>) -> StoreResult<Purged> {
        self.purge_pass(pass).await
    }
}

impl Migrate for ModelStore {
    async fn migrations(&self) -> StoreResult<Vec<Migration>> {
        Ok(Vec::new())
    }

    async fn migrate(&self) -> StoreResult<Vec<Migration>> {
        Ok(Vec::new())
    }
}

impl Check for ModelStore {
    async fn ping(&self) -> StoreResult<()> {
        self.operation(|_| Ok(())).await
    }

    async fn check(&self) -> StoreResult<Vec<Finding>> {
        Ok(Vec::new())
    }
}

impl Status for ModelStore {
    async fn status(&self, _count_cap: u64) -> StoreResult<StoreStatus> {
        Ok(StoreStatus::default())
    }
}

/// What a claim finds.
enum Found {
    Fresh,
    Duplicate,
    /// Another open transaction has it.
    Busy,
}

impl ModelStore {
    /// Writes receipts into an open transaction; waits for others that have them.
    async fn claim_in(
        &self,
        txn: u64,
        consumer: &ConsumerName,
        claims: &[Claim<'_>],
    ) -> StoreResult<Vec<bool>> {
        let consumer = self.world.lock().log.consumer_index(consumer.as_str());
        let mut order: Vec<usize> = (0..claims.len()).collect();
        // As a sorted statement does it: two claims never wait for each other.
        order.sort_by_key(|at| claims[*at].key);
        let mut fresh = vec![false; claims.len()];
        for at in order {
            let claim = &claims[at];
            let mut waited = false;
            let look = |inner: &mut Inner| {
                let found = inner.in_txn(txn, |inner, id| inner.look_for(id, claim.key));
                match found {
                    Ok(Found::Busy) if made(Mistake::SkipOnBusyLock) => Some(Ok(false)),
                    Ok(Found::Busy) => {
                        waited = true;
                        None
                    }
                    Ok(Found::Duplicate) => Some(Ok(made(Mistake::NoDedupe))),
                    Ok(Found::Fresh) => {
                        let receipt = (claim.key, consumer, claim.message_id.to_owned());
                        inner.db.open.get_mut(&txn)?.receipts.push(receipt);
                        Some(Ok(true))
                    }
                    Err(error) => Some(Err(error)),
                }
            };
            let found = tokio::time::timeout(LOCK_TIMEOUT, self.world.until(About::Transactions, look)).await;
            if waited {
                self.world.lock().saw(Event::WaitedForReceipt);
            }
            self.world.alive(self.actor).await;
            fresh[at] =
                found.unwrap_or_else(|_| Err(error(ErrorClass::Transient, "waited too long for a lock")))?;
        }
        Ok(fresh)
    }
}

impl Inner {
    fn look_for(&self, txn: u64, key: ReceiptKey) -> StoreResult<Found> {
        if self.db.tables.receipts.contains_key(&key) {
            return Ok(Found::Duplicate);
        }
        let holder =
            self.db.open.iter().find(|(_, open)| open.receipts.iter().any(|(held, _, _)| *held == key));
        Ok(match holder {
            Some((id, _)) if *id == txn => Found::Duplicate,
            Some(_) => Found::Busy,
            None => Found::Fresh,
        })
    }
}

impl Conn {
    /// The handler's own statement: writes the effect of a message.
    pub(crate) async fn write_effect(&mut self, effect: super::Effect) -> StoreResult<()> {
        let store = self.store.clone();
        store
            .statement(self.id, |inner, id| {
                if inner.db.table_missing {
                    return Err(error(ErrorClass::Environment, "the table is missing"));
                }
                if inner.db.takes(Fault::Deadlock) {
                    inner.saw(Event::Deadlock);
                    inner.expose(id);
                    if let Some(open) = inner.db.open.get_mut(&id) {
                        open.poisoned = true;
                    }
                    return Err(error(ErrorClass::Transient, "deadlock"));
                }
                if made(Mistake::TwoTransactions) {
                    inner.apply_at_once(effect);
                    return Ok(());
                }
                let Some(open) = inner.db.open.get_mut(&id) else { return Err(away()) };
                open.effects.push(super::Effect {
                    true_ms: open.began_ms,
                    replayed: open.taken.is_some(),
                    ..effect
                });
                Ok(())
            })
            .await
    }

    /// The transaction is about this message, too.
    pub(crate) fn is_about(&mut self, number: u32) {
        if let Some(open) = self.store.world.lock().db.open.get_mut(&self.id) {
            open.numbers.push(number);
        }
    }

    /// The handler has swallowed an error: nothing else works in this transaction.
    pub(crate) fn poison(&mut self) {
        if let Some(open) = self.store.world.lock().db.open.get_mut(&self.id) {
            open.poisoned = true;
        }
    }
}

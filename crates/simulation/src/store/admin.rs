//! [`Admin`] of the model database, as far as the engine and the simulated operators use it.

use oncebox_core::{
    Admin, ConsumerName, DeadFilter, DeadSummary, Finding, LogId, Migration, PositionKey, PurgePass, Purged,
    StoreResult, StoreStatus, StoredDeadLetter,
};

use super::ModelStore;
use crate::check::letter_name;

impl Admin for ModelStore {
    async fn ping(&self) -> StoreResult<()> {
        self.operation(|_| Ok(())).await
    }

    async fn migrations(&self) -> StoreResult<Vec<Migration>> {
        Ok(Vec::new())
    }

    async fn migrate(&self) -> StoreResult<Vec<Migration>> {
        Ok(Vec::new())
    }

    async fn check(&self) -> StoreResult<Vec<Finding>> {
        Ok(Vec::new())
    }

    async fn status(&self, _count_cap: u64) -> StoreResult<StoreStatus> {
        Ok(StoreStatus::default())
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

    async fn purge(&self, pass: PurgePass<'_>) -> StoreResult<Purged> {
        self.purge_pass(pass).await
    }
}

//! What people see of the model database.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use oncebox_core::store::{
    ConsumerStatus, EventState, OutboxStatus, PositionStatus, ShardStatus, Status, StoreResult, StoreStatus,
};

use super::{EventRowState, ModelStore};
use crate::world::Inner;

impl Status for ModelStore {
    async fn status(&self, count_cap: u64) -> StoreResult<StoreStatus> {
        self.operation(|inner| {
            Ok(StoreStatus {
                positions: inner.positions(),
                consumers: inner.consumers(count_cap),
                receipts_estimate: inner.db.tables.receipts.len() as u64,
                outbox: inner.outbox(count_cap),
            })
        })
        .await
    }
}

impl Inner {
    fn positions(&self) -> Vec<PositionStatus> {
        let status = |(spot, row): (&super::Spot, &super::tables::PositionRow)| PositionStatus {
            consumer: self.log.consumer(spot.consumer),
            topic: self.log.topic_name(spot.place.topic).to_string(),
            partition: i32::try_from(spot.place.partition).unwrap_or(i32::MAX),
            next_offset: row.next_offset,
            log: row.log.as_ref().map(ToString::to_string),
            caught_up_ms: row.caught_up_ms,
            retired: row.retired,
            epoch: row.epoch,
            starts: row.starts,
            applied: row.applied,
            duplicates: row.duplicates,
            updated_at_ms: row.updated_ms,
        };
        let mut positions: Vec<_> = self.db.tables.positions.iter().map(status).collect();
        positions
            .sort_by(|a, b| (&a.consumer, &a.topic, a.partition).cmp(&(&b.consumer, &b.topic, b.partition)));
        positions
    }

    fn consumers(&self, cap: u64) -> Vec<ConsumerStatus> {
        let tables = &self.db.tables;
        let mut letters: BTreeMap<usize, u64> = BTreeMap::new();
        let known = tables.positions.keys().map(|spot| spot.consumer);
        for consumer in known.chain(tables.purged_before.keys().copied()) {
            letters.entry(consumer).or_default();
        }
        for consumer in tables.replayed.keys() {
            letters.entry(*consumer).or_default();
        }
        for row in tables.letters.values() {
            *letters.entry(row.consumer).or_default() += 1;
        }
        let status = |(consumer, letters): (usize, u64)| ConsumerStatus {
            consumer: self.log.consumer(consumer),
            dead_letters: letters.min(cap),
            purged_before_ms: tables.purged_before.get(&consumer).copied(),
            replayed: tables.replayed.get(&consumer).copied().unwrap_or_default(),
        };
        let mut consumers: Vec<_> = letters.into_iter().map(status).collect();
        consumers.sort_by(|a, b| a.consumer.cmp(&b.consumer));
        consumers
    }

    fn outbox(&self, cap: u64) -> OutboxStatus {
        let (tables, now) = (&self.db.tables, self.db_now_ms());
        let ago = |ms: i64| Duration::from_millis(u64::try_from(ms).unwrap_or_default());
        let pending = || tables.outbox.values().filter(|row| row.is_pending());
        let in_state = |wanted: EventState| {
            let rows = tables.outbox.values().filter(|row: &&EventRowState| tables.state(row, now) == wanted);
            (rows.count() as u64).min(cap)
        };
        let shards = tables.shards.iter().enumerate().map(|(shard, row)| {
            let owner = row.relay.filter(|_| row.until_ms > now);
            ShardStatus {
                shard: shard as u16,
                owner: owner.and_then(|relay| tables.relays.get(&relay)).map(|relay| relay.name.clone()),
                epoch: row.epoch,
                expires_in: owner.map(|_| ago(row.until_ms - now)),
            }
        });
        OutboxStatus {
            pending: (pending().count() as u64).min(cap),
            oldest: self.oldest_due().map(|at| ago(now - at)),
            delayed: in_state(EventState::Delayed),
            held: in_state(EventState::Held),
            parked: in_state(EventState::Parked),
            shards: shards.collect(),
        }
    }

    /// Since when the oldest event waits of those that wait for nothing but a relay or a receiver.
    fn oldest_due(&self) -> Option<i64> {
        let now = self.db_now_ms();
        let mut oldest = None;
        let mut delayed = BTreeSet::new();
        for row in self.db.tables.outbox.values().filter(|row| row.is_pending()) {
            let event = &row.event;
            let key = event.key.as_deref().map(|key| (&*event.topic, key));
            if row.is_early(now) {
                delayed.extend(key);
            } else if key.is_none_or(|key| !delayed.contains(&key)) {
                let since = event.created_at_ms.max(event.deliver_at_ms.unwrap_or_default());
                oldest = Some(oldest.map_or(since, |oldest: i64| oldest.min(since)));
            }
        }
        oldest
    }
}

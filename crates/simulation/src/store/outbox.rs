//! [`Outbox`] and [`OutboxAdmin`] of the model database.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use bytes::Bytes;
use oncebox_core::inbox::BatchBounds;
use oncebox_core::outbox::EventRow;
use oncebox_core::store::{
    Deliveries, EventFilter, EventState, Lease, Leases, Outbox, OutboxAdmin, OutboxEntry, SHARDS,
    StoreResult, StoredEvent, Sweep, headers_json,
};
use uuid::Uuid;

use super::access::away;
use super::{Conn, EventRowState, ModelStore};
use crate::coverage::Event;
use crate::mistake::{Mistake, made};
use crate::world::Inner;

impl Outbox for ModelStore {
    async fn write_events(conn: &mut Conn, events: &[EventRow<'_>]) -> StoreResult<()> {
        let store = conn.store.clone();
        store.statement(conn.id, |inner, id| inner.write_events(id, events)).await
    }

    async fn lease(&self, relay: Uuid, _name: &str, duration: Duration) -> StoreResult<Leases> {
        self.operation(|inner| Ok(inner.lease(relay, millis(duration)))).await
    }

    async fn release_shards(&self, relay: Uuid, shards: &[u16], leaving: bool) -> StoreResult<()> {
        self.operation(|inner| {
            let tables = &mut inner.db.tables;
            for shard in shards {
                let row = &mut tables.shards[usize::from(*shard)];
                if row.relay == Some(relay) {
                    row.relay = None;
                }
            }
            if leaving {
                tables.relays.retain(|(known, _)| *known != relay);
            }
            Ok(())
        })
        .await
    }

    async fn ready(&self, shards: &[u16]) -> StoreResult<Vec<(String, u16)>> {
        self.operation(|inner| {
            let mut ready = BTreeSet::new();
            for shard in shards {
                for event in inner.publishable(None, &[*shard]) {
                    ready.insert((event.topic.to_string(), *shard));
                }
            }
            Ok(ready.into_iter().collect())
        })
        .await
    }

    async fn next_events(
        &self,
        topic: &str,
        shards: &[u16],
        bounds: BatchBounds,
    ) -> StoreResult<Vec<StoredEvent>> {
        self.operation(|inner| {
            let mut events = inner.publishable(Some(topic), shards);
            events.truncate(bounds.messages.max(1));
            if made(Mistake::DeleteBeforeReport) {
                events.iter().for_each(|event| drop(inner.db.tables.outbox.remove(&event.seq)));
            }
            Ok(events)
        })
        .await
    }

    async fn record_deliveries(&self, deliveries: &Deliveries) -> StoreResult<()> {
        self.operation(|inner| {
            inner.record_deliveries(deliveries);
            Ok(())
        })
        .await
    }
}

impl OutboxAdmin for ModelStore {
    async fn events(&self, filter: &EventFilter) -> StoreResult<Vec<OutboxEntry>> {
        self.operation(|inner| {
            let rows = inner.db.tables.outbox.range(filter.after + 1..).take(filter.limit as usize);
            Ok(rows.map(|(_, row)| entry(row)).collect())
        })
        .await
    }

    async fn retry_events(&self, _filter: &EventFilter) -> StoreResult<u64> {
        self.operation(|inner| {
            let mut retried = 0;
            for row in inner.db.tables.outbox.values_mut().filter(|row| row.published_ms.is_none()) {
                if row.parked || row.held_until_ms.is_some() {
                    (row.parked, row.held_until_ms, row.event.attempts) = (false, None, 0);
                    retried += 1;
                }
            }
            Ok(retried)
        })
        .await
    }

    async fn drop_events(&self, _filter: &EventFilter) -> StoreResult<u64> {
        Ok(0)
    }

    async fn purge_published(&self, keep: Duration) -> StoreResult<u64> {
        self.operation(|inner| {
            let before = inner.db_now_ms() - millis(keep);
            let outbox = &mut inner.db.tables.outbox;
            let count = outbox.len();
            outbox.retain(|_, row| row.published_ms.is_none_or(|at| at > before));
            Ok((count - outbox.len()) as u64)
        })
        .await
    }

    async fn sweep(&self, _sweep: &Sweep) -> StoreResult<u64> {
        Ok(0)
    }

    async fn check_sweep(&self, _sweep: &Sweep) -> StoreResult<()> {
        Ok(())
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn shard_of(key: Option<&[u8]>, seq: i64) -> u16 {
    let mut hasher = DefaultHasher::new();
    match key {
        Some(key) => key.hash(&mut hasher),
        None => seq.hash(&mut hasher),
    }
    (hasher.finish() % u64::from(SHARDS)) as u16
}

fn entry(row: &EventRowState) -> OutboxEntry {
    let state = match row {
        _ if row.published_ms.is_some() => EventState::Published,
        _ if row.parked => EventState::Parked,
        _ if row.held_until_ms.is_some() => EventState::Held,
        _ => EventState::Pending,
    };
    OutboxEntry {
        event: row.event.clone(),
        shard: row.shard,
        consumer: None,
        tenant: None,
        state,
        state_at_ms: row.published_ms,
        error: None,
    }
}

impl Inner {
    fn write_events(&mut self, id: u64, events: &[EventRow<'_>]) -> StoreResult<()> {
        let created_at_ms = self.db_now_ms();
        for event in events {
            let seq = self.db.next_event;
            self.db.next_event += 1;
            let stored = StoredEvent {
                seq,
                id: event.id,
                topic: event.topic.into(),
                key: event.key.map(Bytes::copy_from_slice),
                payload: event.payload.map(Bytes::copy_from_slice),
                headers: headers_json::from_either(&event.headers).unwrap_or_default(),
                created_at_ms,
                causation_id: event.causation_id.clone(),
                attempts: 0,
            };
            let shard = shard_of(event.key, seq);
            if made(Mistake::PublishBeforeCommit) {
                let row = EventRowState {
                    event: stored.clone(),
                    shard,
                    held_until_ms: None,
                    parked: false,
                    published_ms: None,
                };
                self.db.tables.outbox.insert(seq, row);
            }
            let Some(open) = self.db.open.get_mut(&id) else { return Err(away()) };
            open.events.push((seq, shard, stored));
        }
        Ok(())
    }

    fn lease(&mut self, relay: Uuid, duration: i64) -> Leases {
        let now = self.db_now_ms();
        let tables = &mut self.db.tables;
        tables.relays.retain(|(known, _)| *known != relay);
        tables.relays.push((relay, now + duration));
        let alive = tables.relays.iter().filter(|(_, until)| *until > now).count().max(1);
        let fair_share = usize::from(SHARDS).div_ceil(alive);
        let mut mine = 0;
        for row in tables.shards.iter_mut().filter(|row| row.relay == Some(relay)) {
            row.until_ms = now + duration;
            mine += 1;
        }
        let mut taken = 0;
        for row in &mut tables.shards {
            if mine < fair_share && row.relay != Some(relay) && (row.relay.is_none() || row.until_ms <= now) {
                taken += u32::from(row.relay.is_some());
                row.relay = Some(relay);
                row.epoch += 1;
                row.until_ms = now + duration;
                mine += 1;
            }
        }
        let held = tables.shards.iter().enumerate().filter(|(_, row)| row.relay == Some(relay));
        let held = held.map(|(shard, row)| Lease { shard: shard as u16, epoch: row.epoch }).collect();
        for _ in 0..taken {
            self.saw(Event::LeaseLost);
        }
        Leases { held, fair_share }
    }

    /// What can go out now, in order; nothing behind an event of its key that is held.
    fn publishable(&self, topic: Option<&str>, shards: &[u16]) -> Vec<StoredEvent> {
        let now = self.db_now_ms();
        let mut held: BTreeSet<(&str, &[u8])> = BTreeSet::new();
        let mut events = Vec::new();
        for row in self.db.tables.outbox.values().filter(|row| row.is_pending()) {
            let event = &row.event;
            let passed = self.db.tables.cursors.get(&row.shard).is_some_and(|cursor| event.seq <= *cursor);
            if passed || topic.is_some_and(|topic| *event.topic != *topic) || !shards.contains(&row.shard) {
                continue;
            }
            let key = event.key.as_deref().map(|key| (&*event.topic, key));
            let behind = key.is_some_and(|key| held.contains(&key));
            if behind || row.held_until_ms.is_some_and(|until| until > now) {
                held.extend(key);
                continue;
            }
            events.push(event.clone());
        }
        events
    }

    fn record_deliveries(&mut self, deliveries: &Deliveries) {
        let now = self.db_now_ms();
        for seq in &deliveries.published {
            self.check_removed(*seq);
            if made(Mistake::CursorRelay)
                && let Some(shard) = self.db.tables.outbox.get(seq).map(|row| row.shard)
            {
                let cursor = self.db.tables.cursors.entry(shard).or_insert(*seq);
                *cursor = (*cursor).max(*seq);
            }
            if deliveries.keep {
                if let Some(row) = self.db.tables.outbox.get_mut(seq) {
                    row.published_ms.get_or_insert(now);
                }
            } else {
                self.db.tables.outbox.remove(seq);
            }
        }
        for parked in &deliveries.parked {
            self.refused(parked.seq);
        }
        let tables = &mut self.db.tables;
        let owned = |tables: &super::Tables, shard: u16| {
            let epoch = tables.shards[usize::from(shard)].epoch;
            deliveries.leases.iter().any(|lease| lease.shard == shard && lease.epoch == epoch)
        };
        for held in &deliveries.held {
            let Some(shard) =
                tables.outbox.get(&held.seq).filter(|row| row.is_pending()).map(|row| row.shard)
            else {
                continue;
            };
            if owned(tables, shard)
                && let Some(row) = tables.outbox.get_mut(&held.seq)
            {
                row.held_until_ms = Some(now + millis(held.delay));
                row.event.attempts += u32::from(held.error.is_some());
            }
        }
        for parked in &deliveries.parked {
            let Some(shard) =
                tables.outbox.get(&parked.seq).filter(|row| row.is_pending()).map(|row| row.shard)
            else {
                continue;
            };
            if owned(tables, shard)
                && let Some(row) = tables.outbox.get_mut(&parked.seq)
            {
                row.parked = true;
                row.held_until_ms = None;
            }
        }
    }
}

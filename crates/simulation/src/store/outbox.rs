//! [`Outbox`] of the model database.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use bytes::Bytes;
use oncebox_core::inbox::BatchBounds;
use oncebox_core::outbox::EventRow;
use oncebox_core::store::{
    Deliveries, Lease, Leases, Outbox, Ready, SHARDS, StoreResult, StoredEvent, headers_json,
};
use uuid::Uuid;

use super::access::away;
use super::tables::RelayRow;
use super::{Conn, EventRowState, ModelStore};
use crate::coverage::Event;
use crate::mistake::{Mistake, made};
use crate::world::Inner;

impl Outbox for ModelStore {
    async fn write_events(conn: &mut Conn, events: &[EventRow<'_>]) -> StoreResult<()> {
        let store = conn.store.clone();
        store.statement(conn.id, |inner, id| inner.write_events(id, events)).await
    }

    async fn lease(&self, relay: Uuid, name: &str, duration: Duration) -> StoreResult<Leases> {
        self.operation(|inner| Ok(inner.lease(relay, name, millis(duration)))).await
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
                tables.relays.remove(&relay);
            }
            Ok(())
        })
        .await
    }

    async fn ready_from(&self, shards: &[u16], from: &str, topics: u16) -> StoreResult<Ready> {
        self.operation(|inner| {
            let mut ready = BTreeSet::new();
            for shard in shards {
                for event in inner.publishable(None, &[*shard]).iter().filter(|event| &*event.topic >= from) {
                    ready.insert((event.topic.to_string(), *shard));
                }
            }
            let names: BTreeSet<&str> = ready.iter().map(|(topic, _)| topic.as_str()).collect();
            let more_from = names.into_iter().nth(topics.into()).map(str::to_owned);
            let is_looked_at = |topic: &str| more_from.as_deref().is_none_or(|end| topic < end);
            let places = ready.iter().filter(|(topic, _)| is_looked_at(topic)).cloned().collect();
            Ok(Ready { places, more_from })
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
            events.truncate(fitting(&events, bounds));
            if made(Mistake::DeleteBeforeReport) {
                events.iter().for_each(|event| drop(inner.db.tables.outbox.remove(&event.seq)));
            }
            Ok(events)
        })
        .await
    }

    async fn clock_ms(&self) -> StoreResult<i64> {
        self.operation(|inner| Ok(inner.db_now_ms())).await
    }

    async fn record_deliveries(&self, deliveries: &Deliveries) -> StoreResult<()> {
        self.operation(|inner| {
            inner.record_deliveries(deliveries);
            Ok(())
        })
        .await
    }
}

pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// How many of these fit; one always does.
fn fitting(events: &[StoredEvent], bounds: BatchBounds) -> usize {
    let mut bytes = 0;
    let fits = |event: &&StoredEvent| {
        bytes += event.byte_len();
        bytes <= bounds.bytes
    };
    events.iter().take(bounds.messages).take_while(fits).count().max(1)
}

fn shard_of(key: Option<&[u8]>, seq: i64) -> u16 {
    let mut hasher = DefaultHasher::new();
    match key {
        Some(key) => key.hash(&mut hasher),
        None => seq.hash(&mut hasher),
    }
    (hasher.finish() % u64::from(SHARDS)) as u16
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
                deliver_at_ms: event.deliver_at_ms,
                causation_id: event.causation_id.clone(),
                attempts: 0,
            };
            let row = EventRowState {
                event: stored,
                shard: shard_of(event.key, seq),
                consumer: event.consumer.clone(),
                tenant: event.tenant.clone(),
                held_until_ms: None,
                parked_ms: None,
                published_ms: None,
                error: None,
            };
            if made(Mistake::PublishBeforeCommit) {
                self.db.tables.outbox.insert(seq, row.clone());
            }
            let Some(open) = self.db.open.get_mut(&id) else { return Err(away()) };
            open.events.push(row);
        }
        Ok(())
    }

    fn lease(&mut self, relay: Uuid, name: &str, duration: i64) -> Leases {
        let now = self.db_now_ms();
        let tables = &mut self.db.tables;
        tables.relays.insert(relay, RelayRow { name: name.to_owned(), until_ms: now + duration });
        let alive = tables.relays.values().filter(|row| row.until_ms > now).count().max(1);
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
                    (row.held_until_ms, row.parked_ms, row.error) = (None, None, None);
                }
            } else {
                self.db.tables.outbox.remove(seq);
            }
        }
        for parked in &deliveries.parked {
            self.check_parked(parked);
            self.refused(parked.seq);
        }
        let waits_for_its_time = deliveries.held.iter().any(|held| {
            let row = self.db.tables.outbox.get(&held.seq);
            row.is_some_and(|row| row.event.deliver_at_ms.is_some_and(|at| at > now))
        });
        if waits_for_its_time {
            self.saw(Event::EventDelayed);
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
            let behind = held.error.is_none() && tables.is_behind(held.seq, now);
            if owned(tables, shard)
                && let Some(row) = tables.outbox.get_mut(&held.seq)
            {
                row.held_until_ms = (!behind).then_some(now + millis(held.delay));
                row.event.attempts += u32::from(held.error.is_some());
                row.error = held.error.clone().or(row.error.take());
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
                row.event.attempts += 1;
                (row.parked_ms, row.held_until_ms) = (Some(now), None);
                row.error = Some(parked.error.clone());
            }
        }
    }
}

//! [`OutboxAdmin`] of the model database.

use std::time::Duration;

use oncebox_core::store::{
    CausedEvents, ErrorClass, EventFilter, EventState, OutboxAdmin, OutboxEntry, StoreResult, Sweep,
};

use super::access::error;
use super::outbox::millis;
use super::{EventRowState, ModelStore};
use crate::world::Inner;

impl OutboxAdmin for ModelStore {
    async fn events(&self, filter: &EventFilter) -> StoreResult<Vec<OutboxEntry>> {
        self.operation(|inner| {
            let found = inner.events(filter);
            let (tables, now) = (&inner.db.tables, inner.db_now_ms());
            let rows = found.iter().filter_map(|seq| tables.outbox.get(seq));
            Ok(rows.map(|row| entry(row, tables.state(row, now))).collect())
        })
        .await
    }

    async fn events_caused_by(&self, message_id: &str, newest: u32) -> StoreResult<CausedEvents> {
        self.operation(|inner| {
            let (tables, now) = (&inner.db.tables, inner.db_now_ms());
            let last = tables.outbox.keys().next_back().copied().unwrap_or_default();
            let after = last.saturating_sub(newest.into());
            let rows = tables.outbox.range(after.saturating_add(1)..).map(|(_, row)| row);
            let caused = rows.filter(|row| row.event.causation_id.as_deref() == Some(message_id));
            let events = caused.map(|row| entry(row, tables.state(row, now))).collect();
            Ok(CausedEvents { events, looked_at_all: tables.outbox.range(..=after).next().is_none() })
        })
        .await
    }

    async fn retry_events(&self, filter: &EventFilter) -> StoreResult<u64> {
        self.operation(|inner| {
            let now = inner.db_now_ms();
            let send_now = filter.state == Some(EventState::Delayed);
            let mut found = inner.events(filter);
            let tables = &mut inner.db.tables;
            found.retain(|seq| {
                let state = tables.outbox.get(seq).map(|row| tables.state(row, now));
                matches!(state, Some(EventState::Held | EventState::Parked)) || send_now
            });
            for seq in &found {
                let Some(row) = tables.outbox.get_mut(seq) else { continue };
                (row.parked_ms, row.held_until_ms, row.event.attempts) = (None, None, 0);
                if send_now {
                    row.event.deliver_at_ms = Some(now);
                }
            }
            Ok(found.len() as u64)
        })
        .await
    }

    async fn park_events(&self, filter: &EventFilter, reason: &str) -> StoreResult<u64> {
        self.operation(|inner| {
            let (now, found) = (inner.db_now_ms(), inner.events(filter));
            let outbox = &mut inner.db.tables.outbox;
            let mut parked = 0;
            for seq in found {
                let Some(row) = outbox.get_mut(&seq) else { continue };
                if row.published_ms.is_none() && row.parked_ms.is_none() {
                    (row.parked_ms, row.held_until_ms, row.error) =
                        (Some(now), None, Some(reason.to_owned()));
                    parked += 1;
                }
            }
            Ok(parked)
        })
        .await
    }

    async fn drop_events(&self, filter: &EventFilter) -> StoreResult<u64> {
        self.operation(|inner| {
            let found = inner.events(filter);
            let dropped = found.iter().filter_map(|seq| inner.db.tables.outbox.remove(seq));
            Ok(dropped.count() as u64)
        })
        .await
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

    async fn sweep(&self, sweep: &Sweep) -> StoreResult<u64> {
        self.check_sweep(sweep).await.map(|()| 0)
    }

    /// The model knows no query language.
    async fn check_sweep(&self, _sweep: &Sweep) -> StoreResult<()> {
        Err(error(ErrorClass::Failed, "the model database runs no queries"))
    }
}

fn entry(row: &EventRowState, state: EventState) -> OutboxEntry {
    let due = row.event.deliver_at_ms.filter(|_| state == EventState::Delayed);
    OutboxEntry {
        event: row.event.clone(),
        shard: row.shard,
        consumer: row.consumer.clone(),
        tenant: row.tenant.clone(),
        state,
        state_at_ms: row.published_ms.or(row.parked_ms).or(due).or(row.held_until_ms),
        error: row.error.clone(),
    }
}

impl Inner {
    /// The places of the events that a filter means.
    fn events(&self, filter: &EventFilter) -> Vec<i64> {
        let now = self.db_now_ms();
        let wanted = |row: &&EventRowState| {
            let event = &row.event;
            (filter.seqs.is_empty() || filter.seqs.contains(&event.seq))
                && filter.id.is_none_or(|id| id == event.id)
                && filter.state.is_none_or(|wanted| wanted == self.db.tables.state(row, now))
                && filter.topic.as_ref().is_none_or(|topic| **topic == *event.topic)
                && filter.key.as_ref().is_none_or(|key| event.key.as_ref().is_some_and(|known| known == key))
                && event.seq > filter.after
                && filter.until.is_none_or(|until| event.seq <= until)
        };
        let rows = self.db.tables.outbox.values().filter(wanted);
        rows.take(filter.limit as usize).map(|row| row.event.seq).collect()
    }
}

//! [`OutboxAdmin`] of the model database.

use std::time::Duration;

use oncebox_core::store::{
    ErrorClass, EventFilter, EventState, OutboxAdmin, OutboxEntry, StoreResult, Sweep,
};

use super::access::error;
use super::outbox::millis;
use super::{EventRowState, ModelStore};
use crate::world::Inner;

impl OutboxAdmin for ModelStore {
    async fn events(&self, filter: &EventFilter) -> StoreResult<Vec<OutboxEntry>> {
        self.operation(|inner| {
            let found = inner.events(filter);
            Ok(found.iter().filter_map(|seq| inner.db.tables.outbox.get(seq)).map(entry).collect())
        })
        .await
    }

    async fn retry_events(&self, filter: &EventFilter) -> StoreResult<u64> {
        self.operation(|inner| {
            let mut retried = 0;
            for seq in inner.events(filter) {
                let Some(row) = inner.db.tables.outbox.get_mut(&seq) else { continue };
                if matches!(state(row), EventState::Held | EventState::Parked) {
                    (row.parked_ms, row.held_until_ms, row.event.attempts) = (None, None, 0);
                    retried += 1;
                }
            }
            Ok(retried)
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

pub(super) fn state(row: &EventRowState) -> EventState {
    match row {
        _ if row.published_ms.is_some() => EventState::Published,
        _ if row.parked_ms.is_some() => EventState::Parked,
        _ if row.held_until_ms.is_some() => EventState::Held,
        _ => EventState::Pending,
    }
}

fn entry(row: &EventRowState) -> OutboxEntry {
    OutboxEntry {
        event: row.event.clone(),
        shard: row.shard,
        consumer: row.consumer.clone(),
        tenant: row.tenant.clone(),
        state: state(row),
        state_at_ms: row.published_ms.or(row.parked_ms).or(row.held_until_ms),
        error: row.error.clone(),
    }
}

impl Inner {
    /// The places of the events that a filter means.
    fn events(&self, filter: &EventFilter) -> Vec<i64> {
        let wanted = |row: &&EventRowState| {
            let event = &row.event;
            (filter.seqs.is_empty() || filter.seqs.contains(&event.seq))
                && filter.id.is_none_or(|id| id == event.id)
                && filter.state.is_none_or(|wanted| wanted == state(row))
                && filter.topic.as_ref().is_none_or(|topic| **topic == *event.topic)
                && filter.key.as_ref().is_none_or(|key| event.key.as_ref().is_some_and(|known| known == key))
                && event.seq > filter.after
        };
        let rows = self.db.tables.outbox.values().filter(wanted);
        rows.take(filter.limit as usize).map(|row| row.event.seq).collect()
    }
}

//! Sinks that park whole keys: what comes after a parked event of its key is parked behind it, until an operator has seen to it.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;

use super::Inner;
use super::unit::{Ended, Unit};
use crate::error::describe;
use crate::store::{Deliveries, EventFilter, EventState, OutboxAdmin, ParkedEvent, StoreResult, StoredEvent};

/// Why an event is parked that was not tried.
pub(super) fn behind(seq: i64) -> String {
    format!("behind event {seq}: retry or drop that one first")
}

impl<S: OutboxAdmin> Inner<S> {
    /// Those of the events that may go. The others are parked before anything is delivered.
    pub(super) async fn not_behind(
        &self,
        unit: &Unit,
        events: Vec<StoredEvent>,
    ) -> Result<Vec<StoredEvent>, Ended> {
        if !unit.route.sink.parks_keys() {
            return Ok(events);
        }
        let first = match self.first_parked(&unit.key.topic, &events).await {
            Ok(first) => first,
            Err(error) => return Err(self.failed(unit, &describe(&error))),
        };
        let mut parked = Vec::new();
        let mut free = Vec::with_capacity(events.len());
        for event in events {
            match event.key.as_ref().and_then(|key| first.get(key)) {
                Some(ahead) if *ahead < event.seq => {
                    parked.push(ParkedEvent { seq: event.seq, error: behind(*ahead) });
                }
                _ => free.push(event),
            }
        }
        if !parked.is_empty() {
            unit.route.lines.parked_behind(&unit.key.topic, parked.len());
            let leases = unit.leases.clone();
            self.record(unit, &Deliveries { leases, parked, ..Deliveries::default() }).await?;
        }
        Ok(free)
    }

    /// The first parked event of each of their keys. As a rule nothing of the topic is parked, and that is one question.
    async fn first_parked(&self, topic: &str, events: &[StoredEvent]) -> StoreResult<HashMap<Bytes, i64>> {
        let mut first = HashMap::new();
        if self.parked(topic, None).await?.is_none() {
            return Ok(first);
        }
        let keys: HashSet<&Bytes> = events.iter().filter_map(|event| event.key.as_ref()).collect();
        for key in keys {
            if let Some(seq) = self.parked(topic, Some(key)).await? {
                first.insert(key.clone(), seq);
            }
        }
        Ok(first)
    }

    async fn parked(&self, topic: &str, key: Option<&Bytes>) -> StoreResult<Option<i64>> {
        let filter = EventFilter {
            state: Some(EventState::Parked),
            topic: Some(topic.to_owned()),
            key: key.map(|key| key.to_vec()),
            limit: 1,
            ..EventFilter::default()
        };
        let _connection = self.share.to_look().await;
        Ok(self.store.events(&filter).await?.first().map(|entry| entry.event.seq))
    }
}

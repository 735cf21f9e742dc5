//! Events that must not go out now: their time has not come, or it is over.
//!
//! A delayed event lies in the outbox like any other. The relay that finds it too early holds it until its time, as it would
//! hold one whose delivery failed: it holds back the later events of its key, others go on, and it costs nothing while it
//! waits. Whatever happens to it there (an earlier event of its key fails, an operator retries or drops one), it is looked
//! at again here before it is delivered. The clock is the database's, the same one for all relays.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use tracing::{debug, warn};

use super::Inner;
use super::unit::{Ended, Unit};
use crate::error::describe;
use crate::mistake::mistaken;
use crate::outbox::time::{EXPIRY, from_rfc3339, to_rfc3339};
use crate::store::{Deliveries, HeldEvent, OutboxAdmin, ParkedEvent, StoredEvent};

impl<S: OutboxAdmin> Inner<S> {
    /// Those of the events that may go out now. The others are held or parked before anything is delivered, so that a sink
    /// that does not work does not keep them.
    pub(super) async fn due_events(
        &self,
        unit: &Unit,
        events: Vec<StoredEvent>,
    ) -> Result<Vec<StoredEvent>, Ended> {
        if !events.iter().any(is_timed) || mistaken("DelayForgotten") {
            return Ok(events);
        }
        let connection = self.share.to_look().await;
        let now_ms = self.store.clock_ms().await;
        drop(connection);
        let now_ms = match now_ms {
            Ok(now_ms) => now_ms,
            Err(error) => return Err(self.failed(unit, &describe(&error))),
        };
        let Sorted { due, held, parked } = sort_out(events, now_ms);
        if !held.is_empty() || !parked.is_empty() {
            let leases = unit.leases.clone();
            self.record(unit, &Deliveries { leases, held, parked, ..Deliveries::default() }).await?;
        }
        Ok(due)
    }
}

fn is_timed(event: &StoredEvent) -> bool {
    event.deliver_at_ms.is_some() || event.headers.last(EXPIRY).is_some()
}

/// When it expires, in milliseconds since 1970. A text that is no time is left to the receiver.
fn expiry_ms(event: &StoredEvent) -> Option<i64> {
    std::str::from_utf8(event.headers.last(EXPIRY)?).ok().and_then(from_rfc3339)
}

#[derive(Debug, Default)]
struct Sorted {
    due: Vec<StoredEvent>,
    held: Vec<HeldEvent>,
    parked: Vec<ParkedEvent>,
}

fn sort_out(events: Vec<StoredEvent>, now_ms: i64) -> Sorted {
    let mut sorted = Sorted::default();
    // How long the first event of a key that is not due waits; those behind it wait as long.
    let mut waiting: HashMap<Bytes, Duration> = HashMap::new();
    for event in events {
        let (seq, id) = (event.seq, event.id);
        let ahead = event.key.as_ref().and_then(|key| waiting.get(key).copied());
        let early = event
            .deliver_at_ms
            .and_then(|at| u64::try_from(at.saturating_sub(now_ms)).ok())
            .filter(|ms| *ms > 0);
        let expired = expiry_ms(&event).filter(|expiry| *expiry <= now_ms);
        if let Some(delay) = ahead {
            sorted.held.push(HeldEvent { seq, delay, error: None });
        } else if let Some(expiry) = expired {
            let error = format!("it expired at {} and was not published before", to_rfc3339(expiry));
            warn!(%id, topic = &*event.topic, error, "an event is parked: its time is over");
            sorted.parked.push(ParkedEvent { seq, error });
        } else if let Some(ms) = early {
            let delay = Duration::from_millis(ms);
            debug!(%id, topic = &*event.topic, due_in = ?delay, "an event is held until its time");
            if let Some(key) = event.key.filter(|_| !mistaken("DelayOvertaken")) {
                waiting.insert(key, delay);
            }
            sorted.held.push(HeldEvent { seq, delay, error: None });
        } else {
            sorted.due.push(event);
        }
    }
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Headers;
    use uuid::Uuid;

    const NOW_MS: i64 = 1_700_000_000_000;

    fn event(seq: i64, key: Option<&'static str>) -> StoredEvent {
        StoredEvent {
            seq,
            id: Uuid::nil(),
            topic: "t".into(),
            key: key.map(Bytes::from),
            payload: None,
            headers: Headers::new(),
            created_at_ms: 0,
            deliver_at_ms: None,
            causation_id: None,
            attempts: 0,
        }
    }

    fn delayed(seq: i64, key: Option<&'static str>, by_ms: i64) -> StoredEvent {
        StoredEvent { deliver_at_ms: Some(NOW_MS + by_ms), ..event(seq, key) }
    }

    fn expiring(seq: i64, expiry: &str) -> StoredEvent {
        let mut event = event(seq, Some("a"));
        event.headers.push(EXPIRY, Some(expiry.to_owned().into()));
        event
    }

    fn sort(events: Vec<StoredEvent>) -> (Vec<i64>, Vec<(i64, u64)>, Vec<i64>) {
        let sorted = sort_out(events, NOW_MS);
        (
            sorted.due.iter().map(|event| event.seq).collect(),
            sorted.held.iter().map(|held| (held.seq, held.delay.as_millis() as u64)).collect(),
            sorted.parked.iter().map(|parked| parked.seq).collect(),
        )
    }

    #[test]
    fn an_early_event_holds_back_its_key_and_no_other() {
        let events = vec![
            event(1, Some("a")),
            delayed(2, Some("a"), 500),
            event(3, Some("a")),
            event(4, Some("b")),
            delayed(5, Some("a"), 10),
        ];
        assert_eq!(sort(events), (vec![1, 4], vec![(2, 500), (3, 500), (5, 500)], vec![]));
    }

    #[test]
    fn an_early_event_without_key_holds_back_nobody() {
        assert_eq!(sort(vec![delayed(1, None, 500), event(2, None)]), (vec![2], vec![(1, 500)], vec![]));
    }

    #[test]
    fn an_event_goes_at_its_time() {
        assert_eq!(sort(vec![delayed(1, None, 0), delayed(2, None, -5)]), (vec![1, 2], vec![], vec![]));
    }

    #[test]
    fn an_expired_event_is_parked_and_holds_back_nobody() {
        let events = vec![
            expiring(1, "2023-11-14T22:13:20Z"),
            expiring(2, "2023-11-14T22:13:20.001Z"),
            expiring(3, "tomorrow"),
        ];
        assert_eq!(sort(events), (vec![2, 3], vec![], vec![1]));
    }

    #[test]
    fn an_event_that_expired_before_its_time_does_not_wait_for_it() {
        let never = StoredEvent { deliver_at_ms: Some(NOW_MS + 9), ..expiring(1, "2023-11-14T22:00:00Z") };
        assert_eq!(sort(vec![never, event(2, Some("a"))]), (vec![2], vec![], vec![1]));
    }
}

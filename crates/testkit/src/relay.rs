//! A relay that stops when there is nothing left to do.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use oncebox_core::outbox::Relay;
use oncebox_core::store::{EventFilter, EventState, OutboxAdmin, OutboxEntry};
use tokio_util::sync::CancellationToken;

/// How long a relay may take to publish what a test has written.
const WAIT_LIMIT: Duration = Duration::from_secs(30);

/// How many events are looked at.
const PAGE: u32 = 1000;

/// Runs a relay until no event waits any more: each one is published, or parked. Delayed events and what is behind them are
/// left alone.
///
/// # Panics
/// If events still wait after half a minute, with the error of each; or if the store cannot be read.
pub async fn drain<S: OutboxAdmin>(store: &S, relay: Relay<S>) {
    let stop = CancellationToken::new();
    let running = tokio::spawn(relay.serve(stop.clone()));
    let deadline = Instant::now() + WAIT_LIMIT;
    while !is_empty(store).await {
        if Instant::now() > deadline {
            panic!("still in the outbox after {WAIT_LIMIT:?}:\n{}", waiting(store).await);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.cancel();
    assert!(running.await.is_ok(), "the relay has panicked");
}

async fn is_empty<S: OutboxAdmin>(store: &S) -> bool {
    let outbox = match store.status(1).await {
        Ok(status) => status.outbox,
        Err(e) => panic!("the outbox cannot be read: {e}"),
    };
    outbox.pending == 0 || (outbox.delayed > 0 && waiting(store).await.is_empty())
}

/// What waits, and not for its time, for the eyes of whoever wrote the test.
async fn waiting<S: OutboxAdmin>(store: &S) -> String {
    let filter = EventFilter { limit: PAGE, ..EventFilter::default() };
    let entries = store.events(&filter).await.unwrap_or_default();
    let key_of = |entry: &OutboxEntry| (entry.event.topic.clone(), entry.event.key.clone());
    let delayed = entries.iter().filter(|entry| entry.state == EventState::Delayed);
    let delayed: HashSet<_> = delayed.map(key_of).filter(|(_, key)| key.is_some()).collect();
    let waits = |entry: &&OutboxEntry| match entry.state {
        EventState::Pending => true,
        EventState::Held => !delayed.contains(&key_of(entry)),
        EventState::Delayed | EventState::Parked | EventState::Published => false,
    };
    entries.iter().filter(waits).map(describe).collect::<Vec<_>>().join("\n")
}

fn describe(entry: &OutboxEntry) -> String {
    let OutboxEntry { event, state, error, .. } = entry;
    let error = error.as_deref().unwrap_or("no delivery has failed");
    format!("  {} {} ({}: {error})", event.topic, event.id, state.as_str())
}

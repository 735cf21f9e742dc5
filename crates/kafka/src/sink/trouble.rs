//! Warns that Kafka does not confirm events: once in a while, not for every batch and broker.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::{info, warn};

/// How often a warning is repeated.
const WARN_INTERVAL: Duration = Duration::from_secs(30);

/// librdkafka says nothing about a partition that has no leader or too few replicas.
const UNKNOWN_CAUSE: &str =
    "not known: partitions may have no leader or too few replicas in sync, or brokers do not answer";

/// What is wrong with the cluster, as far as the producers of a sink know.
#[derive(Debug, Default)]
pub(super) struct Trouble(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: Option<String>,
    said: Option<Instant>,
}

impl Trouble {
    /// librdkafka goes on by itself after all of these; they only have to be seen when they matter.
    pub(super) fn note(&self, reason: String) {
        self.state().last = Some(reason);
    }

    pub(super) fn warn_waiting(&self, topic: &str, events: usize) {
        let mut state = self.state();
        if state.said.is_none_or(|said| said.elapsed() >= WARN_INTERVAL) {
            state.said = Some(Instant::now());
            let problem = state.last.as_deref().unwrap_or(UNKNOWN_CAUSE);
            warn!(topic, events, problem, "Kafka does not confirm events; they wait");
        }
    }

    /// Events are confirmed.
    pub(super) fn clear(&self) {
        let mut state = self.state();
        state.last = None;
        if state.said.take().is_some() {
            info!("Kafka confirms events again");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

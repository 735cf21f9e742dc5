//! `[[sweep]]`: queries whose rows become events, each in a loop of its own.

use std::time::Duration;

use oncebox_config::SweepConfig;
use oncebox_core::backoff;
use oncebox_core::error::{describe, describe_whole};
use oncebox_core::monitor::Monitor;
use oncebox_core::outbox::events_committed;
use oncebox_core::store::{OutboxAdmin, StoreError, Sweep};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::exit::is_unreachable;

/// What is wrong with the queries, one line each. An error if the database cannot be asked.
pub(crate) async fn problems<S: OutboxAdmin>(
    store: &S,
    sweeps: &[SweepConfig],
) -> Result<Vec<String>, StoreError> {
    let mut problems = Vec::new();
    for SweepConfig { sweep, .. } in sweeps {
        match store.check_sweep(sweep).await {
            Ok(()) => {}
            Err(e) if is_unreachable(&e) => return Err(e),
            Err(e) => problems.push(format!("sweep {}: {}", sweep.name, describe_whole(&e))),
        }
    }
    Ok(problems)
}

/// The name of the loop of a sweep.
pub(crate) fn name(config: &SweepConfig) -> String {
    format!("sweep:{}", config.sweep.name)
}

/// Sweeps until `stop`.
pub(crate) async fn sweep<S: OutboxAdmin>(
    store: S,
    config: SweepConfig,
    monitor: Monitor,
    stop: CancellationToken,
) {
    let health = monitor.register(name(&config), "");
    let SweepConfig { every, sweep } = config;
    // Sooner than the next run, where runs are far apart.
    let backoff = backoff::SWEEP.up_to(every.clamp(Duration::from_secs(1), backoff::SWEEP.max));
    let mut failures = 0;
    while !stop.is_cancelled() {
        health.busy();
        let wait = match run(&store, &sweep).await {
            Ok(events) => {
                failures = 0;
                health.succeeded();
                health.idle();
                // A full run has left something behind: the next one follows at once.
                if events >= u64::from(sweep.limit) { Duration::ZERO } else { every }
            }
            Err(e) => {
                failures += 1;
                let reason = describe(&e);
                if health.failed(&reason) {
                    warn!(sweep = sweep.name, reason, "a sweep failed; trying again");
                }
                backoff.delay(failures)
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = stop.cancelled() => return,
        }
    }
}

async fn run<S: OutboxAdmin>(store: &S, sweep: &Sweep) -> Result<u64, StoreError> {
    let events = store.sweep(sweep).await?;
    if events > 0 {
        events_committed();
        info!(sweep = sweep.name, events, topic = sweep.topic, "swept");
    }
    Ok(events)
}

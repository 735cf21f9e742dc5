//! `[[sweep]]`: queries whose rows become events, each in a loop of its own.

use std::time::Duration;

use oncebox_core::config::SweepConfig;
use oncebox_core::{
    ErrorClass, LoopHandle, Monitor, OutboxAdmin, RetryPolicy, StoreError, Sweep, describe, events_committed,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// What is wrong with the queries, one line each. An error if the database cannot be asked.
pub(crate) async fn problems<S: OutboxAdmin>(
    store: &S,
    sweeps: &[SweepConfig],
) -> Result<Vec<String>, StoreError> {
    let mut problems = Vec::new();
    for SweepConfig { sweep, .. } in sweeps {
        match store.check_sweep(sweep).await {
            Ok(()) => {}
            Err(e) if e.class == ErrorClass::Transient => return Err(e),
            Err(e) => problems.push(format!("sweep {}: {}", sweep.name, describe(&e))),
        }
    }
    Ok(problems)
}

/// Starts a loop for each sweep.
pub(crate) fn start<S: OutboxAdmin>(
    tasks: &mut JoinSet<()>,
    store: &S,
    sweeps: &[SweepConfig],
    monitor: &Monitor,
    stop: &CancellationToken,
) {
    for config in sweeps {
        let (store, config, stop) = (store.clone(), config.clone(), stop.clone());
        let health = monitor.register(format!("sweep:{}", config.sweep.name), "");
        tasks.spawn(async move { sweep(&store, &config, &health, &stop).await });
    }
}

async fn sweep<S: OutboxAdmin>(
    store: &S,
    config: &SweepConfig,
    health: &LoopHandle,
    stop: &CancellationToken,
) {
    let SweepConfig { every, sweep } = config;
    // Sooner than the next run, where runs are far apart.
    let longest = (*every).clamp(Duration::from_secs(1), Duration::from_secs(60));
    let backoff = RetryPolicy { backoff_max: longest, ..RetryPolicy::default() };
    let mut failures = 0;
    while !stop.is_cancelled() {
        health.busy();
        let wait = match run(store, sweep).await {
            Ok(events) => {
                failures = 0;
                health.succeeded();
                health.idle();
                // A full run has left something behind: the next one follows at once.
                if events >= u64::from(sweep.limit) { Duration::ZERO } else { *every }
            }
            Err(e) => {
                failures += 1;
                let reason = describe(&e);
                warn!(sweep = sweep.name, reason, "a sweep failed; trying again");
                health.failed(reason);
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

//! The retention loop: one pass now and then, never in the way.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::clock::Clock;
use crate::error::describe;
use crate::live::Live;
use crate::metrics;
use crate::monitor::Monitor;
use crate::store::{Purge, PurgePass, PurgeProgress, Retention};

/// Purges every `every` until `stop`; each pass goes by the retention of that moment. The first pass comes after one interval, not at once: a consumer that was down must
/// first get the chance to see its last messages again while their receipts are still there.
pub async fn purge_loop<S: Purge>(
    store: S,
    retention: Live<Vec<Retention>>,
    every: Duration,
    clock: Clock,
    monitor: Monitor,
    stop: CancellationToken,
) {
    let health = monitor.register("purge", "");
    health.idle();
    let purged_total = metrics::purged_total();
    let mut wait = every;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        health.busy();
        // Each step is a success of its own: a long pass is not a loop that stands still.
        let progress = |step: PurgeProgress| {
            purged_total.increment(step.removed);
            health.succeeded();
        };
        let retention = retention.get();
        let pass = PurgePass {
            retention: &retention,
            now_ms: clock.now_ms(),
            dry_run: false,
            stop: &stop,
            progress: &progress,
        };
        match store.purge(pass).await {
            Ok(purged) => {
                if purged.receipts > 0 || purged.partitions > 0 {
                    info!(receipts = purged.receipts, partitions = purged.partitions, "purged");
                }
                health.succeeded();
                health.idle();
                wait = every;
            }
            Err(e) => {
                if health.failed(describe(&e)) {
                    warn!(error = describe(&e), "the purge pass failed; trying again in a minute");
                }
                wait = every.min(Duration::from_secs(60));
            }
        }
    }
}

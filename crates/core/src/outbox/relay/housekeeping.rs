//! Removes published events whose time is over.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::error::describe;
use crate::monitor::Monitor;
use crate::store::OutboxAdmin;

/// Calls [`OutboxAdmin::purge_published`] now and then until `stop`. A relay does it by itself; this is for a process without
/// one.
pub async fn purge_published_loop<S: OutboxAdmin>(
    store: S,
    keep: Duration,
    every: Duration,
    monitor: Monitor,
    stop: CancellationToken,
) {
    let health = monitor.register("outbox-purge", "");
    health.idle();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(every) => {}
        }
        health.busy();
        match store.purge_published(keep).await {
            Ok(_) => {
                health.succeeded();
                health.idle();
            }
            Err(error) => {
                if health.failed(describe(&error)) {
                    warn!(reason = describe(&error), "cannot remove published events; trying again");
                }
            }
        }
    }
}

//! What keeps the operators' tables in order.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::error::describe;
use crate::monitor::Monitor;
use crate::store::{Audit, DeadLetters, StoreResult};

/// How many letters get their group by one transaction.
const STEP_LETTERS: u32 = 500;

/// How often [`upkeep_loop`] looks.
pub const UPKEEP_INTERVAL: Duration = Duration::from_secs(60);

/// Gives letters their group that an older oncebox has written, in bounded steps, up to `most`. Returns how many.
pub async fn group_all<S: DeadLetters>(store: &S, most: u64) -> StoreResult<u64> {
    let mut grouped = 0;
    while grouped < most {
        let step = store.group_letters(STEP_LETTERS).await?;
        grouped += step;
        if step == 0 {
            break;
        }
    }
    Ok(grouped)
}

/// Groups dead letters and removes old entries of the audit, now and then until `stop`.
pub async fn upkeep_loop<S: DeadLetters + Audit>(
    store: S,
    keep_audit: Duration,
    every: Duration,
    monitor: Monitor,
    stop: CancellationToken,
) {
    let health = monitor.register("upkeep", "");
    health.idle();
    loop {
        health.busy();
        let done = async {
            group_all(&store, u64::MAX).await?;
            store.purge_actions(keep_audit).await
        };
        match done.await {
            Ok(_) => {
                health.succeeded();
                health.idle();
            }
            Err(e) => {
                if health.failed(describe(&e)) {
                    warn!(
                        error = describe(&e),
                        "dead letters are not grouped, or the audit is not purged; trying again"
                    );
                }
            }
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(every) => {}
        }
    }
}

//! A member of the group that another process has replaced, because both have the same `group.instance.id`.
//!
//! Whoever joins later wins. To come back at once would replace the other one in turn, and so on; so the one that was replaced
//! stands still, in the open, and looks again after a while: by then the other one may be gone, and this one the spare.

use std::time::Duration;

use oncebox_core::monitor::Monitor;
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::error::Error;

/// Long: each new try takes the partitions away from the other one.
const LOOK_AGAIN: Duration = Duration::from_secs(5 * 60);

/// Says why nothing is read, and waits.
pub(super) async fn stand_still(consumer: &str, monitor: &Monitor, stop: &CancellationToken) {
    let reason = Error::Fenced.to_string();
    error!(consumer, reason, "not reading");
    let health = monitor.register(format!("member:{consumer}"), "");
    health.stopped(reason);
    tokio::select! {
        () = stop.cancelled() => {}
        () = tokio::time::sleep(LOOK_AGAIN) => {}
    }
}

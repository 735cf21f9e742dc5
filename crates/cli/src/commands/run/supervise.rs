//! A loop that ends badly is started again.

use std::future::Future;

use oncebox_core::{Monitor, RetryPolicy};
use tokio_util::sync::CancellationToken;
use tracing::error;

/// Runs what `start` gives until `stop`. Should it end before, by a panic, `/healthz` says so and it begins anew.
pub(crate) async fn supervise<F>(
    name: &'static str,
    monitor: Monitor,
    stop: CancellationToken,
    start: impl Fn() -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut failures = 0;
    loop {
        let ended = tokio::spawn(start()).await;
        if stop.is_cancelled() {
            return;
        }
        failures += 1;
        let reason = ended.map_or_else(|panic| panic.to_string(), |()| "it ended by itself".to_owned());
        error!(name, reason, "a loop ended badly; starting it again");
        let health = monitor.register(name, "restart");
        health.stopped(reason);
        tokio::select! {
            () = tokio::time::sleep(RetryPolicy::default().delay(failures)) => {}
            () = stop.cancelled() => return,
        }
    }
}

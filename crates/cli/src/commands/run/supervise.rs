//! A loop that ends badly is started again.

use std::future::Future;
use std::time::{Duration, Instant};

use oncebox_core::backoff;
use oncebox_core::failpoint::failpoint;
use oncebox_core::monitor::Monitor;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::error;

/// After running for this long a loop has overcome what ended it before.
const RECOVERY_TIME: Duration = Duration::from_secs(60);

/// All loops of the process.
pub(crate) struct Loops {
    monitor: Monitor,
    stop: CancellationToken,
    supervisors: JoinSet<()>,
}

impl Loops {
    pub(crate) fn new(monitor: &Monitor, stop: &CancellationToken) -> Self {
        Self { monitor: monitor.clone(), stop: stop.clone(), supervisors: JoinSet::new() }
    }

    /// Keeps a loop running until the stop.
    pub(crate) fn keep<F>(
        &mut self,
        name: impl Into<String>,
        start: impl Fn(Monitor, CancellationToken) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let (monitor, stop) = (self.monitor.clone(), self.stop.clone());
        let start = {
            let (monitor, stop) = (monitor.clone(), stop.clone());
            move || start(monitor.clone(), stop.clone())
        };
        self.supervisors.spawn(supervise(name.into(), monitor, stop, start));
    }

    /// Waits for the end of any of them; `None` when all have ended.
    pub(crate) async fn next_end(&mut self) -> Option<Result<(), JoinError>> {
        self.supervisors.join_next().await
    }
}

/// Runs what `start` gives until `stop`. Should it end before, by a panic, `/healthz` says so and it is started again.
async fn supervise<F>(name: String, monitor: Monitor, stop: CancellationToken, start: impl Fn() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut failures = 0;
    loop {
        let began = Instant::now();
        let (running, place) = (start(), format!("task-{}", name.split(':').next().unwrap_or_default()));
        let ended = tokio::spawn(async move {
            failpoint(&place);
            running.await;
        });
        let ended = ended.await;
        if stop.is_cancelled() {
            return;
        }
        failures = if began.elapsed() > RECOVERY_TIME { 1 } else { failures + 1 };
        let reason = ended.map_or_else(|panic| panic.to_string(), |()| "it ended by itself".to_owned());
        error!(name, reason, "a loop ended badly; starting it again");
        let health = monitor.register(name.as_str(), "restart");
        health.stopped(reason);
        tokio::select! {
            () = tokio::time::sleep(backoff::LOOP.delay(failures)) => {}
            () = stop.cancelled() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test]
    async fn a_loop_that_panics_is_red_and_is_started_again() {
        let (monitor, stop) = (Monitor::default(), CancellationToken::new());
        let lives = Arc::new(AtomicU32::new(0));
        let start = {
            let (lives, stop) = (Arc::clone(&lives), stop.clone());
            move || {
                let (lives, stop) = (Arc::clone(&lives), stop.clone());
                async move {
                    match lives.fetch_add(1, Ordering::SeqCst) {
                        0 => panic!("the first life"),
                        1 => {}
                        _ => stop.cancelled().await,
                    }
                }
            }
        };
        let supervised = tokio::spawn(supervise("watch".to_owned(), monitor.clone(), stop.clone(), start));
        let mut seen = Vec::new();
        while lives.load(Ordering::SeqCst) < 3 {
            let report = monitor.report().into_iter().find(|report| report.name == "watch");
            if let Some(report) = report {
                assert!(report.is_unhealthy(Duration::MAX));
                seen.push(report.error.unwrap_or_default());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        seen.dedup();
        assert!(seen.len() == 2 && seen[0].contains("the first life"), "{seen:?}");
        assert_eq!(seen[1], "it ended by itself");
        assert!(monitor.report().is_empty(), "what was red is gone");
        stop.cancel();
        supervised.await.expect("the supervisor ends well");
    }
}

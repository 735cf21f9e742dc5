//! Running a transaction again that was in somebody's way. MongoDB does not wait for another transaction, so we do.

use std::future::Future;
use std::time::{Duration, Instant};

use oncebox_core::store::StoreResult;

use crate::classify::is_conflict;
use crate::orphans;
use crate::store::MongoStore;

const SHORTEST: Duration = Duration::from_millis(2);
const LONGEST: Duration = Duration::from_millis(100);

/// How long to wait before the next try: doubled each time, and never the same for two that met.
#[derive(Debug)]
pub(crate) struct Waiting {
    until: Option<Instant>,
    next: Duration,
}

impl Waiting {
    /// Waits for no longer than this in all; zero is without limit.
    pub(crate) fn at_most(limit: Duration) -> Self {
        let until = (!limit.is_zero()).then(|| Instant::now() + limit);
        Self { until, next: SHORTEST }
    }

    /// Waits a little. False if the time is over.
    pub(crate) async fn wait(&mut self) -> bool {
        if self.until.is_some_and(|until| Instant::now() >= until) {
            return false;
        }
        tokio::time::sleep(self.next.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        self.next = (self.next * 2).min(LONGEST);
        true
    }

    /// The same behind another transaction, which is ended if its process is gone.
    pub(crate) async fn wait_behind_another(&mut self, store: &MongoStore) -> bool {
        orphans::end(store).await;
        self.wait().await
    }
}

/// Runs `once` until it is in nobody's way, for no longer than the store waits for locks.
pub(crate) async fn rerun<T, F>(store: &MongoStore, mut once: impl FnMut() -> F) -> StoreResult<T>
where
    F: Future<Output = StoreResult<T>>,
{
    let mut waiting = Waiting::at_most(store.inner.limits.lock);
    loop {
        match once().await {
            Err(error) if is_conflict(&error) && waiting.wait_behind_another(store).await => {}
            outcome => return outcome,
        }
    }
}

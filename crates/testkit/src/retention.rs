//! Retention that passes at once.

use std::time::Duration;

use oncebox_core::clock::Clock;
use oncebox_core::store::{
    InboxStore, PassEnd, PositionKey, Progress, PurgePass, Retention, StoreError, StoreResult,
};
use tokio_util::sync::CancellationToken;

use crate::inbox::TestInbox;

/// Receipts go that are older than the time at which all was settled, and the database may count in milliseconds.
const OLD_ENOUGH: Duration = Duration::from_millis(5);

impl<S: InboxStore> TestInbox<S> {
    /// As if the retention had passed: the receipts of everything that was delivered so far are removed. A copy that comes
    /// then is applied again, unless the worker parks what is older than its receipts (`StalePolicy::Park`).
    ///
    /// A message that is not settled holds the receipts, as it would otherwise.
    ///
    /// # Panics
    /// If the store cannot purge.
    pub async fn let_retention_pass(&self) {
        tokio::time::sleep(OLD_ENOUGH).await;
        if let Err(e) = self.catch_up().await {
            panic!("the positions cannot be written: {e}");
        }
        tokio::time::sleep(OLD_ENOUGH).await;
        let retention = [Retention { consumer: self.consumer.clone(), keep: Duration::ZERO }];
        let purging = async {
            loop {
                let pass = PurgePass {
                    retention: &retention,
                    now_ms: Clock::system().now_ms(),
                    dry_run: false,
                    stop: &CancellationToken::new(),
                    progress: &|_| {},
                };
                if self.store.purge(pass).await?.end == PassEnd::Finished {
                    return Ok::<(), StoreError>(());
                }
                tokio::time::sleep(OLD_ENOUGH).await;
            }
        };
        match tokio::time::timeout(self.patience, purging).await {
            Ok(Ok(())) => {}
            Ok(Err(e)) => panic!("the receipts cannot be purged: {e}"),
            Err(_) => panic!("another process has been purging for {:?}", self.patience),
        }
    }

    /// Says in the database that the topics hold nothing that is not settled: the receipts go by it.
    async fn catch_up(&self) -> StoreResult<()> {
        for (topic, log) in &*self.logs.lock().await {
            if !log.is_acknowledged() {
                continue;
            }
            let key = PositionKey { consumer: self.consumer.clone(), topic: topic.clone(), partition: 0 };
            let owner = self.store.acquire(&key).await?;
            let caught_up_ms = Some(Clock::system().now_ms());
            self.store.record_progress(&owner, Progress { caught_up_ms, ..Progress::default() }).await?;
            self.store.release(&owner).await?;
        }
        Ok(())
    }
}

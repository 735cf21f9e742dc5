//! Keeps this relay's shards, and shares them with the other relays.

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Inner;
use crate::error::describe;
use crate::store::OutboxAdmin;

impl<S: OutboxAdmin> Inner<S> {
    /// Renews the leases until `stop`.
    pub(super) async fn keep_leases(&self, stop: &CancellationToken) {
        let health = self.monitor.register("relay-lease", "");
        let mut shown = None;
        while !stop.is_cancelled() {
            let asked = Instant::now();
            match self.renew().await {
                Ok(()) => health.succeeded(),
                Err(reason) => {
                    warn!(reason, "cannot renew the leases of the relay; trying again");
                    health.failed(reason);
                }
            }
            let count = self.shards.count();
            self.meters.shards.set(count as f64);
            if shown.replace(count) != Some(count) {
                info!(shards = count, "the relay's share of the outbox has changed");
            }
            if asked.elapsed() > self.settings.lease / 2 {
                // The database was slow, and what it granted is half over.
                continue;
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = tokio::time::sleep(self.settings.lease / 4) => {}
            }
        }
    }

    async fn renew(&self) -> Result<(), String> {
        // One at a time with releasing: an answer from before a release must not bring the shard back.
        let left = self.leasing.lock().await;
        if *left {
            return Ok(());
        }
        let asked = Instant::now();
        let leases = self
            .store
            .lease(self.id, &self.settings.name, self.settings.lease)
            .await
            .map_err(|error| describe(&error))?;
        self.shards.renewed(asked, &leases);
        Ok(())
    }

    /// Gives shards back of which nothing is under way.
    pub(super) async fn release(&self, shards: &[u16], leaving: bool) {
        let mut left = self.leasing.lock().await;
        *left |= leaving;
        // First here, then there: nobody may use a shard that somebody else can have.
        self.shards.released(shards);
        if let Err(error) = self.store.release_shards(self.id, shards, leaving).await {
            warn!(reason = describe(&error), "cannot give shards back; they are free when their lease ends");
        }
    }
}

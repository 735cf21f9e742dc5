//! Retention: receipts that are older than their consumer's horizon go.
//!
//! A pass walks over the receipts in the order of their keys, a small piece at a time, and rests in between. It looks for what
//! may go without locking anything, and deletes that by its keys: so it hardly ever waits for a batch that is under way, and needs no
//! index that every message would pay for. One process at a time makes a pass; where it is, is written down with what it removes, so
//! whoever is next goes on from there.

mod horizon;
mod lease;
mod walk;

use oncebox_core::names::ConsumerName;
use oncebox_core::store::{PassEnd, Purge, PurgePass, Purged, StoreResult};

use crate::adopted;
use crate::store::MysqlStore;
use crate::txn::MysqlTxn;
use lease::{Lease, Place};
use walk::Walk;

pub(crate) use walk::{Letters, Mark, Receipts};

const DOING: &str = "purging receipts";

impl Purge for MysqlStore {
    async fn purged_before(&self, txn: &mut MysqlTxn, consumer: &ConsumerName) -> StoreResult<Option<i64>> {
        self.patiently("reading the horizon", horizon::purged_before(self, txn, consumer)).await
    }

    async fn purge(&self, pass: PurgePass<'_>) -> StoreResult<Purged> {
        let ended = |end| Ok(Purged { end, ..Purged::default() });
        if pass.stop.is_cancelled() {
            return ended(PassEnd::Stopped);
        }
        let Some(receipts) = adopted::receipts(self, pass.retention.len()).await? else {
            return ended(PassEnd::Finished);
        };
        let mut walk = Walk::new(self, &pass, receipts).await?;
        if pass.dry_run {
            return walk.count().await;
        }
        let Some((lease, place)) = Lease::take(self, walk.table()).await? else {
            return ended(PassEnd::Elsewhere);
        };
        walk.begin_at(place);
        let walked = walk.remove(&lease).await;
        // Whoever is next goes on where this one was stopped or failed. If that cannot be written, the lease runs out.
        let finished = matches!(walked, Ok(Purged { end: PassEnd::Finished, .. }));
        let next = if finished { Place::default() } else { walk.into_place() };
        if let Err(error) = lease.give_back(self, &next).await {
            tracing::debug!(%error, "the next purge waits until the lease of this one is over");
        }
        walked
    }
}

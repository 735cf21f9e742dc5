//! Retention: receipts that are older than their consumer's horizon go.
//!
//! A pass walks over the receipts in the order of their keys, a small piece at a time, and rests in between. Each piece is one
//! small transaction: it looks which receipts may go, writes down the horizon, deletes them by their keys, and says where the pass
//! is. It needs no index that every message would pay for. One process at a time makes a pass; whoever is next goes on from there.
//!
//! What must hold is: *a message that lies in the dead letters has its receipt.* A step sees receipts and letters at one
//! moment, and somebody may write a letter before it commits. But a letter is written in the transaction that writes its receipt,
//! and that one is young: a receipt that is older than the horizon and has no letter now never gets one. A replay removes
//! the letter and makes the receipt young in one transaction: it writes the receipt that a step would delete, so one of the two
//! is run again, and sees the other.
//!
//! There is no TTL index: it would delete by the clock, also while a consumer is down and needs its receipts.

mod horizon;
mod lease;
mod walk;

use oncebox_core::names::ConsumerName;
use oncebox_core::store::{PassEnd, Purge, PurgePass, Purged, StoreResult};

use crate::adopted;
use crate::store::MongoStore;
use crate::txn::MongoTxn;
use lease::{Lease, Place};
use walk::Walk;

pub(crate) use horizon::HORIZONS;
pub(crate) use walk::{Letters, Receipts};

const DOING: &str = "purging receipts";

impl Purge for MongoStore {
    async fn purged_before(&self, txn: &mut MongoTxn, consumer: &ConsumerName) -> StoreResult<Option<i64>> {
        self.patiently("reading the horizon", horizon::purged_before(txn, consumer)).await
    }

    async fn purge(&self, pass: PurgePass<'_>) -> StoreResult<Purged> {
        let ended = |end| Ok(Purged { end, ..Purged::default() });
        if pass.stop.is_cancelled() {
            return ended(PassEnd::Stopped);
        }
        let Some(receipts) = adopted::receipts(self, pass.retention).await? else {
            return ended(PassEnd::Finished);
        };
        let mut walk = Walk::new(self, &pass, receipts).await?;
        if pass.dry_run {
            return walk.count().await;
        }
        let Some((lease, place)) = Lease::take(self, &walk.collection()).await? else {
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

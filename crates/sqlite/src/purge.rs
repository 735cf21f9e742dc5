//! Retention: receipts that are older than their consumer's horizon go.
//!
//! A pass walks over the receipts in the order of their keys, a small piece at a time, and rests in between. One process at
//! a time makes a pass; where it is, is written down with what it removes, so whoever is next goes on from there.

mod horizon;
mod lease;
mod space;
mod walk;

use oncebox_core::store::{PassEnd, PurgePass, Purged, StoreResult};

use crate::store::SqliteStore;
use lease::{Lease, Place};
use walk::Walk;

pub(crate) use horizon::purged_before;

const DOING: &str = "purging receipts";

/// One pass, from where the last one was stopped. A dry run looks at everything and leaves nothing behind.
pub(crate) async fn purge(store: &SqliteStore, pass: &PurgePass<'_>) -> StoreResult<Purged> {
    let ended = |end| Ok(Purged { end, ..Purged::default() });
    if pass.stop.is_cancelled() {
        return ended(PassEnd::Stopped);
    }
    let mut walk = Walk::new(store, pass).await?;
    if pass.dry_run {
        return walk.count().await;
    }
    let Some((mut lease, place)) = Lease::take(&store.writer).await? else {
        return ended(PassEnd::Elsewhere);
    };
    walk.begin_at(place);
    let walked = walk.remove(&mut lease).await;
    // Whoever is next goes on where this one was stopped or failed. If that cannot be written, the lease runs out.
    let finished = matches!(walked, Ok(Purged { end: PassEnd::Finished, .. }));
    let next = if finished { Place::default() } else { walk.into_place() };
    let given_back = lease.give_back(&next).await;
    let purged = walked?;
    given_back?;
    if purged.receipts > 0 && purged.end == PassEnd::Finished {
        space::give_back(store, pass.stop).await?;
    }
    Ok(purged)
}

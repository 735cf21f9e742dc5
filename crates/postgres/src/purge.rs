//! Retention: receipts that are older than their consumer's horizon go.
//!
//! A pass reads the table of receipts in its physical order, a few pages per transaction, on a connection of its own. So it
//! needs no index that every message would pay for, holds no long transaction, and rests after each step. One process at a
//! time makes a pass; where it is stopped, the next one goes on.

mod horizon;
mod lease;
mod walk;

use std::time::{Duration, Instant};

use oncebox_core::names::ConsumerName;
use oncebox_core::store::{ErrorClass, PassEnd, Purge, PurgePass, PurgeProgress, Purged, StoreResult};

use crate::adopted;
use crate::partitions;
use crate::store::PgStore;
use crate::txn::PgTxn;

pub(crate) use horizon::{Horizons, RELATION};
pub(crate) use lease::Lease;
pub(crate) use walk::Receipts;

impl Purge for PgStore {
    async fn purged_before(&self, txn: &mut PgTxn, consumer: &ConsumerName) -> StoreResult<Option<i64>> {
        self.patiently("reading the horizon", horizon::purged_before(self, txn, consumer)).await
    }

    async fn purge(&self, pass: PurgePass<'_>) -> StoreResult<Purged> {
        let dry_run = pass.dry_run;
        let mut pass = Pass::new(pass);
        if !dry_run {
            pass.lease = Lease::take(self).await?;
            if pass.lease.is_none() {
                return Ok(Purged { end: PassEnd::Elsewhere, ..Purged::default() });
            }
        }
        let ended = make_pass(self, &mut pass).await;
        if let Some(lease) = &pass.lease
            && let Err(error) = lease.give_back(self, pass.at_the_end).await
        {
            tracing::debug!(%error, "the next purge waits until the lease of this one is over");
        }
        pass.purged.end = ended?;
        Ok(pass.purged)
    }
}

/// How many times as long as it works a pass rests, so that the messages keep nine tenths of the server.
const REST_FACTOR: u32 = 4;
/// The longest rest; a lease lasts longer.
const MAX_REST: Duration = Duration::from_secs(30);

/// A pass on its way.
pub(crate) struct Pass<'p> {
    wanted: PurgePass<'p>,
    /// Without one it only counts.
    pub(crate) lease: Option<Lease>,
    purged: Purged,
    done: u64,
    total: u64,
    /// Whether it has come to the end of the last table, so that the next one begins at the first.
    at_the_end: bool,
}

impl<'p> Pass<'p> {
    fn new(wanted: PurgePass<'p>) -> Self {
        Self { wanted, lease: None, purged: Purged::default(), done: 0, total: 0, at_the_end: false }
    }

    /// Tells what a step has removed.
    fn removed(&mut self, receipts: u64) {
        self.purged.receipts += receipts;
        let progress = PurgeProgress { removed: receipts, done: self.done, total: self.total };
        (self.wanted.progress)(progress);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.wanted.stop.is_cancelled()
    }

    /// Gives way to the messages.
    async fn rest_after(&self, began: Instant) {
        let rest = if self.lease.is_some() { began.elapsed() * REST_FACTOR } else { Duration::ZERO };
        self.pause(rest.min(MAX_REST)).await;
    }

    /// Waits, unless it is told to stop.
    pub(crate) async fn pause(&self, wait: Duration) {
        tokio::select! {
            biased;
            () = self.wanted.stop.cancelled() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

async fn make_pass(store: &PgStore, pass: &mut Pass<'_>) -> StoreResult<PassEnd> {
    // A day that could not be added (its lock was taken) must not keep old receipts from going.
    let days = if pass.lease.is_some() { partitions::keep_days_ahead(store).await } else { Ok(()) };
    let horizons = horizon::horizons(store, &pass.wanted).await?;
    if horizons.is_empty() {
        return days.map(|()| PassEnd::Finished);
    }
    let Some(receipts) = adopted::receipts(store, pass.wanted.retention.len()).await? else {
        return days.map(|()| PassEnd::Finished);
    };
    let end = match drop_days(store, pass, &horizons).await? {
        PassEnd::Finished => walk::walk(store, pass, &horizons, &receipts).await?,
        other => other,
    };
    days.map(|()| end)
}

/// Drops the days of which nothing has to stay. One that cannot be dropped stops nothing else: its receipts are looked
/// at one by one, as all others are.
async fn drop_days(store: &PgStore, pass: &mut Pass<'_>, horizons: &Horizons) -> StoreResult<PassEnd> {
    for day in partitions::days_before(store, horizons).await? {
        if pass.is_stopped() {
            return Ok(PassEnd::Stopped);
        }
        let began = Instant::now();
        match partitions::drop_day(store, &day, horizons, pass).await {
            Ok(Some(receipts)) => {
                pass.purged.partitions += 1;
                pass.removed(receipts);
            }
            Ok(None) => pass.removed(0),
            Err(error) if error.class == ErrorClass::Away => return Err(error),
            Err(error) if error.class == ErrorClass::Fenced => return Ok(PassEnd::Elsewhere),
            Err(error) => {
                tracing::warn!(day, %error, "could not drop a day of receipts; the next pass tries again");
                pass.removed(0);
            }
        }
        pass.rest_after(began).await;
    }
    Ok(PassEnd::Finished)
}

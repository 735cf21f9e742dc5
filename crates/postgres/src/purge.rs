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
use oncebox_core::store::{ErrorClass, PassEnd, PurgePass, PurgeProgress, Purged, StoreResult};
use sqlx::Row;

use crate::classify::own;
use crate::store::PgStore;
use crate::txn::PgTxn;

pub(crate) use horizon::{Horizons, RELATION};
pub(crate) use lease::Lease;

/// How many times as long as it works a pass rests, so that the messages keep nine tenths of the server.
const REST: u32 = 4;
/// The longest rest; a lease lasts longer.
const LONGEST_REST: Duration = Duration::from_secs(30);

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

impl Pass<'_> {
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
        let rest = if self.lease.is_some() { began.elapsed() * REST } else { Duration::ZERO };
        self.pause(rest.min(LONGEST_REST)).await;
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

impl PgStore {
    pub(crate) async fn horizon_of(
        &self,
        txn: &mut PgTxn,
        consumer: &ConsumerName,
    ) -> StoreResult<Option<i64>> {
        let row = self
            .query(
                "SELECT (extract(epoch FROM purged_before) * 1000)::bigint FROM oncebox_horizon WHERE consumer = $1",
            )
            .bind(consumer.as_str())
            .fetch_optional(&mut **txn)
            .await
            .map_err(own("reading the horizon"))?;
        row.map(|row| row.try_get(0)).transpose().map_err(own("reading the horizon"))
    }

    pub(crate) async fn purge_pass(&self, wanted: PurgePass<'_>) -> StoreResult<Purged> {
        let mut pass =
            Pass { wanted, lease: None, purged: Purged::default(), done: 0, total: 0, at_the_end: false };
        if wanted.dry_run {
            pass.purged.end = self.make_pass(&mut pass).await?;
            return Ok(pass.purged);
        }
        pass.lease = self.patiently("taking the turn to purge", self.lease_purge()).await?;
        if pass.lease.is_none() {
            return Ok(Purged { end: PassEnd::Elsewhere, ..Purged::default() });
        }
        let ended = self.make_pass(&mut pass).await;
        if let Some(lease) = &pass.lease {
            let release = self.release_lease(lease, pass.at_the_end);
            if let Err(error) = self.patiently("ending the turn to purge", release).await {
                tracing::debug!(%error, "the next purge waits until the lease of this one is over");
            }
        }
        pass.purged.end = ended?;
        Ok(pass.purged)
    }

    async fn make_pass(&self, pass: &mut Pass<'_>) -> StoreResult<PassEnd> {
        // A day that could not be added (its lock was taken) must not keep old receipts from going.
        let days = if pass.lease.is_some() { self.keep_days_ahead().await } else { Ok(()) };
        let horizons = self.horizons(&pass.wanted).await?;
        if horizons.is_empty() {
            return days.map(|()| PassEnd::Finished);
        }
        let end = match self.drop_days(pass, &horizons).await? {
            PassEnd::Finished => self.walk(pass, &horizons).await?,
            other => other,
        };
        days.map(|()| end)
    }

    /// Drops the days of which nothing has to stay. One that cannot be dropped stops nothing else: its receipts are looked
    /// at one by one, as all others are.
    async fn drop_days(&self, pass: &mut Pass<'_>, horizons: &Horizons) -> StoreResult<PassEnd> {
        for day in self.days_before(horizons).await? {
            if pass.is_stopped() {
                return Ok(PassEnd::Stopped);
            }
            let began = Instant::now();
            match self.drop_day(&day, horizons, pass).await {
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
}

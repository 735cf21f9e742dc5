//! The shards of this relay: kept by leases, shared with the other relays, let go of in time.
//!
//! A lease is on the database's clock. Here its end is counted from the moment *before* it was asked for, on this
//! process's own monotonic clock, so we never believe in it longer than the database does (clocks that run at different
//! speeds are covered by a margin).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Inner;
use crate::error::describe;
use crate::monitor::lock;
use crate::outbox::wake::{Heard, Signal};
use crate::store::{Lease, Leases, OutboxAdmin};

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
                    if health.failed(&reason) {
                        warn!(reason, "cannot renew the leases of the relay; trying again");
                    }
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

/// A lease and when it ends if it is not renewed.
#[derive(Debug, Clone, Copy)]
struct Held {
    epoch: i64,
    until: Instant,
}

#[derive(Debug, Clone, Default)]
struct Assignment {
    held: BTreeMap<u16, Held>,
    /// More than our share: nothing new is begun with them.
    leaving: BTreeSet<u16>,
}

/// What this relay owns. Shared by its tasks.
#[derive(Debug)]
pub(super) struct Shards {
    assignment: Mutex<Assignment>,
    changed: Signal,
    duration: Duration,
}

impl Shards {
    pub(super) fn new(duration: Duration) -> Self {
        Self { assignment: Mutex::default(), changed: Signal::new(), duration }
    }

    /// The database has answered what was asked at `asked`.
    pub(super) fn renewed(&self, asked: Instant, leases: &Leases) {
        let until = asked + self.duration.mul_f64(0.9);
        let held: BTreeMap<u16, Held> =
            leases.held.iter().map(|lease| (lease.shard, Held { epoch: lease.epoch, until })).collect();
        let surplus = held.len().saturating_sub(leases.fair_share);
        let leaving = held.keys().rev().take(surplus).copied().collect();
        *lock(&self.assignment) = Assignment { held, leaving };
        self.changed.send();
    }

    /// These were given back.
    pub(super) fn released(&self, shards: &[u16]) {
        let mut assignment = lock(&self.assignment);
        for shard in shards {
            assignment.held.remove(shard);
            assignment.leaving.remove(shard);
        }
        drop(assignment);
        self.changed.send();
    }

    /// What new work may be begun with.
    pub(super) fn usable(&self) -> Vec<Lease> {
        let now = Instant::now();
        let assignment = lock(&self.assignment);
        let usable = assignment
            .held
            .iter()
            .filter(|(shard, held)| held.until > now && !assignment.leaving.contains(shard));
        usable.map(|(shard, held)| Lease { shard: *shard, epoch: held.epoch }).collect()
    }

    /// All that is to be given back as soon as nothing of it is under way.
    pub(super) fn leaving(&self) -> Vec<u16> {
        lock(&self.assignment).leaving.iter().copied().collect()
    }

    pub(super) fn count(&self) -> usize {
        lock(&self.assignment).held.len()
    }

    /// What is known now of the shards; see [`Shards::change`].
    pub(super) fn heard(&self) -> Heard {
        self.changed.heard()
    }

    /// Completes when the shards have changed since.
    pub(super) async fn change(&self, heard: &mut Heard) {
        self.changed.next(heard).await;
    }

    /// Completes as soon as one of these leases is not ours any more.
    pub(super) async fn lost(&self, leases: &[Lease]) {
        loop {
            let mut heard = self.changed.heard();
            let until = ends(&lock(&self.assignment), leases);
            let Some(until) = until.filter(|until| *until > Instant::now()) else { return };
            tokio::select! {
                biased;
                () = self.changed.next(&mut heard) => {}
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }
}

/// When the first of these leases ends; `None` if one has ended.
fn ends(assignment: &Assignment, leases: &[Lease]) -> Option<Instant> {
    let end = |lease: &Lease| {
        let held = assignment.held.get(&lease.shard)?;
        (held.epoch == lease.epoch).then_some(held.until)
    };
    leases.iter().map(end).collect::<Option<Vec<_>>>()?.into_iter().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leases(shards: &[u16], fair_share: usize) -> Leases {
        Leases { held: shards.iter().map(|shard| Lease { shard: *shard, epoch: 1 }).collect(), fair_share }
    }

    #[tokio::test]
    async fn a_lease_that_is_not_renewed_is_lost() {
        let shards = Shards::new(Duration::from_millis(200));
        shards.renewed(Instant::now(), &leases(&[1, 2], 16));
        let both = shards.usable();
        assert_eq!(both.len(), 2);
        shards.lost(&both).await;
        assert!(shards.usable().is_empty());
    }

    #[tokio::test]
    async fn a_lease_with_another_epoch_is_lost_at_once() {
        let shards = Shards::new(Duration::from_secs(60));
        shards.renewed(Instant::now(), &leases(&[1, 2], 16));
        shards.lost(&[Lease { shard: 1, epoch: 0 }]).await;
        shards.lost(&[Lease { shard: 1, epoch: 1 }, Lease { shard: 3, epoch: 1 }]).await;
    }

    #[test]
    fn what_exceeds_the_fair_share_is_left() {
        let shards = Shards::new(Duration::from_secs(60));
        shards.renewed(Instant::now(), &leases(&[1, 2, 3], 2));
        assert_eq!(shards.leaving(), [3]);
        assert_eq!(shards.usable().iter().map(|lease| lease.shard).collect::<Vec<_>>(), [1, 2]);
        shards.released(&[3]);
        assert_eq!(shards.count(), 2);
        assert!(shards.leaving().is_empty());
    }
}

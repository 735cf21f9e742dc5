//! Relays share the shards.

use std::collections::BTreeSet;
use std::time::Duration;

use oncebox_core::error::BoxError;
use oncebox_core::store::{EventFilter, EventState, Leases, Outbox, OutboxAdmin};
use uuid::Uuid;

use crate::file::{File, LONG, TestResult};

struct Relay<'f> {
    file: &'f File,
    id: Uuid,
}

impl<'f> Relay<'f> {
    fn new(file: &'f File) -> Self {
        Self { file, id: Uuid::now_v7() }
    }

    async fn lease(&self) -> Result<Leases, BoxError> {
        Ok(self.file.store.lease(self.id, "relay", LONG).await?)
    }

    /// Gives back what is more than its fair share.
    async fn be_fair(&self) -> TestResult {
        let leases = self.lease().await?;
        let more: Vec<u16> = leases.held.iter().skip(leases.fair_share).map(|lease| lease.shard).collect();
        Ok(self.file.store.release_shards(self.id, &more, false).await?)
    }

    /// Its leases are over, and it was not heard of since.
    async fn is_silent(&self) -> TestResult {
        let id = self.id;
        let past = "'2020-01-01T00:00:00.000Z'";
        let sql = format!(
            "UPDATE oncebox_relay SET seen_until = {past} WHERE relay = '{id}';
             UPDATE oncebox_shard SET leased_until = {past} WHERE relay = '{id}'"
        );
        Ok(self.file.run(&sql).await?)
    }
}

fn shards(leases: &Leases) -> BTreeSet<u16> {
    leases.held.iter().map(|lease| lease.shard).collect()
}

#[tokio::test]
async fn relays_come_to_share_the_work() -> TestResult {
    let file = File::new().await?;
    let relays = [Relay::new(&file), Relay::new(&file), Relay::new(&file)];
    let first = relays[0].lease().await?;
    assert_eq!((first.held.len(), first.fair_share), (16, 16));
    assert!(first.held.iter().all(|lease| lease.epoch == 1));

    let second = relays[1].lease().await?;
    assert_eq!((second.held.len(), second.fair_share), (0, 8), "nothing is taken from one that is alive");
    relays[0].be_fair().await?;
    let second = relays[1].lease().await?;
    assert_eq!(second.held.len(), 8);
    assert!(second.held.iter().all(|lease| lease.epoch == 2), "they changed hands");
    let first = relays[0].lease().await?;
    assert!(
        first.held.len() == 8 && first.held.iter().all(|lease| lease.epoch == 1),
        "renewing is no change"
    );

    assert_eq!(relays[2].lease().await?.fair_share, 6);
    for relay in &relays {
        relay.be_fair().await?;
    }
    let mut owned = BTreeSet::new();
    let mut shares = Vec::new();
    for relay in &relays {
        let leases = relay.lease().await?;
        assert!(owned.is_disjoint(&shards(&leases)), "a shard has one owner");
        owned.append(&mut shards(&leases));
        shares.push(leases.held.len());
    }
    assert_eq!((owned.len(), shares), (16, vec![6, 6, 4]));
    Ok(())
}

#[tokio::test]
async fn a_silent_relay_loses_its_shards_to_another_and_else_keeps_them() -> TestResult {
    let file = File::new().await?;
    let (silent, other) = (Relay::new(&file), Relay::new(&file));
    silent.lease().await?;
    silent.is_silent().await?;
    let kept = silent.lease().await?;
    assert!(kept.held.len() == 16 && kept.held.iter().all(|lease| lease.epoch == 1), "nobody was there");

    silent.is_silent().await?;
    let taken = other.lease().await?;
    assert_eq!((taken.held.len(), taken.fair_share), (16, 16));
    assert!(taken.held.iter().all(|lease| lease.epoch == 2));
    let back = silent.lease().await?;
    assert_eq!((back.held.len(), back.fair_share), (0, 8));
    Ok(())
}

#[tokio::test]
async fn a_relay_that_leaves_is_gone_and_epochs_never_come_back() -> TestResult {
    let file = File::new().await?;
    let (leaving, other) = (Relay::new(&file), Relay::new(&file));
    let all: Vec<u16> = shards(&leaving.lease().await?).into_iter().collect();
    file.store.release_shards(other.id, &all, false).await?;
    assert_eq!(leaving.lease().await?.held.len(), 16, "only the owner gives shards back");
    file.store.release_shards(leaving.id, &all, true).await?;
    let taken = other.lease().await?;
    assert_eq!((taken.held.len(), taken.fair_share), (16, 16));
    assert!(taken.held.iter().all(|lease| lease.epoch == 2));

    file.store.release_shards(other.id, &all, false).await?;
    assert!(
        other.lease().await?.held.iter().all(|lease| lease.epoch == 3),
        "even the same relay gets a new one"
    );
    Ok(())
}

#[tokio::test]
async fn who_lost_its_shards_can_confirm_but_neither_hold_nor_park() -> TestResult {
    let file = File::new().await?;
    file.emit("t", &["a", "b", "c"]).await?;
    let (old, new) = (Relay::new(&file), Relay::new(&file));
    let stale = old.lease().await?.held;
    old.is_silent().await?;
    let current = new.lease().await?.held;

    file.hold(&stale, 1, LONG, Some("no")).await?;
    file.park(&stale, 2, "no").await?;
    assert_eq!(file.next("t").await?, [1, 2, 3], "nothing happened");
    file.publish(&[3], false).await?;
    assert_eq!(file.next("t").await?, [1, 2]);

    file.hold(&current, 1, LONG, Some("no")).await?;
    file.park(&current, 2, "no").await?;
    assert!(file.next("t").await?.is_empty());
    let states = file.store.events(&EventFilter { limit: 9, ..EventFilter::default() }).await?;
    let states: Vec<_> =
        states.iter().map(|entry| (entry.event.seq, entry.state, entry.event.attempts)).collect();
    assert_eq!(states, [(1, EventState::Held, 1), (2, EventState::Parked, 1)]);

    // A confirmation wins over everything, whoever brings it.
    file.publish(&[1, 2], true).await?;
    let states = file.store.events(&EventFilter { limit: 9, ..EventFilter::default() }).await?;
    assert!(states.iter().all(|entry| entry.state == EventState::Published && entry.error.is_none()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relays_that_lease_at_once_never_share_a_shard() -> TestResult {
    let file = File::new().await?;
    let store = file.store.clone();
    let leasing: Vec<_> = (0..8)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.lease(Uuid::now_v7(), "relay", Duration::from_secs(600)).await })
        })
        .collect();
    let mut owned = Vec::new();
    for leases in leasing {
        owned.extend(leases.await??.held.into_iter().map(|lease| lease.shard));
    }
    owned.sort_unstable();
    assert_eq!(owned, (0..16).collect::<Vec<u16>>());
    Ok(())
}

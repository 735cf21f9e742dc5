//! Shards belong to one relay at a time, and relays share them fairly.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use oncebox_core::error::BoxError;
use oncebox_core::store::{ErrorClass, Lease, Leases, Outbox, SHARDS, Status, StoreResult};
use uuid::Uuid;

use super::fixture::Fixture;
use super::relaying::{HOUR, all_shards, eventually};
use super::subject::{Subject, Verdict};

/// A relay as another process has it: a store of its own and an id.
struct Relay<T: Subject> {
    store: T::Store,
    id: Uuid,
    name: String,
}

impl<T: Subject> Relay<T> {
    async fn start(f: &Fixture<T>, name: &str) -> Result<Self, BoxError> {
        Ok(Self { store: f.subject.connect().await?, id: Uuid::now_v7(), name: name.to_owned() })
    }

    async fn lease(&self, duration: Duration) -> Result<Leases, BoxError> {
        loop {
            let leases = self.store.lease(self.id, &self.name, duration).await;
            if let Some(leases) = unless_busy(leases)? {
                return Ok(leases);
            }
        }
    }

    /// What a relay does again and again: lease, and give back what is too much.
    async fn turn(&self) -> Result<Leases, BoxError> {
        let mut leases = self.lease(HOUR).await?;
        if leases.held.len() > leases.fair_share {
            let excess: Vec<u16> = leases.held.drain(leases.fair_share..).map(|lease| lease.shard).collect();
            self.release(&excess, false).await?;
        }
        Ok(leases)
    }

    async fn release(&self, shards: &[u16], leaving: bool) -> Verdict {
        while unless_busy(self.store.release_shards(self.id, shards, leaving).await)?.is_none() {}
        Ok(())
    }
}

/// Relays may get in each other's way, but only so that trying again helps.
fn unless_busy<R>(result: StoreResult<R>) -> Result<Option<R>, BoxError> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(error) if error.class == ErrorClass::Transient => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn shards(leases: &Leases) -> Vec<u16> {
    let mut shards: Vec<u16> = leases.held.iter().map(|lease| lease.shard).collect();
    shards.sort_unstable();
    shards
}

fn epochs(leases: &Leases) -> BTreeMap<u16, i64> {
    leases.held.iter().map(|lease| (lease.shard, lease.epoch)).collect()
}

/// A relay alone owns everything, and stays the owner under the same epochs as long as it says that it is alive.
pub async fn a_relay_alone_owns_all_shards<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let relay = Relay::<T>::start(&f, "alone").await?;
    let first = relay.lease(HOUR).await?;
    assert_eq!((shards(&first), first.fair_share), (all_shards(), usize::from(SHARDS)));
    for duration in [HOUR, 2 * HOUR] {
        let again = relay.lease(duration).await?;
        assert_eq!(epochs(&again), epochs(&first), "to renew is not to change hands");
    }
    Ok(())
}

/// To renew is to begin a new time, not to keep the old end.
pub async fn leases_are_renewed<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let relay = Relay::<T>::start(&f, "alone").await?;
    for duration in [HOUR, 3 * HOUR] {
        relay.lease(duration).await?;
        for shard in f.store.status(10).await?.outbox.shards {
            let left = shard.expires_in.ok_or("an owned shard says until when")?;
            assert!(
                left <= duration && left > duration - Duration::from_secs(60),
                "{left:?} of {duration:?}"
            );
        }
    }
    Ok(())
}

/// Nobody takes a shard that is owned, however small the owner's need; the fair share tells the owner what to give back.
pub async fn an_owned_shard_is_not_taken<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let (first, second) = (Relay::<T>::start(&f, "first").await?, Relay::<T>::start(&f, "second").await?);
    first.lease(HOUR).await?;
    let waiting = second.lease(HOUR).await?;
    assert_eq!((shards(&waiting), waiting.fair_share), (vec![], 8));
    let owner = first.lease(HOUR).await?;
    assert_eq!((owner.held.len(), owner.fair_share), (16, 8));
    Ok(())
}

/// A shard that was given back is free at once, for anybody; its epoch does not come back.
pub async fn a_released_shard_is_free_at_once<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let (first, second) = (Relay::<T>::start(&f, "first").await?, Relay::<T>::start(&f, "second").await?);
    let before = epochs(&first.lease(HOUR).await?);
    second.lease(HOUR).await?;
    first.release(&[3, 7, 15], false).await?;
    let taken = second.lease(HOUR).await?;
    assert_eq!(shards(&taken), [3, 7, 15]);
    for Lease { shard, epoch } in &taken.held {
        assert!(epoch > &before[shard], "shard {shard} changed hands: {epoch} after {}", before[shard]);
    }
    assert_eq!(shards(&first.lease(HOUR).await?).len(), 13, "the rest stays where it was");

    second.release(&[3, 7, 15], false).await?;
    second.release(&[0, 1, 2], false).await?;
    assert_eq!(
        shards(&first.lease(HOUR).await?).len(),
        13,
        "only the owner gives back; and it has its share"
    );
    Ok(())
}

/// A relay that leaves does not count any more: the others share what it had.
pub async fn a_relay_that_leaves_does_not_count<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let (first, second) = (Relay::<T>::start(&f, "first").await?, Relay::<T>::start(&f, "second").await?);
    let before = epochs(&first.lease(HOUR).await?);
    assert_eq!(second.lease(HOUR).await?.fair_share, 8);
    first.release(&all_shards(), true).await?;
    let all = second.lease(HOUR).await?;
    assert_eq!((shards(&all), all.fair_share), (all_shards(), 16));
    assert!(all.held.iter().all(|lease| lease.epoch > before[&lease.shard]));

    // The first comes back, and no epoch comes back with it.
    second.release(&all_shards(), true).await?;
    let again = first.lease(HOUR).await?;
    assert_eq!(again.held.len(), 16);
    assert!(again.held.iter().all(|lease| lease.epoch > epochs(&all)[&lease.shard]));
    Ok(())
}

/// A relay that is not heard of loses its shards when its time is over, and does not count any more.
pub async fn an_expired_lease_is_taken<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let (dead, alive) = (Relay::<T>::start(&f, "dead").await?, Relay::<T>::start(&f, "alive").await?);
    let before = epochs(&dead.lease(Duration::from_millis(300)).await?);
    assert_eq!(before.len(), 16);
    let after = eventually("the shards of the dead relay are taken", async || {
        let leases = alive.lease(HOUR).await?;
        Ok((leases.held.len() == 16).then_some(leases))
    })
    .await?;
    assert_eq!(after.fair_share, 16);
    assert!(after.held.iter().all(|lease| lease.epoch > before[&lease.shard]));

    // It was only slow: what it learns now is that it owns nothing.
    let late = dead.lease(HOUR).await?;
    assert_eq!((shards(&late), late.fair_share), (vec![], 8));
    Ok(())
}

/// However many relays: in the end each shard has one owner, and nobody has more than a fair share.
pub async fn relays_end_with_fair_shares<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let mut relays = Vec::new();
    for count in [1, 2, 3, 5, 17] {
        while relays.len() < count {
            relays.push(Relay::<T>::start(&f, &format!("relay {}", relays.len())).await?);
        }
        for _ in 0..3 {
            for relay in &relays {
                relay.turn().await?;
            }
        }
        let most = usize::from(SHARDS).div_ceil(count);
        let mut owned = Vec::new();
        for relay in &relays {
            let leases = relay.turn().await?;
            assert!((most - 1..=most).contains(&leases.fair_share), "{} of {count}", leases.fair_share);
            assert!(leases.held.len() <= leases.fair_share, "{} of {count}", leases.held.len());
            owned.extend(shards(&leases));
        }
        owned.sort_unstable();
        assert_eq!(owned, all_shards(), "{count} relays");
    }

    // All but two leave: those get everything.
    for relay in relays.drain(2..) {
        relay.release(&all_shards(), true).await?;
    }
    for _ in 0..2 {
        for relay in &relays {
            relay.turn().await?;
        }
    }
    for relay in &relays {
        assert_eq!(relay.turn().await?.held.len(), 8);
    }
    Ok(())
}

/// Relays that ask at the same time never own the same shard: an epoch of a shard has one owner, ever.
pub async fn concurrent_relays_never_share_a_shard<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let mut relays = Vec::new();
    for n in 0..5 {
        let relay = Relay::<T>::start(&f, &format!("relay {n}")).await?;
        relays.push(tokio::spawn(async move {
            let mut seen = BTreeSet::new();
            for round in 0..12 {
                let leases = if round % 3 == n % 3 { relay.lease(HOUR).await? } else { relay.turn().await? };
                seen.extend(leases.held.iter().map(|lease| (lease.shard, lease.epoch)));
                if round == 7 && n % 2 == 0 {
                    relay.release(&shards(&leases), false).await?;
                }
            }
            Ok::<_, BoxError>((seen, relay))
        }));
    }
    let mut owners: BTreeMap<(u16, i64), Uuid> = BTreeMap::new();
    let mut last = Vec::new();
    for relay in relays {
        let (seen, relay) = relay.await??;
        for (shard, epoch) in seen {
            let other = owners.insert((shard, epoch), relay.id);
            assert_eq!(other, None, "two relays owned shard {shard} under epoch {epoch}");
        }
        last.extend(shards(&relay.lease(HOUR).await?));
    }
    last.sort_unstable();
    let distinct: BTreeSet<u16> = last.iter().copied().collect();
    assert_eq!(last.len(), distinct.len(), "one owner each: {last:?}");
    Ok(())
}

/// The status shows who owns what, and that nobody does.
pub async fn the_status_shows_owners<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let owners = async || {
        let shards = f.store.status(10).await?.outbox.shards;
        assert!(shards.iter().map(|shard| shard.shard).eq(0..SHARDS), "all shards, in order");
        Ok::<_, BoxError>(shards)
    };
    assert!(owners().await?.iter().all(|shard| shard.owner.is_none() && shard.expires_in.is_none()));

    let relay = Relay::<T>::start(&f, "host 'one'").await?;
    let leases = epochs(&relay.lease(HOUR).await?);
    relay.release(&[4], false).await?;
    for shard in owners().await? {
        let expected = (shard.shard != 4).then_some("host 'one'");
        assert_eq!(shard.owner.as_deref(), expected, "shard {}", shard.shard);
        assert_eq!(shard.expires_in.is_some(), expected.is_some());
        assert!(shard.epoch == leases[&shard.shard] || shard.shard == 4);
    }
    relay.lease(Duration::from_millis(100)).await?;
    eventually("nobody owns what is over", async || {
        Ok(owners().await?.iter().all(|shard| shard.owner.is_none()).then_some(()))
    })
    .await
}

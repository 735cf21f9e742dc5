//! Which relay publishes which shard.
//!
//! On a connection of its own: a lease that is renewed too late, behind sweeps or a purge, stops the publishing.

use std::time::Duration;

use oncebox_core::store::{Lease, Leases, SHARDS, StoreResult};
use sqlx::Row;
use uuid::Uuid;

use super::{numbers, shard};
use crate::classify::Context;
use crate::store::PgStore;
use crate::time::milliseconds;
use crate::txn::PgTxn;

const SEEN: &str = "INSERT INTO oncebox_relay (relay, name, seen_until) \
     VALUES ($1, $2, clock_timestamp() + $3 * interval '1 millisecond') \
     ON CONFLICT (relay) DO UPDATE SET name = EXCLUDED.name, seen_until = EXCLUDED.seen_until";

const ALIVE: &str = "SELECT count(*) FROM oncebox_relay WHERE seen_until > clock_timestamp()";

const TAKE: &str = "UPDATE oncebox_shard s \
     SET relay = $1, epoch = t.epoch, leased_until = clock_timestamp() + $2 * interval '1 millisecond' \
     FROM unnest($3::int[], $4::bigint[]) AS t(shard, epoch) WHERE s.shard = t.shard";

/// Renews and takes. Relays wait for each other here for a moment.
pub(super) async fn lease(
    store: &PgStore,
    relay: Uuid,
    name: &str,
    duration: Duration,
) -> StoreResult<Leases> {
    let doing = "leasing shards";
    let mut txn = store.begin_lease().await?;
    let found = lock_shards(store, &mut txn, relay).await?;
    store
        .query(SEEN)
        .bind(relay)
        .bind(name)
        .bind(milliseconds(duration))
        .execute(&mut *txn)
        .await
        .context(doing)?;
    let relays: i64 =
        store.query(ALIVE).fetch_one(&mut *txn).await.and_then(|row| row.try_get(0)).context(doing)?;
    let leases = share(&found, usize::try_from(relays).unwrap_or(1));
    store
        .query(TAKE)
        .bind(relay)
        .bind(milliseconds(duration))
        .bind(leases.held.iter().map(|lease| i32::from(lease.shard)).collect::<Vec<_>>())
        .bind(leases.held.iter().map(|lease| lease.epoch).collect::<Vec<_>>())
        .execute(&mut *txn)
        .await
        .context(doing)?;
    txn.commit_own(doing).await?;
    Ok(leases)
}

const RELEASE: &str =
    "UPDATE oncebox_shard SET relay = NULL, leased_until = NULL WHERE relay = $1 AND shard = ANY ($2)";

const FORGET: &str = "DELETE FROM oncebox_relay WHERE relay = $1";

/// Gives shards back.
pub(super) async fn release_shards(
    store: &PgStore,
    relay: Uuid,
    shards: &[u16],
    leaving: bool,
) -> StoreResult<()> {
    let doing = "releasing shards";
    let mut txn = store.begin_lease().await?;
    lock_shards(store, &mut txn, relay).await?;
    store.query(RELEASE).bind(relay).bind(numbers(shards)).execute(&mut *txn).await.context(doing)?;
    if leaving {
        store.query(FORGET).bind(relay).execute(&mut *txn).await.context(doing)?;
    }
    txn.commit_own(doing).await
}

/// A shard as a relay finds it.
#[derive(Debug, Clone, Copy)]
struct Found {
    lease: Lease,
    mine: bool,
    free: bool,
}

/// All of them, in their order: so relays wait for each other for a moment and never deadlock, and who counts the relays
/// sees those that came before.
const LOCK: &str = "SELECT shard, epoch, relay IS NOT DISTINCT FROM $1, \
         relay IS NULL OR leased_until <= clock_timestamp() \
     FROM oncebox_shard ORDER BY shard FOR UPDATE";

async fn lock_shards(store: &PgStore, txn: &mut PgTxn, relay: Uuid) -> StoreResult<Vec<Found>> {
    let doing = "looking at the shards";
    let rows = store.query(LOCK).bind(relay).fetch_all(&mut **txn).await.context(doing)?;
    let found = rows.iter().map(|row| {
        let lease = Lease { shard: shard(row.try_get(0)?), epoch: row.try_get(1)? };
        Ok(Found { lease, mine: row.try_get(2)?, free: row.try_get(3)? })
    });
    found.collect::<sqlx::Result<_>>().context(doing)
}

/// What this relay holds from now on. What it had it keeps, with its epoch: even if the time was over, nobody else came.
fn share(found: &[Found], relays: usize) -> Leases {
    let fair_share = usize::from(SHARDS).div_ceil(relays.max(1));
    let mut held: Vec<Lease> = found.iter().filter(|shard| shard.mine).map(|shard| shard.lease).collect();
    let wanted = fair_share.saturating_sub(held.len());
    let free = found.iter().filter(|shard| shard.free && !shard.mine);
    held.extend(free.take(wanted).map(|shard| Lease { epoch: shard.lease.epoch + 1, ..shard.lease }));
    held.sort_unstable_by_key(|lease| lease.shard);
    Leases { held, fair_share }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(mine: &[u16], taken: &[u16]) -> Vec<Found> {
        let shard = |shard| Found {
            lease: Lease { shard, epoch: 7 },
            mine: mine.contains(&shard),
            free: !mine.contains(&shard) && !taken.contains(&shard),
        };
        (0..SHARDS).map(shard).collect()
    }

    #[test]
    fn what_is_held_keeps_its_epoch_and_what_is_taken_gets_a_new_one() {
        let leases = share(&found(&[3], &[0, 1, 2]), 3);
        assert_eq!(leases.fair_share, 6);
        let expected = [(3, 7), (4, 8), (5, 8), (6, 8), (7, 8), (8, 8)];
        assert_eq!(leases.held, expected.map(|(shard, epoch)| Lease { shard, epoch }));
    }

    #[test]
    fn a_relay_with_too_much_keeps_it_until_it_gives_it_back() {
        let all: Vec<u16> = (0..SHARDS).collect();
        let leases = share(&found(&all, &[]), 2);
        assert_eq!((leases.held.len(), leases.fair_share), (16, 8));
    }
}

//! Which relay publishes which shard.
//!
//! On a connection of its own: a lease that is renewed too late, behind sweeps or a purge, stops the publishing.

use std::time::Duration;

use oncebox_core::store::{Lease, Leases, SHARDS, StoreResult};
use sqlx::Row;
use uuid::Uuid;

use super::{change, list, shard};
use crate::classify::Context;
use crate::store::MysqlStore;
use crate::time::milliseconds;
use crate::txn::MysqlTxn;

const SEEN: &str = "INSERT INTO oncebox_relay (relay, name, seen_until) \
     VALUES (?, ?, UTC_TIMESTAMP(6) + INTERVAL ? * 1000 MICROSECOND) \
     ON DUPLICATE KEY UPDATE name = VALUES(name), seen_until = VALUES(seen_until)";

const ALIVE: &str = "SELECT COUNT(*) FROM oncebox_relay WHERE seen_until > UTC_TIMESTAMP(6)";

/// The longest name of a relay that is kept, in characters.
const MAX_NAME: usize = 255;

/// Renews and takes. Relays wait for each other here for a moment.
pub(super) async fn lease(
    store: &MysqlStore,
    relay: Uuid,
    name: &str,
    duration: Duration,
) -> StoreResult<Leases> {
    let doing = "leasing shards";
    let ms = milliseconds(duration);
    let mut txn = store.begin_lease().await?;
    let found = lock_shards(store, &mut txn, relay).await?;
    store
        .query(SEEN)
        .bind(relay.as_bytes().as_slice())
        .bind(name.chars().take(MAX_NAME).collect::<String>())
        .bind(ms)
        .execute(&mut *txn)
        .await
        .context(doing)?;
    let relays: i64 =
        store.query(ALIVE).fetch_one(&mut *txn).await.and_then(|row| row.try_get(0)).context(doing)?;
    let leases = share(&found, usize::try_from(relays).unwrap_or(1));
    if !leases.held.is_empty() {
        change(&mut txn, take(relay, ms, &leases)).await.context(doing)?;
    }
    txn.commit_own(doing).await?;
    Ok(leases)
}

fn take(relay: Uuid, ms: i64, leases: &Leases) -> String {
    let epochs: String =
        leases.held.iter().map(|lease| format!("WHEN {} THEN {} ", lease.shard, lease.epoch)).collect();
    let shards: Vec<u16> = leases.held.iter().map(|lease| lease.shard).collect();
    format!(
        "UPDATE oncebox_shard SET relay = 0x{}, epoch = CASE shard {epochs}END, \
             leased_until = UTC_TIMESTAMP(6) + INTERVAL {ms} * 1000 MICROSECOND \
         WHERE shard IN ({})",
        relay.simple(),
        list(&shards)
    )
}

const FORGET: &str = "DELETE FROM oncebox_relay WHERE relay = ?";

/// Gives shards back. The epoch stays: whoever takes the shard next raises it.
pub(super) async fn release_shards(
    store: &MysqlStore,
    relay: Uuid,
    shards: &[u16],
    leaving: bool,
) -> StoreResult<()> {
    let doing = "releasing shards";
    let mut txn = store.begin_lease().await?;
    let found = lock_shards(store, &mut txn, relay).await?;
    let mine = found.iter().filter(|shard| shard.mine).map(|shard| shard.lease.shard);
    let given: Vec<u16> = mine.filter(|shard| shards.contains(shard)).collect();
    if !given.is_empty() {
        let sql = format!(
            "UPDATE oncebox_shard SET relay = NULL, leased_until = NULL WHERE shard IN ({})",
            list(&given)
        );
        change(&mut txn, sql).await.context(doing)?;
    }
    if leaving {
        let forget = store.query(FORGET).bind(relay.as_bytes().as_slice());
        forget.execute(&mut *txn).await.context(doing)?;
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
/// sees those that came before. The time is that of asking: who had to wait finds no lease over that is not.
const LOCK: &str = "SELECT shard, epoch, relay <=> ?, relay IS NULL OR leased_until <= UTC_TIMESTAMP(6) \
     FROM oncebox_shard ORDER BY shard FOR UPDATE";

async fn lock_shards(store: &MysqlStore, txn: &mut MysqlTxn, relay: Uuid) -> StoreResult<Vec<Found>> {
    let doing = "looking at the shards";
    let rows =
        store.query(LOCK).bind(relay.as_bytes().as_slice()).fetch_all(&mut **txn).await.context(doing)?;
    let found = rows.iter().map(|row| {
        let lease = Lease { shard: shard(row.try_get(0)?), epoch: row.try_get(1)? };
        Ok(Found { lease, mine: row.try_get::<i64, _>(2)? != 0, free: row.try_get::<i64, _>(3)? != 0 })
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

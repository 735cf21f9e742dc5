//! Which relay publishes which shard.

use std::time::Duration;

use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, Document, doc};
use mongodb::error::Result;
use oncebox_core::store::{Lease, Leases, SHARDS, StoreResult};
use uuid::Uuid;

use super::{RELAYS, SHARDS_OF_RELAYS, shard, shard_list};
use crate::classify::Context;
use crate::position::whole;
use crate::rerun::rerun;
use crate::store::MongoStore;
use crate::time::milliseconds;
use crate::tx::{MongoTx, refused};

/// The longest name of a relay that is kept, in characters.
const MAX_NAME: usize = 255;

/// Renews and takes. Relays that take the same shard change the same document: one of them looks again.
pub(super) async fn lease(
    store: &MongoStore,
    relay: Uuid,
    name: &str,
    duration: Duration,
) -> StoreResult<Leases> {
    let name: String = name.chars().take(MAX_NAME).collect();
    rerun(store, || lease_once(store, relay, &name, milliseconds(duration))).await
}

async fn lease_once(store: &MongoStore, relay: Uuid, name: &str, ms: i64) -> StoreResult<Leases> {
    let doing = "leasing shards";
    let mut txn = store.begin_aside().await?;
    match lease_in(&mut txn, &id(relay), name, ms).await.context(doing) {
        Ok(leases) => {
            txn.commit_own(doing).await?;
            Ok(leases)
        }
        Err(error) => {
            txn.rollback().await;
            Err(error)
        }
    }
}

async fn lease_in(tx: &mut MongoTx, relay: &Binary, name: &str, ms: i64) -> Result<Leases> {
    let (found, others) = look(tx, relay).await?;
    let until = doc! { "$add": ["$$NOW", ms] };
    let seen = vec![doc! { "$set": { "name": { "$literal": name }, "seen_until": until.clone() } }];
    let relays = tx.database.collection::<Document>(RELAYS);
    relays.update_one(doc! { "_id": relay }, seen).upsert(true).session(&mut tx.session).await?;
    // A relay counts itself.
    let leases = share(&found, others + 1);
    if !leases.held.is_empty() {
        let updates = leases.held.iter().map(|lease| {
            let set = doc! { "relay": relay, "epoch": lease.epoch, "leased_until": until.clone() };
            doc! { "q": { "_id": i32::from(lease.shard) }, "u": [{ "$set": set }] }
        });
        let command = doc! { "update": SHARDS_OF_RELAYS, "updates": updates.collect::<Vec<_>>() };
        refused(&tx.database.run_command(command).session(&mut tx.session).await?)?;
    }
    Ok(leases)
}

/// Gives shards back. The epoch stays: whoever takes the shard next raises it.
pub(super) async fn release_shards(
    store: &MongoStore,
    relay: Uuid,
    shards: &[u16],
    leaving: bool,
) -> StoreResult<()> {
    let doing = "releasing shards";
    let mine = doc! { "_id": { "$in": shard_list(shards) }, "relay": id(relay) };
    let given = doc! { "$set": { "relay": Bson::Null, "leased_until": Bson::Null } };
    store.aside(SHARDS_OF_RELAYS).update_many(mine, given).await.context(doing)?;
    // Without a transaction: who comes in between counts one relay too many, once.
    if leaving {
        store.aside(RELAYS).delete_one(doc! { "_id": id(relay) }).await.context(doing)?;
    }
    Ok(())
}

fn id(relay: Uuid) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes: relay.as_bytes().to_vec() }
}

/// A shard as a relay finds it.
#[derive(Debug, Clone, Copy)]
struct Found {
    lease: Lease,
    mine: bool,
    free: bool,
}

/// All shards, and how many other relays are alive, in one answer.
async fn look(tx: &mut MongoTx, relay: &Binary) -> Result<(Vec<Found>, usize)> {
    let alive = doc! { "_id": { "$ne": relay }, "$expr": { "$gt": ["$seen_until", "$$NOW"] } };
    let over = doc! { "$lte": [{ "$ifNull": ["$leased_until", "$$NOW"] }, "$$NOW"] };
    let pipeline = [
        doc! { "$sort": { "_id": 1 } },
        doc! { "$set": { "over": over } },
        doc! { "$group": { "_id": Bson::Null, "shards": { "$push": "$$ROOT" } } },
        doc! { "$lookup": { "from": RELAYS, "as": "others",
        "pipeline": [{ "$match": alive }, { "$limit": i64::from(SHARDS) * 4 }, { "$project": { "_id": 1 } }] } },
    ];
    let shards = tx.database.collection::<Document>(SHARDS_OF_RELAYS);
    let mut cursor = shards.aggregate(pipeline).session(&mut tx.session).await?;
    let Some(all) = cursor.next(&mut tx.session).await.transpose()? else { return Ok((Vec::new(), 0)) };
    let documents = |name: &str| all.get_array(name).map_or(&[][..], Vec::as_slice);
    let found = documents("shards").iter().filter_map(Bson::as_document).map(|document| {
        let owner = match document.get("relay") {
            Some(Bson::Binary(owner)) => Some(owner),
            _ => None,
        };
        Found {
            lease: Lease {
                shard: shard(whole(document.get("_id"))),
                epoch: whole(document.get("epoch")).unwrap_or_default(),
            },
            mine: owner == Some(relay),
            free: owner.is_none() || document.get_bool("over").unwrap_or(true),
        }
    });
    Ok((found.collect(), documents("others").len()))
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

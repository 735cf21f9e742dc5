//! Receipts: what a claim finds, and whom it waits for.

use std::time::Duration;

use oncebox_core::inbox::{Fingerprint, ReceiptKey};
use oncebox_core::names::ConsumerName;
use oncebox_core::store::{Claim, Claimed, ErrorClass, StoreResult};

use super::access::error;
use super::{Conn, ModelStore, ReceiptOf, Txn};
use crate::coverage::Event;
use crate::mistake::{Mistake, made};
use crate::world::{About, Inner};

/// How long a statement waits for another transaction.
const LOCK_TIMEOUT: Duration = Duration::from_secs(15);

pub(super) async fn claim(
    store: &ModelStore,
    consumer: &ConsumerName,
    claims: &[Claim<'_>],
) -> StoreResult<Claimed<Txn>> {
    if !claims.is_empty() {
        store.world.lock().check_pause(store.actor, consumer);
    }
    store.reach().await?;
    let txn = store.begin();
    let found = claim_in(store, txn.id, consumer, claims).await?;
    store.answer(Ok(())).await?;
    let FoundAll { fresh, collisions, fingerprints } = found;
    Ok(Claimed { txn, fresh, collisions, refused: Vec::new(), fingerprints })
}

pub(super) async fn claim_within(
    store: &ModelStore,
    conn: &mut Conn,
    consumer: &ConsumerName,
    claims: &[Claim<'_>],
) -> StoreResult<Vec<bool>> {
    store.reach().await?;
    let found = claim_in(store, conn.id, consumer, claims).await?;
    if found.collisions.is_empty() {
        return Ok(found.fresh);
    }
    Err(error(ErrorClass::Failed, "the receipt belongs to another message"))
}

/// What claims find.
struct FoundAll {
    fresh: Vec<bool>,
    collisions: Vec<usize>,
    fingerprints: Vec<(usize, Fingerprint)>,
}

/// What a claim finds.
enum Found {
    Fresh,
    /// The receipt is there, and this was the payload.
    Duplicate(Option<Fingerprint>),
    /// The receipt is there, but it is another message's.
    Collision,
    /// Another open transaction has it.
    Busy,
}

/// Writes receipts into an open transaction; waits for others that have them.
async fn claim_in(
    store: &ModelStore,
    txn: u64,
    consumer: &ConsumerName,
    claims: &[Claim<'_>],
) -> StoreResult<FoundAll> {
    let consumer = store.world.lock().log.consumer_index(consumer.as_str());
    let mut order: Vec<usize> = (0..claims.len()).collect();
    // As a sorted statement does it: two claims never wait for each other.
    order.sort_by_key(|at| claims[*at].key);
    let (mut fresh, mut collisions, mut fingerprints) = (vec![false; claims.len()], Vec::new(), Vec::new());
    for at in order {
        let Claim { key, tenant, message_id, fingerprint, .. } = claims[at];
        let of = ReceiptOf { consumer, tenant: tenant.to_owned(), id: message_id.to_owned(), fingerprint };
        let (mut waited, mut collides, mut known) = (false, false, None);
        let look = |inner: &mut Inner| {
            let found = inner.in_txn(txn, |inner, id| inner.look_for(id, key, &of));
            match found {
                Ok(Found::Busy) if made(Mistake::SkipOnBusyLock) => Some(Ok(false)),
                Ok(Found::Busy) => {
                    waited = true;
                    None
                }
                Ok(Found::Collision) => {
                    collides = true;
                    Some(Ok(false))
                }
                Ok(Found::Duplicate(first)) => {
                    known = first;
                    Some(Ok(made(Mistake::NoDedupe)))
                }
                Ok(Found::Fresh) => {
                    inner.db.open.get_mut(&txn)?.receipts.push((key, of.clone()));
                    Some(Ok(true))
                }
                Err(error) => Some(Err(error)),
            }
        };
        let found = tokio::time::timeout(LOCK_TIMEOUT, store.world.until(About::Transactions, look)).await;
        if waited {
            store.world.lock().saw(Event::WaitedForReceipt);
        }
        store.world.alive(store.actor).await;
        fresh[at] =
            found.unwrap_or_else(|_| Err(error(ErrorClass::Transient, "waited too long for a lock")))?;
        collisions.extend(collides.then_some(at));
        fingerprints.extend(known.filter(|_| fingerprint.is_some()).map(|first| (at, first)));
    }
    collisions.sort_unstable();
    Ok(FoundAll { fresh, collisions, fingerprints })
}

impl Inner {
    fn look_for(&self, txn: u64, key: ReceiptKey, of: &ReceiptOf) -> StoreResult<Found> {
        let known = |known: &ReceiptOf| {
            if known.is_for_that_of(of) { Found::Duplicate(known.fingerprint) } else { Found::Collision }
        };
        if let Some(row) = self.db.tables.receipts.get(&key) {
            return Ok(known(&row.of));
        }
        // A replay writes the receipt of its letter, too.
        let held = self.db.open.iter().find_map(|(id, open)| {
            let mut receipts = open.receipts.iter().chain(&open.renewed);
            receipts.find(|(held, _)| *held == key).map(|(_, of)| (*id, of))
        });
        Ok(match held {
            Some((id, of)) if id == txn => known(of),
            Some(_) => Found::Busy,
            None => Found::Fresh,
        })
    }
}

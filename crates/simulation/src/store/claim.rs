//! Receipts: what a claim finds, and whom it waits for.

use std::time::Duration;

use oncebox_core::inbox::ReceiptKey;
use oncebox_core::names::ConsumerName;
use oncebox_core::store::{Claim, Claimed, ErrorClass, StoreResult};

use super::access::error;
use super::{Conn, ModelStore, Txn};
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
    store.reach().await?;
    let txn = store.begin();
    let fresh = claim_in(store, txn.id, consumer, claims).await?;
    store.answer(Ok(())).await?;
    Ok(Claimed { txn, fresh, collisions: Vec::new(), refused: Vec::new() })
}

pub(super) async fn claim_within(
    store: &ModelStore,
    conn: &mut Conn,
    consumer: &ConsumerName,
    claims: &[Claim<'_>],
) -> StoreResult<Vec<bool>> {
    store.reach().await?;
    claim_in(store, conn.id, consumer, claims).await
}

/// What a claim finds.
enum Found {
    Fresh,
    Duplicate,
    /// Another open transaction has it.
    Busy,
}

/// Writes receipts into an open transaction; waits for others that have them.
async fn claim_in(
    store: &ModelStore,
    txn: u64,
    consumer: &ConsumerName,
    claims: &[Claim<'_>],
) -> StoreResult<Vec<bool>> {
    let consumer = store.world.lock().log.consumer_index(consumer.as_str());
    let mut order: Vec<usize> = (0..claims.len()).collect();
    // As a sorted statement does it: two claims never wait for each other.
    order.sort_by_key(|at| claims[*at].key);
    let mut fresh = vec![false; claims.len()];
    for at in order {
        let claim = &claims[at];
        let mut waited = false;
        let look = |inner: &mut Inner| {
            let found = inner.in_txn(txn, |inner, id| inner.look_for(id, claim.key));
            match found {
                Ok(Found::Busy) if made(Mistake::SkipOnBusyLock) => Some(Ok(false)),
                Ok(Found::Busy) => {
                    waited = true;
                    None
                }
                Ok(Found::Duplicate) => Some(Ok(made(Mistake::NoDedupe))),
                Ok(Found::Fresh) => {
                    let receipt = (claim.key, consumer, claim.message_id.to_owned());
                    inner.db.open.get_mut(&txn)?.receipts.push(receipt);
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
    }
    Ok(fresh)
}

impl Inner {
    fn look_for(&self, txn: u64, key: ReceiptKey) -> StoreResult<Found> {
        if self.db.tables.receipts.contains_key(&key) {
            return Ok(Found::Duplicate);
        }
        let holder =
            self.db.open.iter().find(|(_, open)| open.receipts.iter().any(|(held, _, _)| *held == key));
        Ok(match holder {
            Some((id, _)) if *id == txn => Found::Duplicate,
            Some(_) => Found::Busy,
            None => Found::Fresh,
        })
    }
}

//! Runs the handler on a dead letter and removes it, in one transaction.

use tracing::warn;

use super::call;
use super::claim::claim_one;
use super::gate::Turn;
use super::handler::Apply;
use super::identity::Identity;
use crate::error::{describe, describe_whole, with_values};
use crate::message::Message;
use crate::names::{ConsumerName, MessageId};
use crate::outbox::wake;
use crate::store::{ErrorClass, InboxStore, StoreError, StoreResult, StoredDeadLetter, further_values};

/// How a replay ended.
#[derive(Debug)]
pub enum Replayed {
    /// The effect is applied and the dead letter is gone.
    Applied,
    /// The letter is gone already: dropped, or replayed by somebody else.
    Gone,
    /// The letter had no id when it was parked; the id it has now was applied before, so the letter was only removed.
    Duplicate,
    /// The handler failed again; the letter stays as it was.
    Failed(String),
    /// An earlier letter of the same key has to be replayed first: the one with this number.
    Behind(i64),
    /// The letter belongs to another consumer than the handler; it stays as it was.
    OfAnother(String),
}

/// Whose dead letter is replayed, and how.
#[derive(Debug, Clone, Copy)]
pub struct Replay<'a> {
    /// The consumer that the handler belongs to.
    pub consumer: &'a ConsumerName,
    /// How a letter without an id gets one.
    pub identity: &'a Identity,
    /// Whether a letter must not pass an earlier one of its key, as under [`OnFailure::ParkKey`](crate::inbox::OnFailure::ParkKey).
    pub in_order: bool,
}

/// Replays one dead letter. The receipt that was written when it was parked becomes as young as a new one, so a copy that
/// arrives later is still skipped. A letter without an id gets the one that `identity` finds now.
///
/// # Errors
/// What the database says, also if something was in the handler's way (a deadlock, a lock): that is worth another try.
pub async fn replay<S: InboxStore, A: Apply<S>>(
    store: &S,
    apply: &A,
    how: Replay<'_>,
    number: i64,
) -> StoreResult<Replayed> {
    let Some((mut txn, stored)) = store.take_dead(number).await? else {
        return Ok(Replayed::Gone);
    };
    let Replay { consumer, identity, in_order } = how;
    if stored.consumer != consumer.as_str() {
        store.rollback(txn).await;
        return Ok(Replayed::OfAnother(stored.consumer));
    }
    if in_order && let Some(first) = store.letter_before(&mut txn, &stored).await? {
        store.rollback(txn).await;
        return Ok(Replayed::Behind(first));
    }
    // A letter that was parked with an id has its receipt; one without gets both now, or turns out to be a copy.
    let has_receipt = stored.letter.message_id.is_some();
    let message = match message_of(stored, identity) {
        Ok(message) => message,
        Err(reason) => {
            store.rollback(txn).await;
            return Ok(Replayed::Failed(reason));
        }
    };
    if !has_receipt {
        let set = further_values(store, message.record());
        match claim_one(store, &mut txn, consumer, &message, &set).await {
            Ok(receipt) if receipt.is_fresh() => {}
            Ok(_) => {
                store.commit(txn, None).await?;
                return Ok(Replayed::Duplicate);
            }
            // Its receipt cannot be written any better than when it was parked.
            Err(e) if e.class == ErrorClass::Failed => {
                store.rollback(txn).await;
                return Ok(Replayed::Failed(describe_whole(&e)));
            }
            Err(e) => return Err(e),
        }
    }
    // Not beside a message that is suspected of ending the process.
    let turn = Turn::of_process().beside_others().await;
    let (applied, events) = call::call(consumer, apply, &mut txn, &[message]).await;
    drop(turn);
    match applied {
        Ok(()) => {
            store.commit(txn, None).await?;
            if events {
                wake::events_committed();
            }
            // For people: the letter is replayed, whether or not it is counted.
            if let Err(e) = store.count_replay(consumer).await {
                warn!(%consumer, error = describe(&e), "a replay is not counted");
            }
            Ok(Replayed::Applied)
        }
        Err(failure) => {
            store.undo(txn).await?;
            let class = S::classify(failure.error.as_ref());
            let error = with_values::<S>(failure.error, class);
            if matches!(class, ErrorClass::Transient | ErrorClass::Away) {
                let plain = describe(error.as_ref());
                return Err(
                    StoreError::new(class, format!("replaying dead letter {number}"), error).worded(plain)
                );
            }
            Ok(Replayed::Failed(describe_whole(error.as_ref())))
        }
    }
}

fn message_of(stored: StoredDeadLetter, identity: &Identity) -> Result<Message, String> {
    let letter = stored.letter;
    match letter.message_id {
        Some(id) => {
            let id = MessageId::new(id).map_err(|e| e.to_string())?;
            Ok(Message::new(id, letter.tenant, letter.record))
        }
        None => identity.identify(letter.record).map_err(|unfit| unfit.reason),
    }
}

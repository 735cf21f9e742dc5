//! The turn to make a pass, and where the pass is.
//!
//! One document, by the database's clock: one process makes a whole pass, and another takes over when it is not heard of any
//! more. Every step renews the lease in its own transaction, so whoever has lost it undoes what it was about to do.

use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};
use mongodb::options::ReturnDocument;
use oncebox_core::store::{ErrorClass, StoreError, StoreResult};
use uuid::Uuid;

use super::DOING;
use crate::classify::Context;
use crate::position::whole;
use crate::store::MongoStore;
use crate::time::milliseconds;
use crate::tx::MongoTx;

const TURN: &str = "oncebox_purge";

/// Nobody would ever have the turn, and receipts would grow for ever.
const NOT_THERE: &str = "oncebox_purge has no document: run `oncebox migrate`, or call `MongoStore::migrate` when the program starts";

/// Longer than a step and its rest can take.
const LEASE_DURATION: Duration = Duration::from_secs(150);

/// Where a pass is: the last key that was looked at, if any was, and how many receipts were.
#[derive(Debug, Clone, Default)]
pub(super) struct Place {
    pub(super) reached: Option<Bson>,
    pub(super) done: u64,
}

/// The turn of this process.
pub(super) struct Lease {
    owner: String,
    /// The collection that it walks over: a place in one means nothing in another.
    collection: String,
}

impl Lease {
    /// `None` if another process is at it.
    pub(super) async fn take(store: &MongoStore, collection: &str) -> StoreResult<Option<(Self, Place)>> {
        let doing = "taking the turn to purge";
        let until = doc! { "$add": ["$$NOW", milliseconds(LEASE_DURATION)] };
        // A lease that ends later than one that begins now was written before the clock was set back.
        let free = doc! { "$or": [
            { "owner": Bson::Null },
            { "leased_until": Bson::Null },
            { "$expr": { "$lte": ["$leased_until", "$$NOW"] } },
            { "$expr": { "$gt": ["$leased_until", &until] } },
        ] };
        store
            .patiently(doing, async {
                let owner = Uuid::now_v7().to_string();
                let take = vec![doc! { "$set": { "owner": &owner, "leased_until": until } }];
                let turn = store.aside(TURN);
                let mine = doc! { "$and": [{ "_id": 1 }, free] };
                let taken = turn.find_one_and_update(mine, take).return_document(ReturnDocument::After);
                let Some(turn) = taken.await.context(doing)? else {
                    return if turn.find_one(doc! { "_id": 1 }).await.context(doing)?.is_some() {
                        Ok(None)
                    } else {
                        Err(StoreError::new(ErrorClass::Environment, doing, NOT_THERE))
                    };
                };
                let lease = Self { owner, collection: collection.to_owned() };
                let place = lease.place(&turn);
                Ok(Some((lease, place)))
            })
            .await
    }

    /// Renews the lease and writes down where the next step begins, in the transaction of a step. Fails if the lease is lost,
    /// which undoes the step.
    pub(super) async fn renew(&self, tx: &mut MongoTx, next: &Place) -> StoreResult<()> {
        let mut set = self.assignments(next);
        set.insert("leased_until", doc! { "$add": ["$$NOW", milliseconds(LEASE_DURATION)] });
        let turn = tx.database.collection::<Document>(TURN);
        let renewed = turn.update_one(self.is_mine(), vec![doc! { "$set": set }]).session(&mut tx.session);
        if renewed.await.context(DOING)?.matched_count == 1 {
            return Ok(());
        }
        Err(StoreError::new(ErrorClass::Fenced, DOING, "another process has taken over"))
    }

    /// Ends the turn, with the place where the next one goes on. Does nothing if another process has it.
    pub(super) async fn give_back(&self, store: &MongoStore, next: &Place) -> StoreResult<()> {
        let doing = "ending the turn to purge";
        let mut set = self.assignments(next);
        set.extend(doc! { "owner": Bson::Null, "leased_until": Bson::Null });
        let give_back = async {
            let turn = store.aside(TURN);
            turn.update_one(self.is_mine(), vec![doc! { "$set": set }]).await.context(doing)
        };
        store.patiently(doing, give_back).await?;
        Ok(())
    }

    fn is_mine(&self) -> Document {
        doc! { "_id": 1, "owner": &self.owner }
    }

    /// What is written is a value, never an expression.
    fn assignments(&self, place: &Place) -> Document {
        let at = place.reached.as_ref().map(|key| doc! { "collection": &self.collection, "key": key });
        let done = i64::try_from(if at.is_some() { place.done } else { 0 }).unwrap_or(i64::MAX);
        doc! { "at_key": { "$literal": at }, "done": done }
    }

    /// The beginning, if what is written is no place in this collection.
    fn place(&self, turn: &Document) -> Place {
        let at = turn.get_document("at_key").ok();
        let at = at.filter(|at| at.get_str("collection").is_ok_and(|name| name == self.collection));
        let Some(key) = at.and_then(|at| at.get("key")) else { return Place::default() };
        let done = whole(turn.get("done")).unwrap_or_default().unsigned_abs();
        Place { reached: Some(key.clone()), done }
    }
}

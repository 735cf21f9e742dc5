//! The model database by itself, as the suite of all stores sees it: no history, no faults, and the time of day.

use std::time::Duration;

use oncebox_core::clock::Clock;
use oncebox_core::store::{ErrorClass, StoreResult};

use super::access::error;
use super::outbox::millis;
use super::txn::NO_TXN;
use super::{Conn, Effect, ModelStore};
use crate::plan::{Place, Plan};
use crate::world::World;

/// An empty model database that nothing happens to.
#[derive(Debug)]
pub struct Model(ModelStore);

impl Default for Model {
    fn default() -> Self {
        let (world, actor) = World::quiet(Plan::of(0).config, Clock::system().now_ms());
        Self(ModelStore { world, actor })
    }
}

impl Model {
    /// The store on it.
    #[must_use]
    pub fn store(&self) -> ModelStore {
        self.0.clone()
    }

    /// A connection outside of any transaction.
    #[must_use]
    pub fn connection(&self) -> Conn {
        Conn { store: self.store(), id: NO_TXN }
    }

    /// The committed effects, in their order.
    #[must_use]
    pub fn effects(&self) -> Vec<String> {
        self.0.world.lock().db.tables.effects.iter().map(|effect| effect.id.clone()).collect()
    }

    /// The message ids of a consumer's committed receipts, sorted.
    #[must_use]
    pub fn receipts(&self, consumer: &str) -> Vec<String> {
        let mut inner = self.0.world.lock();
        let consumer = inner.log.consumer_index(consumer);
        let rows = inner.db.tables.receipts.values().filter(|row| row.of.consumer == consumer);
        let mut ids: Vec<String> = rows.map(|row| row.of.id.clone()).collect();
        ids.sort_unstable();
        ids
    }

    /// Makes the receipts of a consumer older.
    pub fn age_receipts(&self, consumer: &str, by: Duration) {
        let mut inner = self.0.world.lock();
        let consumer = inner.log.consumer_index(consumer);
        let rows = inner.db.tables.receipts.values_mut();
        rows.filter(|row| row.of.consumer == consumer).for_each(|row| row.processed_at_ms -= millis(by));
    }

    /// Moves the times of a consumer's positions into the past.
    pub fn age_positions(&self, consumer: &str, by: Duration) {
        let mut inner = self.0.world.lock();
        let consumer = inner.log.consumer_index(consumer);
        let rows = inner.db.tables.positions.iter_mut();
        for (_, row) in rows.filter(|(spot, _)| spot.consumer == consumer) {
            row.updated_ms -= millis(by);
            row.caught_up_ms = row.caught_up_ms.map(|at| at - millis(by));
        }
    }

    /// The turn of whoever purges is over.
    pub fn expire_purger(&self) {
        self.0.world.lock().db.tables.purger.until_ms = 0;
    }
}

impl Conn {
    /// Appends this id to the effects.
    ///
    /// # Errors
    ///
    /// The transaction is gone or aborted.
    pub async fn add_effect(&mut self, id: &str) -> StoreResult<()> {
        let effect = Effect {
            consumer: 0,
            id: id.to_owned(),
            key: None,
            place: Place { topic: 0, partition: 0 },
            offset: 0,
            seq: 0,
            writing: 0,
            appended_ms: 0,
            true_ms: 0,
            replayed: false,
        };
        self.write_effect(effect).await
    }

    /// A statement that violates a constraint: nothing else works in this transaction.
    ///
    /// # Errors
    ///
    /// Always.
    pub async fn violate_unique(&mut self) -> StoreResult<()> {
        let store = self.store.clone();
        let violated = |_: &mut _, _| Err(error(ErrorClass::Failed, "it is there already"));
        let violated = store.statement(self.id, violated).await;
        self.poison();
        violated
    }
}

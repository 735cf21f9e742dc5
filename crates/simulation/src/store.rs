//! The model database: receipts, positions, dead letters, effects and the outbox in memory, with transactions as a real one
//! has them.

mod access;
mod admin;
mod audit;
mod claim;
mod commit;
mod dead;
mod effect;
mod outbox;
mod outbox_admin;
mod pause;
mod position;
mod purge;
mod quiet;
mod status;
mod tables;
mod txn;

use std::collections::BTreeMap;
use std::error::Error;

use oncebox_core::names::ConsumerName;
use oncebox_core::store::{Advance, Claim, Claimed, ErrorClass, Store, StoreResult};

pub(crate) use access::ModelError;
pub use quiet::Model;
pub(crate) use tables::{Effect, EventRowState, LetterRow, ReceiptOf, ReceiptRow, Spot, Tables};
pub use txn::{Conn, Txn};
pub(crate) use txn::{Moves, OpenTxn};

use crate::plan::Fault;
use crate::world::{Actor, World};

/// The connection of one life of a process to the model database.
#[derive(Debug, Clone)]
pub struct ModelStore {
    pub(crate) world: World,
    pub(crate) actor: Actor,
}

impl Store for ModelStore {
    type Conn = Conn;
    type Txn = Txn;

    async fn claim(&self, consumer: &ConsumerName, claims: &[Claim<'_>]) -> StoreResult<Claimed<Txn>> {
        claim::claim(self, consumer, claims).await
    }

    async fn claim_within(
        &self,
        conn: &mut Conn,
        consumer: &ConsumerName,
        claims: &[Claim<'_>],
    ) -> StoreResult<Vec<bool>> {
        claim::claim_within(self, conn, consumer, claims).await
    }

    async fn commit(&self, txn: Txn, advance: Option<Advance<'_>>) -> StoreResult<()> {
        commit::commit(self, txn, advance.as_ref()).await
    }

    async fn rollback(&self, txn: Txn) {
        self.world.takes_time(self.actor).await;
        drop(txn);
    }

    async fn undo(&self, txn: Txn) -> StoreResult<()> {
        self.rollback(txn).await;
        Ok(())
    }

    fn classify(error: &(dyn Error + 'static)) -> ErrorClass {
        let mut cause = Some(error);
        while let Some(inner) = cause {
            if let Some(model) = inner.downcast_ref::<ModelError>() {
                return model.class;
            }
            cause = inner.source();
        }
        ErrorClass::Failed
    }
}

/// The database server.
#[derive(Debug)]
pub(crate) struct Database {
    /// What is committed.
    pub(crate) tables: Tables,
    /// What the replica knows; it becomes the truth when the primary is lost.
    pub(crate) replica: Option<Tables>,
    pub(crate) open: BTreeMap<u64, OpenTxn>,
    next_txn: u64,
    /// Sequences never go back, not even in a failover.
    next_event: i64,
    next_letter: i64,
    next_turn: u64,
    /// How far the clock of the server is from the true time.
    pub(crate) skew_ms: i64,
    /// The latest time that it had shown when it was set.
    pub(crate) shown_ms: i64,
    /// It does not answer.
    pub(crate) away: bool,
    /// The handlers' table is not there.
    pub(crate) table_missing: bool,
    /// When the table came back, in milliseconds since 1970.
    pub(crate) healed_ms: i64,
    pub(crate) faults: Vec<Fault>,
    /// Who wrote the last attempt at a message down; of a queue, all who did.
    pub(crate) attempted_by: BTreeMap<(Spot, i64), Vec<Actor>>,
    /// How often an answer got lost, or everything was away: nobody knows then whether an attempt was written down.
    pub(crate) unanswered: u32,
    /// How often the database failed over.
    pub(crate) failovers: u32,
    /// Since when each life of a process knows that a consumer is paused.
    pub(crate) pauses_known: BTreeMap<Actor, BTreeMap<String, i64>>,
}

impl Database {
    pub(crate) fn new() -> Self {
        Self {
            tables: Tables::default(),
            replica: None,
            open: BTreeMap::new(),
            next_txn: 1,
            next_event: 1,
            next_letter: 1,
            next_turn: 0,
            skew_ms: 0,
            shown_ms: 0,
            away: false,
            table_missing: false,
            healed_ms: 0,
            faults: Vec::new(),
            attempted_by: BTreeMap::new(),
            unanswered: 0,
            failovers: 0,
            pauses_known: BTreeMap::new(),
        }
    }

    /// The fault happens now, if it is due.
    pub(crate) fn takes(&mut self, fault: Fault) -> bool {
        let due = self.faults.iter().position(|armed| *armed == fault);
        due.map(|at| self.faults.remove(at)).is_some()
    }
}

//! Open transactions.

use std::ops::{Deref, DerefMut};

use oncebox_core::inbox::ReceiptKey;
use oncebox_core::source::{LogId, LogMark};
use oncebox_core::store::{DeadLetter, Duplicates, ErrorClass, StoreResult};

use super::access::{away, error};
use super::tables::{ReceiptOf, Spot};
use super::{Effect, EventRowState, ModelStore};
use crate::plan::Place;
use crate::world::{About, Actor, Inner};

/// What a transaction wants to write.
#[derive(Debug)]
pub(crate) struct OpenTxn {
    pub(crate) actor: Actor,
    pub(crate) began_ms: i64,
    /// By the clocks: the later of the server's and the client's.
    pub(crate) processed_at_ms: i64,
    pub(crate) receipts: Vec<(ReceiptKey, ReceiptOf)>,
    /// Receipts that become as young as new ones.
    pub(crate) renewed: Vec<(ReceiptKey, ReceiptOf)>,
    pub(crate) effects: Vec<Effect>,
    pub(crate) events: Vec<EventRowState>,
    pub(crate) letters: Vec<(usize, Place, DeadLetter)>,
    /// The letter that is being replayed.
    pub(crate) taken: Option<i64>,
    pub(crate) advance: Option<Moves>,
    /// The messages that it is about.
    pub(crate) numbers: Vec<u32>,
    /// Nothing but a rollback works any more.
    pub(crate) poisoned: bool,
    pub(crate) commit_sent: bool,
}

/// What an owner knows to be committed: the next offset, and how many transactions have advanced the position.
pub(crate) type KnownCommitted = (Option<i64>, Option<i64>);

/// How a commit moves its position.
#[derive(Debug, Clone)]
pub(crate) struct Moves {
    pub(crate) spot: Spot,
    pub(crate) epoch: i64,
    pub(crate) next_offset: Option<i64>,
    pub(crate) known: KnownCommitted,
    pub(crate) log: Option<LogId>,
    pub(crate) mark: Option<LogMark>,
    pub(crate) caught_up_ms: Option<i64>,
    pub(crate) finished_attempt: Option<i64>,
    pub(crate) applied: u64,
    pub(crate) duplicates: Duplicates,
    pub(crate) settled_to: Option<i64>,
    pub(crate) rewound_to: Option<i64>,
}

/// The number of no transaction.
pub(crate) const NO_TXN: u64 = 0;

/// What a handler gets.
#[derive(Debug)]
pub struct Conn {
    pub(crate) store: ModelStore,
    pub(crate) id: u64,
}

/// An open transaction as its owner sees it. Dropping it closes its connection, which undoes it.
#[derive(Debug)]
pub struct Txn(Conn);

impl Deref for Txn {
    type Target = Conn;
    fn deref(&self) -> &Conn {
        &self.0
    }
}

impl DerefMut for Txn {
    fn deref_mut(&mut self) -> &mut Conn {
        &mut self.0
    }
}

impl Drop for Txn {
    fn drop(&mut self) {
        self.0.store.world.lock().undo(self.0.id);
        self.0.store.world.stir(About::Transactions);
    }
}

impl ModelStore {
    /// Begins a transaction.
    pub(crate) fn begin(&self) -> Txn {
        let mut inner = self.world.lock();
        let id = inner.db.next_txn;
        inner.db.next_txn += 1;
        let skew = inner.processes[self.actor.process].skew_ms;
        let txn = OpenTxn {
            actor: self.actor,
            began_ms: inner.now_ms(),
            processed_at_ms: inner.db_now_ms().max(inner.now_ms() + skew),
            receipts: Vec::new(),
            renewed: Vec::new(),
            effects: Vec::new(),
            events: Vec::new(),
            letters: Vec::new(),
            taken: None,
            advance: None,
            numbers: Vec::new(),
            poisoned: false,
            commit_sent: false,
        };
        inner.db.open.insert(id, txn);
        Txn(Conn { store: self.clone(), id })
    }

    /// A statement inside a transaction.
    pub(super) async fn statement<T>(
        &self,
        txn: u64,
        act: impl FnOnce(&mut Inner, u64) -> StoreResult<T>,
    ) -> StoreResult<T> {
        self.reach().await?;
        let result = self.world.lock().in_txn(txn, act);
        self.world.takes_time(self.actor).await;
        result
    }
}

impl Inner {
    pub(super) fn in_txn<T>(
        &mut self,
        id: u64,
        act: impl FnOnce(&mut Self, u64) -> StoreResult<T>,
    ) -> StoreResult<T> {
        if id == NO_TXN {
            return Err(error(ErrorClass::Failed, "there is no transaction"));
        }
        let Some(open) = self.db.open.get(&id) else { return Err(away()) };
        if open.poisoned {
            self.expose(id);
            return Err(error(ErrorClass::Transient, "the transaction is aborted"));
        }
        act(self, id)
    }

    /// The messages of a transaction fail for a reason that may count against one that is alone.
    pub(super) fn expose(&mut self, id: u64) {
        let numbers = self.db.open.get(&id).map(|open| open.numbers.clone()).unwrap_or_default();
        for number in numbers {
            if let Some(sent) = self.messages.get_mut(number) {
                sent.exposed += 1;
            }
        }
    }

    fn undo(&mut self, id: u64) {
        if self.db.open.remove(&id).is_some() {
            self.release_letters(id);
        }
    }
}

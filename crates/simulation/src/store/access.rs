//! How an operation reaches the database and its answer comes back, or not.

use std::fmt;

use oncebox_core::store::{ErrorClass, StoreError, StoreResult};

use super::{Database, ModelStore};
use crate::coverage::Event;
use crate::plan::Fault;
use crate::world::{About, Actor, Inner};

/// What the model database says when something is wrong.
#[derive(Debug)]
pub(crate) struct ModelError {
    pub(crate) class: ErrorClass,
    what: &'static str,
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }
}

impl std::error::Error for ModelError {}

impl ModelError {
    pub(crate) fn new(class: ErrorClass, what: &'static str) -> Self {
        Self { class, what }
    }
}

pub(super) fn error(class: ErrorClass, what: &'static str) -> StoreError {
    StoreError::new(class, "the model database", ModelError::new(class, what))
}

pub(super) fn away() -> StoreError {
    error(ErrorClass::Away, "the connection is lost")
}

impl ModelStore {
    /// One operation in a transaction of its own.
    pub(super) async fn operation<T>(
        &self,
        act: impl FnOnce(&mut Inner) -> StoreResult<T>,
    ) -> StoreResult<T> {
        self.reach().await?;
        let result = act(&mut self.world.lock());
        self.world.stir(About::Transactions);
        self.answer(result).await
    }

    /// The statement arrives at the server.
    pub(super) async fn reach(&self) -> StoreResult<()> {
        self.world.alive(self.actor).await;
        self.world.takes_time(self.actor).await;
        let away = self.world.lock().db.away;
        if away { Err(away_error()) } else { Ok(()) }
    }

    /// The answer comes back.
    pub(super) async fn answer<T>(&self, result: StoreResult<T>) -> StoreResult<T> {
        self.world.takes_time(self.actor).await;
        let lost = result.is_ok() && self.world.lock().db.takes(Fault::AnswerLost);
        if lost {
            let mut inner = self.world.lock();
            inner.db.unanswered += 1;
            inner.attempts_are_stranded();
            return Err(away());
        }
        result
    }
}

pub(super) fn away_error() -> StoreError {
    error(ErrorClass::Away, "the database does not answer")
}

impl Inner {
    /// The time by the clock of the server.
    pub(crate) fn db_now_ms(&self) -> i64 {
        self.now_ms() + self.db.skew_ms
    }

    /// The latest time that the clock of the server has ever shown.
    pub(crate) fn db_latest_ms(&self) -> i64 {
        self.db_now_ms().max(self.db.shown_ms)
    }

    /// All connections of a life of a process are gone. What it had sent may still arrive.
    pub(crate) fn connections_break(&mut self, actor: Actor) {
        let ids: Vec<u64> =
            self.db.open.iter().filter(|(_, txn)| txn.actor == actor).map(|(id, _)| *id).collect();
        for id in ids {
            // A commit that is on its way is done or not; nobody will know.
            if self.db.open[&id].commit_sent && self.rng.bool() {
                self.saw(Event::LostAnswerCommitted);
                // The server does what it was asked, whether or not somebody listens.
                self.commit_open(id).ok();
            } else {
                self.db.open.remove(&id);
                self.release_letters(id);
            }
        }
    }

    /// The server loses all its connections.
    pub(crate) fn all_connections_break(&mut self) {
        let ids: Vec<u64> = self.db.open.keys().copied().collect();
        self.db.open.clear();
        for id in ids {
            self.release_letters(id);
        }
    }

    /// The handlers' table is there again.
    pub(crate) fn table_is_back(&mut self) {
        if std::mem::take(&mut self.db.table_missing) {
            self.db.healed_ms = self.now_ms();
        }
    }

    /// The primary is gone; the replica, which knows less, takes over.
    pub(crate) fn fail_over(&mut self) {
        let Some(replica) = self.db.replica.take() else { return };
        self.all_connections_break();
        let Database { tables, failovers, .. } = &mut self.db;
        *tables = replica;
        *failovers += 1;
        for letter in tables.letters.values_mut() {
            letter.taken_by = None;
        }
        // Attempts that were under way when the replica began to lag look like crashes.
        self.attempts_are_stranded();
        self.saw(Event::Failover);
    }
}

impl Inner {
    /// The server ends the transactions of a process that does nothing.
    pub(crate) fn end_idle(&mut self, actor: Actor) {
        let idle: Vec<u64> =
            self.db.open.iter().filter(|(_, txn)| txn.actor == actor).map(|(id, _)| *id).collect();
        for id in idle {
            self.db.open.remove(&id);
            self.release_letters(id);
            self.saw(Event::IdleTransactionEnded);
        }
    }
}

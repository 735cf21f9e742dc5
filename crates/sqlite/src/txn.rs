//! An open transaction.

use std::ops::{Deref, DerefMut};

use oncebox_core::{ErrorClass, StoreError, StoreResult};
use sqlx::SqliteConnection;
use sqlx::sqlite::SqliteTransactionManager;
use sqlx_core::transaction::TransactionManager;
use tokio::sync::OwnedMutexGuard;

use crate::classify::Context;
use crate::writer::WriteConn;

/// An open transaction on the writing connection.
///
/// Dropping it closes the connection, which undoes everything; only a clean commit or rollback gives the connection back.
#[derive(Debug)]
pub struct SqliteTxn {
    // Dropped first: whoever waits for the slot finds the old connection on its way out.
    write: WriteConn,
    slot: OwnedMutexGuard<Option<WriteConn>>,
}

impl SqliteTxn {
    pub(crate) fn new(write: WriteConn, slot: OwnedMutexGuard<Option<WriteConn>>) -> Self {
        Self { write, slot }
    }

    /// Fails if SQLite or the handler has ended the transaction already. What ran since then was in no transaction, and
    /// what would run now neither.
    pub(crate) fn ensure_open(&self) -> StoreResult<()> {
        let reason = if self.write.gate.is_lost() {
            "the transaction was ended before its commit: a handler must pass errors on, and leave COMMIT and ROLLBACK alone"
        } else if SqliteTransactionManager::get_transaction_depth(&self.write.conn) != 1 {
            "a transaction that the handler opened inside is still open"
        } else {
            return Ok(());
        };
        Err(StoreError::new(ErrorClass::Failed, "committing", reason))
    }

    /// Commits and gives the connection back. On an error everything is undone.
    pub(crate) async fn commit(mut self) -> StoreResult<()> {
        if let Err(error) = self.ensure_open() {
            self.rollback().await;
            return Err(error);
        }
        self.write.gate.let_commit();
        match SqliteTransactionManager::commit(&mut self.write.conn).await {
            Ok(()) => {
                self.give_back();
                Ok(())
            }
            Err(error) => {
                // A commit that failed (a deferred foreign key, a full disk) may have left the transaction open.
                self.rollback().await;
                Err(error).context("committing")
            }
        }
    }

    /// Undoes everything and gives the connection back, if it is still in order.
    pub(crate) async fn rollback(mut self) {
        if self.ensure_open().is_err() {
            return;
        }
        if SqliteTransactionManager::rollback(&mut self.write.conn).await.is_ok() {
            self.give_back();
        }
    }

    fn give_back(self) {
        let Self { write, mut slot } = self;
        write.gate.open();
        *slot = Some(write);
    }
}

impl Deref for SqliteTxn {
    type Target = SqliteConnection;
    fn deref(&self) -> &SqliteConnection {
        &self.write.conn
    }
}

impl DerefMut for SqliteTxn {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.write.conn
    }
}

//! An open transaction.

use std::ops::{Deref, DerefMut};

use oncebox_core::store::{Advance, ErrorClass, StoreError, StoreResult};
use sqlx::sqlite::SqliteTransactionManager;
use sqlx::{Connection, SqliteConnection};
use sqlx_core::transaction::TransactionManager;
use tokio::sync::OwnedMutexGuard;

use crate::classify::Context;
use crate::position;
use crate::writer::WriteConn;

const COMMITTING: &str = "committing";

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

    /// Moves the position, commits and gives the connection back. On an error everything is undone.
    pub(crate) async fn commit(mut self, advance: Option<&Advance<'_>>) -> StoreResult<()> {
        match self.try_commit(advance).await {
            Ok(()) => {
                self.give_back();
                Ok(())
            }
            Err(error) => {
                // A commit that failed (a deferred foreign key, a full disk) may have left the transaction open.
                self.rollback().await;
                Err(error)
            }
        }
    }

    async fn try_commit(&mut self, advance: Option<&Advance<'_>>) -> StoreResult<()> {
        self.ensure_open().await?;
        if let Some(advance) = advance {
            position::advance(self, advance).await?;
        }
        self.write.gate.let_commit();
        SqliteTransactionManager::commit(&mut self.write.conn).await.context(COMMITTING)
    }

    /// Undoes everything and gives the connection back, if it is still in order.
    pub(crate) async fn rollback(mut self) {
        if self.ensure_open().await.is_err() {
            return;
        }
        match SqliteTransactionManager::rollback(&mut self.write.conn).await {
            Ok(()) => self.give_back(),
            Err(error) => tracing::debug!(%error, "rolling back failed, closing the connection"),
        }
    }

    /// Fails if SQLite or the handler has ended the transaction already: what ran since then was in no transaction, and
    /// what would run now neither. Waits for statements that the handler began and left.
    async fn ensure_open(&mut self) -> StoreResult<()> {
        self.write.conn.ping().await.context(COMMITTING)?;
        let reason = if self.write.gate.is_lost() {
            "the transaction was ended before its commit: a handler must pass errors on, and leave COMMIT and ROLLBACK alone"
        } else if SqliteTransactionManager::get_transaction_depth(&self.write.conn) != 1 {
            "a transaction that the handler opened inside is still open"
        } else {
            return Ok(());
        };
        Err(StoreError::new(ErrorClass::Failed, COMMITTING, reason))
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

//! One transaction, from BEGIN to COMMIT: the hot path.

use std::ops::{Deref, DerefMut};

use oncebox_core::error::Wording;
use oncebox_core::inbox::Selector;
use oncebox_core::names::ConsumerName;
use oncebox_core::store::{Adopt, Advance, Claim, Claimed, ErrorClass, Store, StoreError, StoreResult};
use sqlx::sqlite::SqliteTransactionManager;
use sqlx::{Connection, SqliteConnection};
use sqlx_core::transaction::TransactionManager;
use tokio::sync::OwnedMutexGuard;

use crate::classify::Context;
use crate::store::SqliteStore;
use crate::writer::WriteConn;
use crate::{adopted, claim, classify, position};

impl Store for SqliteStore {
    type Conn = SqliteConnection;
    type Txn = SqliteTxn;

    fn adopted(&self) -> Option<&Adopt> {
        adopted::adopted(self)
    }

    fn further(&self) -> &[(String, Selector)] {
        adopted::further(self)
    }

    async fn claim(&self, consumer: &ConsumerName, claims: &[Claim<'_>]) -> StoreResult<Claimed<SqliteTxn>> {
        let mut txn = self.begin().await?;
        if let Some(table) = self.adopted.as_deref() {
            let (fresh, refused) = adopted::claim(self, table, &mut txn, consumer, claims).await?;
            return Ok(Claimed::adopted(txn, fresh, refused));
        }
        let claim::Found { fresh, collisions, fingerprints } =
            claim::claim(&mut txn, consumer, claims).await?;
        Ok(Claimed { txn, fresh, collisions, refused: Vec::new(), fingerprints })
    }

    async fn claim_within(
        &self,
        conn: &mut SqliteConnection,
        consumer: &ConsumerName,
        claims: &[Claim<'_>],
    ) -> StoreResult<Vec<bool>> {
        match self.adopted.as_deref() {
            Some(table) => adopted::claim_within(self, table, conn, consumer, claims).await,
            None => claim::claim_within(conn, consumer, claims).await,
        }
    }

    async fn commit(&self, txn: SqliteTxn, advance: Option<Advance<'_>>) -> StoreResult<()> {
        txn.commit(advance.as_ref()).await
    }

    async fn rollback(&self, txn: SqliteTxn) {
        txn.rollback().await;
    }

    async fn undo(&self, txn: SqliteTxn) -> StoreResult<()> {
        // Nothing but the store's own commit passes the gate.
        txn.rollback().await;
        Ok(())
    }

    fn wording(error: &(dyn std::error::Error + 'static), class: ErrorClass) -> Option<Wording> {
        crate::wording::wording(error, class)
    }

    fn classify(error: &(dyn std::error::Error + 'static)) -> ErrorClass {
        classify::classify(error)
    }
}

impl SqliteStore {
    /// Waits for its turn and opens a transaction that holds the write lock from the start.
    pub(crate) async fn begin(&self) -> StoreResult<SqliteTxn> {
        self.writer.begin().await
    }
}

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

    /// Moves the position and commits. A handler may have run in the transaction.
    pub(crate) async fn commit(self, advance: Option<&Advance<'_>>) -> StoreResult<()> {
        self.end(advance, "committing").await
    }

    /// Commits a transaction that holds only statements of ours.
    pub(crate) async fn commit_own(self, doing: &str) -> StoreResult<()> {
        self.end(None, doing).await
    }

    /// The one way to commit. It gives the connection back; on an error everything is undone.
    async fn end(mut self, advance: Option<&Advance<'_>>, doing: &str) -> StoreResult<()> {
        match self.try_commit(advance, doing).await {
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

    async fn try_commit(&mut self, advance: Option<&Advance<'_>>, doing: &str) -> StoreResult<()> {
        self.ensure_open(doing).await?;
        if let Some(advance) = advance {
            position::advance(self, advance).await?;
        }
        self.write.gate.let_commit();
        SqliteTransactionManager::commit(&mut self.write.conn).await.context(doing)
    }

    /// Undoes everything and gives the connection back, if it is still in order.
    pub(crate) async fn rollback(mut self) {
        if self.ensure_open("rolling back").await.is_err() {
            return;
        }
        match SqliteTransactionManager::rollback(&mut self.write.conn).await {
            Ok(()) => self.give_back(),
            Err(error) => tracing::debug!(%error, "rolling back failed, closing the connection"),
        }
    }

    /// Fails if SQLite or the handler has ended the transaction already: what ran since then was in no transaction, and
    /// what would run now neither. Waits for statements that the handler began and left.
    async fn ensure_open(&mut self, doing: &str) -> StoreResult<()> {
        self.write.conn.ping().await.context(doing)?;
        let reason = if self.write.gate.is_lost() {
            "the transaction was ended before its commit: a handler must pass errors on, and leave COMMIT and ROLLBACK alone"
        } else if SqliteTransactionManager::get_transaction_depth(&self.write.conn) != 1 {
            "a transaction that the handler opened inside is still open"
        } else {
            return Ok(());
        };
        Err(StoreError::new(ErrorClass::Failed, doing, reason))
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

//! The one connection that writes.
//!
//! SQLite has one writer per file. Lanes that each had a connection would spin on `SQLITE_BUSY`, and the unlucky one would
//! starve; here they queue up in order.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oncebox_core::store::StoreResult;
use sqlx::sqlite::{SqliteConnectOptions, SqliteTransactionManager};
use sqlx::{ConnectOptions, SqlSafeStr, SqliteConnection};
use sqlx_core::transaction::TransactionManager;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::classify::{Context, is_busy};
use crate::gate::Gate;
use crate::txn::SqliteTxn;

/// How long SQLite waits for the lock of another process.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// The writing connection, when there is one. A transaction takes it out and puts it back when it ended well; whatever
/// else happens to it, the next transaction finds the place empty and connects anew.
pub(crate) type Slot = Arc<Mutex<Option<WriteConn>>>;

/// A connection and its gate.
pub(crate) struct WriteConn {
    pub(crate) conn: SqliteConnection,
    pub(crate) gate: Gate,
}

impl fmt::Debug for WriteConn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteConn").finish_non_exhaustive()
    }
}

/// Hands out the writing connection, one transaction at a time.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    slot: Slot,
    options: SqliteConnectOptions,
}

impl Writer {
    pub(crate) fn new(options: SqliteConnectOptions) -> Self {
        Self { slot: Slot::default(), options }
    }

    /// Waits for its turn and opens a transaction that holds the write lock from the start. A deferred one would fail
    /// with `SQLITE_BUSY_SNAPSHOT` as soon as it writes after another process did, whatever the busy timeout.
    pub(crate) async fn begin(&self) -> StoreResult<SqliteTxn> {
        let (mut write, slot) = self.take().await.context_of_begin("connecting to the database")?;
        let immediate = Some("BEGIN IMMEDIATE".into_sql_str());
        SqliteTransactionManager::begin(&mut write.conn, immediate)
            .await
            .context_of_begin("opening a transaction")?;
        write.gate.close();
        Ok(SqliteTxn::new(write, slot))
    }

    /// Runs a statement outside of any transaction, as some pragmas want it.
    pub(crate) async fn run(&self, sql: &'static str) -> StoreResult<()> {
        let (mut write, mut slot) = self.take().await.context_of_begin("connecting to the database")?;
        sqlx::query(sql).execute(&mut write.conn).await.context(sql)?;
        *slot = Some(write);
        Ok(())
    }

    /// Connects, so that a wrong path is told at once.
    pub(crate) async fn warm_up(&self) -> sqlx::Result<()> {
        let (write, mut slot) = self.take().await?;
        *slot = Some(write);
        Ok(())
    }

    async fn take(&self) -> sqlx::Result<(WriteConn, OwnedMutexGuard<Option<WriteConn>>)> {
        let mut slot = self.slot.clone().lock_owned().await;
        let write = match slot.take() {
            Some(write) => write,
            None => self.connect().await?,
        };
        Ok((write, slot))
    }

    /// Turning on WAL needs the file alone and does not honour the busy timeout, so processes that start together on a
    /// new file get in each other's way for a moment.
    async fn connect(&self) -> sqlx::Result<WriteConn> {
        let give_up = Instant::now() + BUSY_TIMEOUT;
        let mut conn = loop {
            match self.options.connect().await {
                Err(error) if is_busy(&error) && Instant::now() < give_up => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                other => break other?,
            }
        };
        let gate = Gate::on(&mut conn).await?;
        Ok(WriteConn { conn, gate })
    }
}

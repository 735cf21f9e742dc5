//! Nothing commits behind the back of a transaction.
//!
//! SQLite may undo a transaction by itself (disk full, out of memory, `ON CONFLICT ROLLBACK`). A handler that swallows
//! that error would go on in autocommit mode: its next statement would commit at once, without receipts. A handler might
//! also say `COMMIT` itself. The gate hangs on SQLite's commit and rollback hooks: while a transaction is open, only the
//! store's own commit passes, and a transaction that was undone is remembered as lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use sqlx::SqliteConnection;

const IDLE: u8 = 0;
const OPEN: u8 = 1;
const COMMITTING: u8 = 2;
const LOST: u8 = 3;

/// What a connection may commit right now.
#[derive(Debug, Clone)]
pub(crate) struct Gate(Arc<AtomicU8>);

impl Gate {
    /// Hangs a gate on a connection.
    pub(crate) async fn on(conn: &mut SqliteConnection) -> sqlx::Result<Self> {
        let gate = Self(Arc::new(AtomicU8::new(IDLE)));
        let (at_commit, at_rollback) = (gate.clone(), gate.clone());
        let mut handle = conn.lock_handle().await?;
        handle.set_commit_hook(move || matches!(at_commit.0.load(Ordering::SeqCst), IDLE | COMMITTING));
        handle.set_rollback_hook(move || at_rollback.lose());
        Ok(gate)
    }

    /// A transaction is open: only [`Gate::let_commit`] lets it through.
    pub(crate) fn close(&self) {
        self.0.store(OPEN, Ordering::SeqCst);
    }

    /// The next commit is the store's own. A transaction that is lost stays so.
    pub(crate) fn let_commit(&self) {
        self.0.compare_exchange(OPEN, COMMITTING, Ordering::SeqCst, Ordering::SeqCst).ok();
    }

    /// Whether the transaction was undone behind the store's back.
    pub(crate) fn is_lost(&self) -> bool {
        self.0.load(Ordering::SeqCst) == LOST
    }

    /// No transaction is open.
    pub(crate) fn open(&self) {
        self.0.store(IDLE, Ordering::SeqCst);
    }

    fn lose(&self) {
        // The outcome does not matter: outside of an open transaction there is nothing to lose.
        self.0.compare_exchange(OPEN, LOST, Ordering::SeqCst, Ordering::SeqCst).ok();
    }
}

//! Whose turn it is to run a handler in this process.

use std::sync::{Arc, LazyLock};

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

static PROCESS: LazyLock<Turn> = LazyLock::new(Turn::new);

/// Batches of all partitions and inboxes run side by side; a message that may end the process runs alone in it. If the
/// process ends while one runs alone, nobody else can have done it.
#[derive(Debug, Clone)]
pub struct Turn(Arc<RwLock<()>>);

impl Turn {
    /// The one of this process. Every inbox uses it by default.
    #[must_use]
    pub fn of_process() -> Self {
        PROCESS.clone()
    }

    /// One that nobody shares: for tests that play several processes.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::default())
    }

    pub(crate) async fn beside_others(&self) -> OwnedRwLockReadGuard<()> {
        Arc::clone(&self.0).read_owned().await
    }

    pub(crate) async fn alone(&self) -> OwnedRwLockWriteGuard<()> {
        Arc::clone(&self.0).write_owned().await
    }
}

impl Default for Turn {
    fn default() -> Self {
        Self::of_process()
    }
}

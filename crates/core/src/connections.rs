//! Who may use how many connections of the store at once: a slow neighbour must not take all of them.
//!
//! It is counted here and not by pools of their own, so that it holds for every store, and a connection that a share leaves idle is
//! not opened twice.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A share of the store's connections. Who comes first is served first.
#[derive(Debug, Clone)]
pub(crate) struct Connections(Arc<Semaphore>);

/// The right to use one of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    // Nobody closes the semaphore, so it is always there.
    _permit: Option<OwnedSemaphorePermit>,
}

impl Connections {
    /// As many as that, but at least one; all that the store has, if it does not say.
    pub(crate) fn new(most: Option<usize>) -> Self {
        let most = most.map_or(Semaphore::MAX_PERMITS, |most| most.clamp(1, Semaphore::MAX_PERMITS));
        Self(Arc::new(Semaphore::new(most)))
    }

    /// Waits until one of the share is free.
    pub(crate) async fn take(&self) -> Connection {
        Connection { _permit: Arc::clone(&self.0).acquire_owned().await.ok() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn a_share_is_never_exceeded_and_never_nothing() {
        for (most, expected) in [(Some(0), 1), (Some(1), 1), (Some(3), 3)] {
            let share = Connections::new(most);
            let mut taken: Vec<Connection> =
                std::iter::from_fn(|| share.take().now_or_never()).take(10).collect();
            assert_eq!(taken.len(), expected);
            taken.pop();
            assert!(share.take().now_or_never().is_some());
        }
    }
}

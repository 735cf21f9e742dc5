//! A handler that outlives the worker it was given to, so that another worker can have it.

use std::sync::Arc;

use oncebox_core::inbox::{Apply, Failure};
use oncebox_core::message::Message;
use oncebox_core::store::Store;

/// A handler behind a pointer.
pub(super) struct Shared<A>(pub(super) Arc<A>);

impl<A> Clone for Shared<A> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Store, A: Apply<S>> Apply<S> for Shared<A> {
    async fn apply(&self, conn: &mut S::Conn, fresh: &[Message]) -> Result<(), Failure> {
        self.0.apply(conn, fresh).await
    }
}

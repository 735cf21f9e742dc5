//! From the handlers that people write to the one shape that the engine calls.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;

use serde::de::DeserializeOwned;

use super::handler::{Apply, BatchFn, EachFn, EachJsonFn, Failure, Handler};
use crate::error::Result;
use crate::message::Message;
use crate::outbox::cause;
use crate::store::Store;

/// [`Apply`] behind a pointer, so that the type of a handler stays out of the types that people name. Costs one allocation
/// per transaction.
pub(super) struct AnyApply<S: Store>(Box<dyn DynApply<S>>);

impl<S: Store> AnyApply<S> {
    pub(super) fn new(apply: impl Apply<S>) -> Self {
        Self(Box::new(apply))
    }
}

impl<S: Store> Apply<S> for AnyApply<S> {
    async fn apply(&self, conn: &mut S::Conn, fresh: &[Message]) -> Result<(), Failure> {
        self.0.apply(conn, fresh).await
    }
}

trait DynApply<S: Store>: Send + Sync {
    fn apply<'a>(&'a self, conn: &'a mut S::Conn, fresh: &'a [Message]) -> Applying<'a>;
}

type Applying<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + 'a>>;

impl<S: Store, A: Apply<S>> DynApply<S> for A {
    fn apply<'a>(&'a self, conn: &'a mut S::Conn, fresh: &'a [Message]) -> Applying<'a> {
        Box::pin(Apply::apply(self, conn, fresh))
    }
}

/// [`Handler`] from a [`EachFn`].
pub(super) struct ByMessage<F>(pub(super) F);

impl<S: Store, F: EachFn<S>> Handler<S> for ByMessage<F> {
    async fn handle(&self, tx: &mut S::Conn, message: &Message) -> Result<()> {
        (self.0.clone())(tx, message).await
    }
}

/// [`Handler`] from a [`EachJsonFn`].
pub(super) struct ByPayload<F, T> {
    call: F,
    payload: PhantomData<fn() -> T>,
}

impl<F, T> ByPayload<F, T> {
    pub(super) fn new(call: F) -> Self {
        Self { call, payload: PhantomData }
    }
}

impl<S, F, T> Handler<S> for ByPayload<F, T>
where
    S: Store,
    F: EachJsonFn<S, T>,
    T: DeserializeOwned + Send + 'static,
{
    async fn handle(&self, tx: &mut S::Conn, message: &Message) -> Result<()> {
        let payload = message.json::<T>()?;
        (self.call.clone())(tx, payload).await
    }
}

/// [`Apply`] from a [`Handler`]: one message after another.
pub(super) struct OneByOne<H>(pub(super) H);

impl<S: Store, H: Handler<S>> Apply<S> for OneByOne<H> {
    async fn apply(&self, conn: &mut S::Conn, fresh: &[Message]) -> Result<(), Failure> {
        for (at, message) in fresh.iter().enumerate() {
            cause::set_message(message);
            self.0.handle(conn, message).await.map_err(|error| Failure { at: Some(at), error })?;
        }
        Ok(())
    }
}

/// [`Apply`] from a [`BatchFn`].
pub(super) struct AsBatch<F>(pub(super) F);

impl<S: Store, F: BatchFn<S>> Apply<S> for AsBatch<F> {
    async fn apply(&self, conn: &mut S::Conn, fresh: &[Message]) -> Result<(), Failure> {
        (self.0.clone())(conn, fresh).await.map_err(Failure::of_batch)
    }
}

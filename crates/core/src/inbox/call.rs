//! Calling a handler: from what people write to the one shape that the engine calls, and the context in which it runs.
//!
//! A handler emits through its connection, which knows nothing of messages. What is said here of the handler that runs on
//! this task links an event to its receipt and to its trace.

use std::cell::RefCell;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;

use serde::de::DeserializeOwned;

use super::handler::{Apply, BatchFn, EachFn, EachJsonFn, Failure, Handler};
use crate::error::Result;
use crate::message::Message;
use crate::names::ConsumerName;
use crate::store::Store;
use crate::telemetry::TRACEPARENT;

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
            set_message(message);
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

tokio::task_local! {
    static CURRENT: RefCell<Current>;
}

struct Current {
    consumer: ConsumerName,
    message: Option<Message>,
    events: bool,
}

/// The header in which the id of a business process travels, from message to event to message.
pub(crate) const CORRELATION_ID: &str = "correlation-id";

/// What is known of the cause of an event.
#[derive(Debug, Default)]
pub(crate) struct Cause {
    pub(crate) consumer: Option<String>,
    pub(crate) tenant: Option<String>,
    pub(crate) message_id: Option<String>,
    pub(crate) traceparent: Option<String>,
    pub(crate) correlation_id: Option<String>,
}

/// Calls the handler of a consumer on these messages; also says whether it has written events.
pub(crate) async fn call<S: Store>(
    consumer: &ConsumerName,
    handler: &impl Apply<S>,
    conn: &mut S::Conn,
    messages: &[Message],
) -> (Result<(), Failure>, bool) {
    scope(consumer, handler.apply(conn, messages)).await
}

/// Runs what a handler of this consumer does; also says whether it has written events.
pub(crate) async fn scope<F: Future>(consumer: &ConsumerName, work: F) -> (F::Output, bool) {
    let current = Current { consumer: consumer.clone(), message: None, events: false };
    let work = async {
        let output = work.await;
        (output, CURRENT.with(|current| current.borrow().events))
    };
    CURRENT.scope(RefCell::new(current), work).await
}

/// Notes that the handler of this task has written events. False outside of an engine: then nobody takes note.
pub(crate) fn note_events_written() -> bool {
    CURRENT.try_with(|current| current.borrow_mut().events = true).is_ok()
}

/// The consumer whose handler runs on this task. Stores tell it to SQL that writes events by itself.
#[must_use]
pub fn current_consumer() -> Option<ConsumerName> {
    CURRENT.try_with(|current| current.borrow().consumer.clone()).ok()
}

/// From now on this task handles that message.
pub(crate) fn set_message(message: &Message) {
    // Outside of an engine there is nobody to tell.
    CURRENT.try_with(|current| current.borrow_mut().message = Some(message.clone())).ok();
}

/// The cause of an event that is written now; `named` is the message that the event itself names.
pub(crate) fn cause(named: Option<&Message>) -> Cause {
    let known = CURRENT.try_with(|current| {
        let current = current.borrow();
        (current.consumer.as_str().to_owned(), current.message.clone())
    });
    let (consumer, handled) = match known {
        Ok((consumer, handled)) => (Some(consumer), handled),
        Err(_) => (None, None),
    };
    let Some(message) = named.or(handled.as_ref()) else {
        return Cause { consumer, ..Cause::default() };
    };
    Cause {
        consumer,
        tenant: Some(message.tenant().as_str().to_owned()),
        message_id: Some(message.id().as_str().to_owned()),
        traceparent: message.header(TRACEPARENT).map(str::to_owned),
        correlation_id: message.header(CORRELATION_ID).map(str::to_owned),
    }
}

//! Where events go.

mod by_event;
mod outgoing;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub use by_event::{ByEvent, Deliver, SinkFn};
pub use outgoing::OutgoingEvent;

use crate::backoff;
use crate::error::BoxError;
use crate::inbox::RetryPolicy;

/// What became of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delivery {
    /// The receiver has it.
    Delivered,
    /// Not delivered, or nobody knows: try again. The event holds back its key meanwhile.
    Retry {
        /// Why.
        error: String,
        /// How long to wait; the usual backoff if `None`.
        after: Option<Duration>,
    },
    /// No retry can help: park it.
    Reject {
        /// Why.
        error: String,
    },
    /// It was not tried, because an earlier event of its key failed in this batch.
    Behind,
}

/// Delivers events.
///
/// A batch holds events of one topic, in the order in which they must arrive for each key. Several batches, of other topics
/// or other keys, may be under way at once. When a relay has to let go (its lease is over), it drops the future: whatever was
/// not sent yet must then not be sent any more.
pub trait Sink: Send + Sync + 'static {
    /// Delivers the events and says what became of each, in their order. An error means that no event is to blame (the
    /// receiver is away, the topic does not exist): the topic is tried again later, and other topics go on.
    fn deliver(
        &self,
        events: &[OutgoingEvent],
    ) -> impl Future<Output = Result<Vec<Delivery>, BoxError>> + Send;

    /// How many batches may be under way at once.
    fn concurrency(&self) -> usize {
        4
    }

    /// The most events in one batch.
    fn batch_events(&self) -> usize {
        4000
    }

    /// How long to wait after a failure, and after how many an event is parked. Default: never.
    fn retry(&self) -> RetryPolicy {
        KEEP_TRYING
    }
}

impl<T: Sink> Sink for Arc<T> {
    async fn deliver(&self, events: &[OutgoingEvent]) -> Result<Vec<Delivery>, BoxError> {
        T::deliver(self, events).await
    }

    fn concurrency(&self) -> usize {
        T::concurrency(self)
    }

    fn batch_events(&self) -> usize {
        T::batch_events(self)
    }

    fn retry(&self) -> RetryPolicy {
        T::retry(self)
    }
}

/// An event is tried until it is delivered.
pub const KEEP_TRYING: RetryPolicy = RetryPolicy { attempts: u32::MAX, backoff: backoff::EVENT };

/// [`Sink`] behind a pointer.
pub(crate) trait AnySink: Send + Sync {
    fn deliver<'a>(&'a self, events: &'a [OutgoingEvent]) -> Delivering<'a>;
    fn concurrency(&self) -> usize;
    fn batch_events(&self) -> usize;
    fn retry(&self) -> RetryPolicy;
}

pub(crate) type Delivering<'a> = Pin<Box<dyn Future<Output = Result<Vec<Delivery>, BoxError>> + Send + 'a>>;

impl<T: Sink> AnySink for T {
    fn deliver<'a>(&'a self, events: &'a [OutgoingEvent]) -> Delivering<'a> {
        Box::pin(Sink::deliver(self, events))
    }

    fn concurrency(&self) -> usize {
        Sink::concurrency(self).max(1)
    }

    fn batch_events(&self) -> usize {
        Sink::batch_events(self).max(1)
    }

    fn retry(&self) -> RetryPolicy {
        Sink::retry(self)
    }
}

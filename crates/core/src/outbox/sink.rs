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
        /// Why. The log shows its first line, so that what quotes the event or the receiver belongs on the next.
        error: String,
        /// How long to wait; the usual backoff if `None`.
        after: Option<Duration>,
    },
    /// No retry can help: park it.
    Reject {
        /// Why, as in [`Delivery::Retry`].
        error: String,
    },
    /// It was not tried, because an earlier event of its key failed in this batch.
    Behind,
    /// Not delivered, and the receiver is to blame, not the event: it holds back its key for this long, and its attempts stay as
    /// they are.
    Wait {
        /// How long to wait.
        after: Duration,
    },
    /// It was not tried, because the receiver gets nothing at the moment: it stays as it is, and so do the later ones of its key.
    NotTried,
}

/// Whether a receiver takes events at the moment. The reasons are shown by the [`Monitor`](crate::monitor::Monitor), so they quote
/// nothing that came from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// As far as anybody knows.
    Ready,
    /// It gets events, but none of the last ones was delivered.
    Failing {
        /// What it does.
        reason: Arc<str>,
    },
    /// It gets nothing for a while.
    Away {
        /// What it does.
        reason: Arc<str>,
    },
    /// That while is over: one batch may try whether it is back.
    Probe {
        /// What it did.
        reason: Arc<str>,
    },
}

impl Standing {
    /// What is wrong, if anything is.
    #[must_use]
    pub fn trouble(&self) -> Option<&Arc<str>> {
        match self {
            Self::Ready => None,
            Self::Failing { reason } | Self::Away { reason } | Self::Probe { reason } => Some(reason),
        }
    }
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

    /// Whether somebody has paused what takes the events: the relay leaves them where they are, and nothing counts as a failure.
    fn is_paused(&self) -> bool {
        false
    }

    /// Whether an event that is parked holds back its key: the later ones are parked behind it. Such a sink says
    /// [`Delivery::Behind`] of those that come after a rejected one in a batch.
    fn parks_keys(&self) -> bool {
        false
    }

    /// Whether the receiver takes events. A relay asks often, and begins no batch while it is away.
    fn standing(&self) -> Standing {
        Standing::Ready
    }

    /// What spans call the broker: `messaging.system` of the conventions of OpenTelemetry. `None`: events that go there stay inside,
    /// and are no spans.
    fn system(&self) -> Option<&'static str> {
        Some("oncebox")
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

    fn is_paused(&self) -> bool {
        T::is_paused(self)
    }

    fn parks_keys(&self) -> bool {
        T::parks_keys(self)
    }

    fn standing(&self) -> Standing {
        T::standing(self)
    }

    fn system(&self) -> Option<&'static str> {
        T::system(self)
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
    fn is_paused(&self) -> bool;
    fn parks_keys(&self) -> bool;
    fn standing(&self) -> Standing;
    fn system(&self) -> Option<&'static str>;
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

    fn is_paused(&self) -> bool {
        Sink::is_paused(self)
    }

    fn parks_keys(&self) -> bool {
        Sink::parks_keys(self)
    }

    fn standing(&self) -> Standing {
        Sink::standing(self)
    }

    fn system(&self) -> Option<&'static str> {
        Sink::system(self)
    }
}

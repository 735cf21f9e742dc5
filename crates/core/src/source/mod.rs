//! How a source hands messages to the engine: it opens a [`Stream`] per partition, pushes records into it and asks it what
//! may be acknowledged.
//!
//! A source drives; the engine never calls it. All methods of a stream return at once, so a thread that must keep polling
//! its broker can use them, except [`Stream::wait_closed`], which waits for a bounded time.

mod log;
mod start;
mod stream;

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::error::BoxError;
use crate::inbox::StartPolicy;
use crate::monitor::Monitor;
pub use log::{LogId, LogMark};
pub use start::{Known, Start, StartError, start_at};
pub use stream::{Acquired, Stream};

/// Where messages come from. Run under supervision: when `run` ends before it was told to, it is started again with
/// backoff.
pub trait Source: Send + Sync + 'static {
    /// Delivers messages until `stop`; then closes its streams, acknowledges what is done and returns.
    fn run(
        &self,
        intake: Intake,
        stop: CancellationToken,
    ) -> impl Future<Output = Result<(), BoxError>> + Send;
}

/// What a source opens.
pub struct OpenStream {
    /// The topic or queue.
    pub topic: Arc<str>,
    /// The partition; 0 where the source has none.
    pub partition: i32,
    /// Whether offsets order the messages and a position is kept in the database. Kafka: yes. RabbitMQ, HTTP: no; those are
    /// told of each settled message by `on_settled`.
    pub positioned: bool,
    /// Called after each commit with what became of its messages.
    pub on_settled: Option<OnSettled>,
}

/// See [`OpenStream::on_settled`].
pub type OnSettled = Box<dyn Fn(&[Settled]) + Send + Sync>;

/// A message that is settled: nothing more happens to it, and that is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settled {
    /// Its offset or delivery number, as the source gave it.
    pub offset: i64,
    /// What became of it.
    pub answer: Answer,
}

/// What became of a message. Whatever it is, the message may be acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// Its effect is in the database.
    Applied,
    /// It was applied before, and skipped now.
    Duplicate,
    /// It was given up and is kept as a dead letter.
    Parked,
}

impl fmt::Debug for OpenStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenStream")
            .field("topic", &self.topic)
            .field("partition", &self.partition)
            .field("positioned", &self.positioned)
            .finish_non_exhaustive()
    }
}

/// The engine's side, as a source sees it. Cheap to clone.
#[derive(Clone)]
pub struct Intake {
    pub(crate) consumer: Arc<str>,
    pub(crate) start: StartPolicy,
    pub(crate) monitor: Monitor,
    pub(crate) opener: Arc<dyn Fn(OpenStream) -> Stream + Send + Sync>,
}

impl fmt::Debug for Intake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intake").field("consumer", &self.consumer).finish_non_exhaustive()
    }
}

impl Intake {
    /// The consumer's name: the default for a Kafka group.
    #[must_use]
    pub fn consumer(&self) -> &str {
        &self.consumer
    }

    /// Where to begin when nothing is known.
    #[must_use]
    pub fn start_policy(&self) -> StartPolicy {
        self.start
    }

    /// Where the source reports how it is.
    #[must_use]
    pub fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    /// Takes over a partition. The engine acquires its position in the background: see [`Stream::acquired`].
    #[must_use]
    pub fn open(&self, stream: OpenStream) -> Stream {
        (self.opener)(stream)
    }
}

//! Where messages come from, and how to write a source of your own.
//!
//! A source drives; the inbox never calls it. It opens a [`Stream`] per partition, hands records over, and learns what may be
//! acknowledged.
//!
//! 1. [`Intake::open`] takes over a partition. From now on no other process may move its position.
//! 2. [`Intake::begin`] waits for the position and says from which offset on to read.
//! 3. [`Stream::send`] hands over records, in ascending order of their offsets, and waits while the inbox has enough.
//! 4. [`Stream::log_ends_at`] tells now and then where the log ends: retention counts from there.
//! 5. [`Stream::settled`] is what may be acknowledged, if the source wants to know; [`OpenStream::on_answer`] tells what
//!    became of each message.
//! 6. [`Stream::finish`] gives the partition back: when the source is told to stop, and before it returns an error.
//!
//! ```
//! use oncebox::message::Record;
//! use oncebox::source::{CancellationToken, Instant, Intake, OpenStream, Source, Stream};
//!
//! /// Delivers these texts, and nothing more.
//! struct Texts(Vec<String>);
//!
//! impl Texts {
//!     async fn deliver(&self, intake: &Intake, stream: &Stream) -> oncebox::Result {
//!         let end = self.0.len() as i64;
//!         let start = intake.begin(stream, 0..end).await?;
//!         stream.log_ends_at(end, Instant::now());
//!         for (offset, text) in (0..end).zip(&self.0).filter(|(offset, _)| *offset >= start.read_from) {
//!             let mut record = Record::at(stream.topic(), 0, offset);
//!             record.payload = Some(text.clone().into());
//!             stream.send(record).await;
//!         }
//!         std::future::pending().await
//!     }
//! }
//!
//! impl Source for Texts {
//!     async fn run(&self, intake: Intake, stop: CancellationToken) -> oncebox::Result {
//!         let stream = intake.open(OpenStream::new("texts", 0));
//!         let delivered = tokio::select! {
//!             delivered = self.deliver(&intake, &stream) => delivered,
//!             () = stop.cancelled() => Ok(()),
//!         };
//!         stream.finish().await;
//!         delivered
//!     }
//! }
//! ```
//!
//! The folder `examples/own-source` has one that follows a file. A source with a thread of its own, which must keep polling
//! its broker, uses the methods that return at once instead: [`Stream::acquired`], [`start_at`], [`Stream::start`],
//! [`Stream::push`], [`Stream::is_full`], [`Stream::close`]. Only [`Stream::wait_closed`] blocks, for a bounded time.
//!
//! # Queues
//!
//! A queue gives out each message once and wants each acknowledged: it has no offsets that would mean anything to the next
//! process. [`OpenStream::queue`] opens one. There is nothing to wait for before the first record, and two things are told
//! apart:
//!
//! - The *place* of a record is for people, and stands in its dead letter: the name of the queue, and the number of the
//!   delivery. Numbers ascend within a stream. [`Record::log`](crate::message::Record::log) says which channel or process
//!   counted them, so that the same number another day is another place.
//! - The *answer* is for the source: [`OpenStream::on_answer`] hears of each delivery, by its number, whether it was applied,
//!   skipped, parked or given back. [`OpenStream::compare_payloads`] tells those that were skipped apart. A broker, where nobody waits
//!   for the answer, says so with [`OpenStream::give_back_after`].
//!
//! Several processes may read one queue, so nobody owns it and nobody is fenced: the receipts alone keep the promise. What
//! the broker says it had delivered before ([`Record::redelivered`](crate::message::Record::redelivered)) runs alone, with
//! its attempt written down first, so that a message that ends the process is found. A message that waits for its retry
//! holds back its key and nobody else. [`Stream::nothing_waits`] takes the place of the end of a log.
//!
//! While the consumer is paused, the lanes take nothing. A queue whose broker wants answers in time listens for
//! [`Intake::paused`], closes its stream, so that everything goes back, and opens the next one after [`Intake::resumed`].
//!
//! ```
//! use oncebox::message::Record;
//! use oncebox::source::{Answer, Answered, CancellationToken, Intake, OpenStream, Source};
//!
//! /// Delivers these texts, and prints what became of each.
//! struct Texts(Vec<String>);
//!
//! impl Source for Texts {
//!     async fn run(&self, intake: Intake, stop: CancellationToken) -> oncebox::Result {
//!         let stream = intake.open(OpenStream::queue("texts").on_answer(|answered: &[Answered]| {
//!             for one in answered {
//!                 match &one.answer {
//!                     Answer::GivenBack(given_back) => println!("{} again: {}", one.delivery, given_back.reason),
//!                     settled => println!("{} is {settled:?}", one.delivery),
//!                 }
//!             }
//!         }));
//!         for (number, text) in (0..).zip(&self.0) {
//!             let mut record = Record::at(stream.topic(), 0, number);
//!             record.payload = Some(text.clone().into());
//!             stream.send(record).await;
//!         }
//!         stop.cancelled().await;
//!         stream.finish().await;
//!         Ok(())
//!     }
//! }
//! ```

mod answer;
mod log;
mod start;
mod stream;
mod waiting;

use std::fmt;
use std::future::Future;
use std::sync::Arc;

pub use tokio::time::Instant;
pub use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::error::BoxError;
use crate::inbox::{Settings, StartPolicy};
use crate::message::Record;
use crate::metrics::Counter;
use crate::monitor::{LoopHandle, Monitor};
pub use answer::{Answer, Answered, GivenBack, OnAnswer, Why};
pub use log::{LogId, LogMark};
pub use start::{Known, Start, StartError, start_at};
pub use stream::{Acquired, Stream};

/// Where messages come from. See [the module](self) for how to write one.
///
/// Run under supervision: when `run` ends before it was told to, it is started again with backoff, as the same value.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a source of messages",
    label = "expected a type that implements `Source`",
    note = "a broker's client makes one, as `.source([\"my.topic\"])` does; for one of your own see the docs of `oncebox::source`"
)]
pub trait Source: Send + Sync + 'static {
    /// Delivers messages until `stop`; then closes its streams, acknowledges what is settled and returns.
    fn run(
        &self,
        intake: Intake,
        stop: CancellationToken,
    ) -> impl Future<Output = Result<(), BoxError>> + Send;
}

impl<T: Source> Source for Arc<T> {
    async fn run(&self, intake: Intake, stop: CancellationToken) -> Result<(), BoxError> {
        T::run(self, intake, stop).await
    }
}

/// See [`OpenStream::on_news`].
pub type OnNews = Box<dyn Fn() + Send + Sync>;

/// What a source opens: a partition of a topic, or a queue.
#[non_exhaustive]
pub struct OpenStream {
    /// The topic or queue.
    pub topic: Arc<str>,
    /// The partition; 0 where the source has none.
    pub partition: i32,
    /// Whether offsets order the messages and a position is kept in the database. A queue has none.
    pub positioned: bool,
    /// Whether a copy must have the payload of the first.
    pub compares_payloads: bool,
    /// How long a message that failed waits before it is given back; `None` if its sender waits for the answer.
    pub give_back_after: Option<Backoff>,
    /// Whether the source says of each message that it has delivered before that it has.
    pub says_redelivered: bool,
    /// What spans call the broker.
    pub system: &'static str,
    /// Hears what became of each message.
    pub on_answer: Option<OnAnswer>,
    /// Hears that the stream has something to tell.
    pub on_news: Option<OnNews>,
}

impl OpenStream {
    /// A partition whose offsets order its messages; its position is kept in the database.
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> Self {
        Self {
            topic: topic.into(),
            partition,
            positioned: true,
            compares_payloads: false,
            give_back_after: None,
            says_redelivered: false,
            system: "oncebox",
            on_answer: None,
            on_news: None,
        }
    }

    /// A queue: no position is kept, because delivery numbers mean nothing to the next process. See [the module](self).
    pub fn queue(name: impl Into<Arc<str>>) -> Self {
        Self { positioned: false, ..Self::new(name, 0) }
    }

    /// A message with the id of another and another payload is told from a copy: it is skipped all the same, and the answer is
    /// [`Answer::Differs`]. For sources whose senders wait for the answer, and can be told so. Receipts that were written
    /// without a fingerprint of the payload, by others or before, count as those of the same one; an adopted table has no
    /// column for it.
    #[must_use]
    pub fn compare_payloads(mut self) -> Self {
        self.compares_payloads = true;
        self
    }

    /// For a broker, which delivers what is given back again at once: without a wait, a message that always fails would go to and
    /// fro as fast as the connection allows. Under [`OnFailure::GiveBack`](crate::inbox::OnFailure::GiveBack) a message that failed
    /// is given back after this wait, which gets longer as long as nothing else is settled. Nobody waits for the answer, so a
    /// database that is away is waited for.
    #[must_use]
    pub fn give_back_after(mut self, wait: Backoff) -> Self {
        self.give_back_after = Some(wait);
        self
    }

    /// For a queue that says of each message that it has delivered before that it has
    /// ([`Record::redelivered`](crate::message::Record::redelivered)): then a duplicate of which it does not say so was sent
    /// twice, and is counted as such.
    #[must_use]
    pub fn says_redelivered(mut self) -> Self {
        self.says_redelivered = true;
        self
    }

    /// What spans call the broker: `messaging.system` of the conventions of OpenTelemetry.
    #[must_use]
    pub fn system(mut self, name: &'static str) -> Self {
        self.system = name;
        self
    }

    /// Called after each commit, and when something is given back, with what became of the messages. It must not block.
    #[must_use]
    pub fn on_answer(mut self, on_answer: impl Fn(&[Answered]) + Send + Sync + 'static) -> Self {
        self.on_answer = Some(Box::new(on_answer));
        self
    }
}

impl OpenStream {
    /// Called when the inbox owns the position ([`Stream::acquired`]), and when the stream stands still
    /// ([`Stream::stopped`]): a source with a thread of its own and many streams need not look at all of them. It must not
    /// block.
    #[must_use]
    pub fn on_news(mut self, on_news: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_news = Some(Box::new(on_news));
        self
    }
}

impl fmt::Debug for OpenStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenStream")
            .field("topic", &self.topic)
            .field("partition", &self.partition)
            .field("positioned", &self.positioned)
            .field("compares_payloads", &self.compares_payloads)
            .field("give_back_after", &self.give_back_after)
            .field("says_redelivered", &self.says_redelivered)
            .finish_non_exhaustive()
    }
}

/// The inbox, as a source sees it. Cheap to clone.
#[derive(Clone)]
pub struct Intake {
    pub(crate) consumer: Arc<str>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) monitor: Monitor,
    /// The loop of the source itself.
    pub(crate) health: LoopHandle,
    pub(crate) filtered: Counter,
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
        self.settings.start
    }

    /// How the inbox is set up. A source whose sender waits for the answer looks here whether a message has its id, before it
    /// hands it over.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Where the source reports how it is.
    #[must_use]
    pub fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    /// Whether the source is a member of its group now: before that, this process has no part in the work, and `/readyz` says
    /// so. A source without groups never calls it.
    pub fn member(&self, is_member: bool) {
        self.health.member(is_member);
    }

    /// Whether the inbox wants a record. One that it does not want counts as filtered from here on, and need not be handed over. Only
    /// for sources whose senders wait for the answer; others hand everything over, and hear [`Answer::Filtered`].
    #[must_use]
    pub fn wants(&self, record: &Record) -> bool {
        let wanted = self.settings.wants(record);
        if !wanted {
            self.filtered.increment(1);
        }
        wanted
    }

    /// Waits until the consumer is known to be paused. The lanes take nothing then. A queue closes its stream, so that what it has
    /// delivered goes back, and waits for [`Intake::resumed`]; a log just stays as it is.
    pub async fn paused(&self) {
        self.settings.pauses.until(&self.consumer, true).await;
    }

    /// Waits until the consumer is known not to be paused.
    pub async fn resumed(&self) {
        self.settings.pauses.until(&self.consumer, false).await;
    }

    /// Whether the consumer is known to be paused.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.settings.pauses.of(&self.consumer).is_some()
    }

    /// Takes over a partition. The engine acquires its position in the background: see [`Stream::acquired`].
    #[must_use]
    pub fn open(&self, stream: OpenStream) -> Stream {
        (self.opener)(stream)
    }
}

//! A queue inside the database: what is put there is stored, and applied later by an inbox of the same database.

mod desk;
mod put;
mod sink;
mod source;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use self::desk::Desk;
use self::put::Put;
pub use self::sink::LocalSink;
use crate::names::ConsumerName;
use crate::outbox::time::When;
use crate::store::OutboxAdmin;

/// What the topics of such queues begin with. A relay gives them to nobody but the inbox they are meant for.
pub(super) const TOPIC_PREFIX: &str = "oncebox.accepted.";

/// A queue inside the database, for messages whose sender does not wait until they are applied.
///
/// A message that is [put](LocalQueue::put) there is an event of the outbox: stored when `put` returns, and handed to the inbox by
/// the relay, in order for each key, until it is applied or parked. It has three ends: whoever takes messages in puts them,
/// the relay gets its [sink](LocalQueue::sink), and the worker of the inbox gets the queue as its source. Every process that
/// relays events of this database needs the last two. Cheap to clone; every clone is the same queue.
///
/// ```
/// use std::time::Duration;
///
/// use oncebox::message::Record;
/// use oncebox::sqlite::SqliteStore;
/// use oncebox::{Inbox, LocalQueue, Relay, Selector};
///
/// # #[tokio::main]
/// # async fn main() -> oncebox::Result {
/// # let folder = tempfile::tempdir()?;
/// # let url = format!("sqlite://{}", folder.path().join("shop.sqlite").display());
/// # let store = SqliteStore::connect(&url).await?;
/// # store.migrate().await?;
/// let queue = LocalQueue::new(store.clone(), "orders".parse()?, "orders taken in");
/// let relay = Relay::new(store.clone()).route(queue.topic(), queue.sink());
/// let worker = Inbox::new("orders", store)?.id(Selector::Key).each(async |_tx, message| {
///     println!("{}", message.id());
///     Ok(())
/// });
///
/// let mut record = Record::at("orders", 0, 0);
/// record.key = Some("4711".into());
/// queue.put(vec![record]).await?;
///
/// // A service waits for a signal: `tokio::signal::ctrl_c()`.
/// let shutdown = || tokio::time::sleep(Duration::from_millis(50));
/// tokio::try_join!(relay.run(shutdown()), worker.run(queue, shutdown()))?;
/// # Ok(())
/// # }
/// ```
pub struct LocalQueue<S> {
    inner: Arc<Inner<S>>,
    compares_payloads: bool,
}

struct Inner<S> {
    store: S,
    consumer: ConsumerName,
    topic: String,
    /// What the place of its messages is called.
    place: Arc<str>,
    /// Since when this process has it. What is older may have been in the hands of another that ended.
    since_ms: i64,
    desk: Arc<Desk>,
    /// What waits to be written.
    waiting: Mutex<VecDeque<Put>>,
    /// Held by whoever writes.
    writing: Arc<tokio::sync::Mutex<()>>,
}

impl<S: OutboxAdmin> LocalQueue<S> {
    /// The queue of this consumer. `place` is what its messages have for a topic: where they came from, for people.
    pub fn new(store: S, consumer: ConsumerName, place: impl Into<Arc<str>>) -> Self {
        let topic = format!("{TOPIC_PREFIX}{consumer}");
        let now = SystemTime::now();
        let since_ms = When::At(now).as_ms(now);
        let inner = Inner {
            store,
            consumer,
            topic,
            place: place.into(),
            since_ms,
            desk: Arc::default(),
            waiting: Mutex::default(),
            writing: Arc::default(),
        };
        Self { inner: Arc::new(inner), compares_payloads: false }
    }

    /// As a source, tells a message with the id of another and another payload from a copy: see
    /// [`OpenStream::compare_payloads`](crate::source::OpenStream::compare_payloads). Whoever sent it has gone, so it is said in the
    /// log and counted.
    #[must_use]
    pub fn compare_payloads(mut self) -> Self {
        self.compares_payloads = true;
        self
    }

    /// The consumer that applies its messages.
    #[must_use]
    pub fn consumer(&self) -> &ConsumerName {
        &self.inner.consumer
    }

    /// The topic of its events in the outbox: what the relay routes to [`LocalQueue::sink`].
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.inner.topic
    }

    /// What the relay delivers its events to: the inbox, which answers when they are applied.
    #[must_use]
    pub fn sink(&self) -> LocalSink {
        LocalSink::new(Arc::clone(&self.inner.desk), &self.inner.consumer, self.inner.since_ms)
    }
}

impl<S> Clone for LocalQueue<S> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), compares_payloads: self.compares_payloads }
    }
}

impl<S> fmt::Debug for LocalQueue<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalQueue").field("topic", &self.inner.topic).finish_non_exhaustive()
    }
}

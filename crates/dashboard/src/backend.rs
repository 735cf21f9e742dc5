//! What the dashboard needs from whoever has the database.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use oncebox_core::monitor::{LoopReport, Tallied};
use oncebox_core::names::{ConsumerName, MessageId, Tenant};
use oncebox_core::operate::{EventPage, Found, LetterPage, WholePage};
use oncebox_core::store::{
    AuditEntry, AuditFilter, DeadFilter, DeadGroup, EventFilter, Finding, Pause, StoreStatus,
    StoredDeadLetter,
};
use tokio_util::sync::CancellationToken;

use crate::action::{Action, Outcome};
use crate::jobs::Progress;

/// What a [`Backend`] answers, sooner or later.
pub type Answering<'a, T> = Pin<Box<dyn Future<Output = Result<T, Trouble>> + Send + 'a>>;

/// Why something was not answered, or not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// The database is away, or too busy: another try may do.
    Away(String),
    /// There is no such thing.
    Missing(String),
    /// It was asked for in a way that makes no sense, or that loses something.
    Refused(String),
    /// It went wrong.
    Failed(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Away(text) | Self::Missing(text) | Self::Refused(text) | Self::Failed(text)) = self;
        f.write_str(text)
    }
}

impl std::error::Error for Trouble {}

/// Reads and changes the database. Every read is bounded, in rows and in time.
pub trait Backend: Send + Sync + 'static {
    /// Consumers, positions, the outbox, pauses and what this process knows of itself, at one time.
    fn look(&self) -> Answering<'_, Look>;

    /// What `oncebox check` finds in the database.
    fn checks(&self) -> Answering<'_, Vec<Finding>>;

    /// The newest dead letters by filter, without their payloads, as far as was looked.
    fn dead_letters(&self, filter: DeadFilter) -> Answering<'_, LetterPage>;

    /// The newest dead letters by filter, whole.
    fn whole_letters(&self, filter: DeadFilter) -> Answering<'_, WholePage>;

    /// What is known of a message.
    fn find(&self, sought: Sought) -> Answering<'_, Located>;

    /// Dead letters whose errors read alike, of a consumer or of all.
    fn dead_groups(&self, consumer: Option<String>) -> Answering<'_, Vec<DeadGroup>>;

    /// Who did what, the newest first.
    fn audit(&self, filter: AuditFilter) -> Answering<'_, Vec<AuditEntry>>;

    /// One dead letter, whole.
    fn dead_letter(&self, number: i64) -> Answering<'_, Option<StoredDeadLetter>>;

    /// The oldest events of the outbox by filter, as far as was looked.
    fn events(&self, filter: EventFilter) -> Answering<'_, EventPage>;

    /// Does something, and says what became of it. Once begun it goes on to its end, whether somebody waits for it or not.
    fn act(&self, action: Action, task: Task) -> Answering<'static, Outcome>;
}

/// Which message somebody looks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sought {
    /// Its id.
    pub id: MessageId,
    /// Its tenant, if that is known.
    pub tenant: Option<Tenant>,
    /// One consumer, or all.
    pub consumer: Option<ConsumerName>,
}

/// What was found, and how far somebody looked.
#[derive(Debug, Clone, Default)]
pub struct Located {
    /// What was found.
    pub found: Found,
    /// Whether receipts of tenants, which are found by their tenant only, cannot have been missed.
    pub all_tenants: bool,
}

/// Something that is being done: for whom, how far it is, and whether it should stop.
#[derive(Debug, Clone)]
pub struct Task {
    /// Who asked for it.
    pub by: String,
    /// How far it is.
    pub progress: Arc<Progress>,
    /// Cancelled when somebody wants it to stop. It ends between two steps.
    pub stop: CancellationToken,
}

/// What a backend sees at one time.
#[derive(Debug, Clone, Default)]
pub struct Look {
    /// When that was, in milliseconds since 1970.
    pub at_ms: i64,
    /// What the database says.
    pub status: StoreStatus,
    /// The consumers that are paused.
    pub paused: Vec<Pause>,
    /// The consumers of the configuration.
    pub configured: Vec<Configured>,
    /// What the source says of each place.
    pub places: BTreeMap<Place, Seen>,
    /// The loops of this process.
    pub loops: Vec<LoopReport>,
    /// What this process has done, by consumer.
    pub tallies: BTreeMap<String, Tallied>,
    /// How many events this process has published.
    pub published: Option<u64>,
    /// How old the oldest event may be before somebody should look.
    pub outbox_max_age: Option<Duration>,
    /// What is not known, and why.
    pub notes: Vec<String>,
    /// Whether this process runs inboxes, or only looks.
    pub runs: bool,
}

/// A consumer of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configured {
    /// Its name.
    pub consumer: String,
    /// What it reads, for people: topics, a queue or a path.
    pub reads: String,
    /// Whether its source has offsets, so that its position can be moved.
    pub has_offsets: bool,
    /// Whether a dead letter holds back its key (`park-key`).
    pub holds_keys: bool,
    /// How long its receipts are kept.
    pub keep: Duration,
    /// How long its topics keep messages, as far as that is known.
    pub topics: Vec<(String, TopicKeeps)>,
}

/// How long a topic keeps messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopicKeeps {
    /// So long.
    For(Duration),
    /// For ever, or the last one of each key.
    Ever,
}

/// A partition of a consumer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The consumer.
    pub consumer: String,
    /// The topic or queue.
    pub topic: String,
    /// The partition; 0 where there is none.
    pub partition: i32,
}

/// What the source says of a partition.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Seen {
    /// How many messages are not applied yet.
    pub lag: Option<u64>,
    /// How old the oldest of them is.
    pub age: Option<Duration>,
    /// Who reads it.
    pub owner: Option<String>,
}

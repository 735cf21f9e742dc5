//! What a relay needs from a database, and what people need to look after it.
//!
//! The outbox is a table in the application's database. An event is *pending* until the sink has confirmed it; then its row
//! is removed, or kept as *published* for a while. An event whose delivery failed is *held* until its next try, and holds
//! back the later events of its topic and key; one that can never be delivered is *parked* for an operator and holds back
//! nothing. An event may be *delayed*: until its time it is held too, by the relay that finds it, and is nobody's failure.
//!
//! A relay never keeps a cursor: a transaction that commits late may hold a lower number than one that was published
//! already. What is to be published is what is still pending.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use uuid::Uuid;

use crate::inbox::BatchBounds;
use crate::message::Headers;
use crate::outbox::EventRow;
use crate::store::{Admin, Store, StoreResult};

/// Keys are hashed onto this many shards; each shard belongs to one relay at a time. Fixed: the shard of an event is
/// computed by the database when it is written.
pub const SHARDS: u16 = 16;

/// The right to publish the events of a shard, until its time is over or another relay has taken it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The shard, below [`SHARDS`].
    pub shard: u16,
    /// Raised each time the shard changes hands.
    pub epoch: i64,
}

/// What a relay holds after [`Outbox::lease`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leases {
    /// The shards this relay owns now.
    pub held: Vec<Lease>,
    /// How many it should own, so that all relays that are alive share the work. What it holds beyond that it gives back
    /// with [`Outbox::release_shards`] as soon as nothing of it is in flight.
    pub fair_share: usize,
}

/// An event as it lies in the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its place in the outbox: ascending in the order of writing.
    pub seq: i64,
    /// The stable id.
    pub id: Uuid,
    /// Where it goes.
    pub topic: Arc<str>,
    /// The key.
    pub key: Option<Bytes>,
    /// The payload; `None` is a tombstone.
    pub payload: Option<Bytes>,
    /// The headers it was written with.
    pub headers: Headers,
    /// When it was written, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// It is not published before this time, in milliseconds since 1970.
    pub deliver_at_ms: Option<i64>,
    /// The id of the message that caused it.
    pub causation_id: Option<String>,
    /// How often its delivery has failed.
    pub attempts: u32,
}

impl StoredEvent {
    /// The memory its content takes.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.key.as_ref().map_or(0, Bytes::len)
            + self.payload.as_ref().map_or(0, Bytes::len)
            + self.headers.byte_len()
    }
}

/// An event that has to wait: its delivery failed and will be tried again, or it was not tried yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldEvent {
    /// Which event.
    pub seq: i64,
    /// How long to wait, by the database's clock.
    pub delay: Duration,
    /// Why. `None`: it was not tried, because it waits behind an earlier event of its key, or because its time has not come; its
    /// attempts stay as they are.
    pub error: Option<String>,
}

/// A delivery that no retry can help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParkedEvent {
    /// Which event.
    pub seq: i64,
    /// Why.
    pub error: String,
}

/// What became of the deliveries of a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deliveries {
    /// The shards the batch was read from, with the epochs of that moment. A hold or a park by a relay that has lost its
    /// shard meanwhile does nothing; a confirmed event is removed by anybody.
    pub leases: Vec<Lease>,
    /// Confirmed by the sink.
    pub published: Vec<i64>,
    /// Whether published events stay in the table (until [`OutboxAdmin::purge_published`]) instead of being removed.
    pub keep: bool,
    /// To be tried again.
    pub held: Vec<HeldEvent>,
    /// Given up.
    pub parked: Vec<ParkedEvent>,
}

/// More topics than this are not looked at in one go.
pub const READY_TOPICS: u16 = 256;

/// Where there is something to publish.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ready {
    /// The topics, each with a shard.
    pub places: Vec<(String, u16)>,
    /// There may be more from this topic on.
    pub more_from: Option<String>,
}

/// The outbox on the hot path.
///
/// Invariants every store keeps:
/// - an event is visible to a relay if and only if its transaction has committed;
/// - [`Outbox::next_events`] never returns an event while an earlier pending event of its topic and key is held beyond now;
/// - leases are on the database's clock, and an epoch never comes back.
pub trait Outbox: Store {
    /// Writes events inside a transaction that somebody else began and will commit, in their order.
    fn write_events(
        conn: &mut Self::Conn,
        events: &[EventRow<'_>],
    ) -> impl Future<Output = StoreResult<()>> + Send;

    /// Says that this relay is alive, renews what it owns, and takes free or expired shards up to its fair share. `name` is
    /// for people.
    fn lease(
        &self,
        relay: Uuid,
        name: &str,
        duration: Duration,
    ) -> impl Future<Output = StoreResult<Leases>> + Send;

    /// Gives shards back. With all of them, the relay also ceases to count as alive if `leaving`.
    fn release_shards(
        &self,
        relay: Uuid,
        shards: &[u16],
        leaving: bool,
    ) -> impl Future<Output = StoreResult<()>> + Send;

    /// The topics and shards, among these shards, that have something to publish now: of about so many topics, beginning with
    /// `from` in the store's own order. More than one page is looked at in turns, so that no number of topics hides another.
    fn ready_from(
        &self,
        shards: &[u16],
        from: &str,
        topics: u16,
    ) -> impl Future<Output = StoreResult<Ready>> + Send;

    /// The next events of a topic in these shards, in the order of `seq` for each key. Both bounds hold; one event always
    /// fits.
    fn next_events(
        &self,
        topic: &str,
        shards: &[u16],
        bounds: BatchBounds,
    ) -> impl Future<Output = StoreResult<Vec<StoredEvent>>> + Send;

    /// The database's clock, in milliseconds since 1970: what tells whether a delayed event is due, or an event has expired.
    fn clock_ms(&self) -> impl Future<Output = StoreResult<i64>> + Send;

    /// Writes down what became of the deliveries of a batch, in one transaction.
    fn record_deliveries(&self, deliveries: &Deliveries) -> impl Future<Output = StoreResult<()>> + Send;
}

/// Where an event stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventState {
    /// Waits to be published.
    Pending,
    /// Its time has not come.
    Delayed,
    /// Its delivery failed; it waits for its next try, or behind one that does, or behind a delayed one.
    Held,
    /// Given up, until an operator retries or drops it.
    Parked,
    /// Published, and kept for a while.
    Published,
}

impl EventState {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delayed => "delayed",
            Self::Held => "held",
            Self::Parked => "parked",
            Self::Published => "published",
        }
    }
}

/// An event with its state, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxEntry {
    /// The event.
    pub event: StoredEvent,
    /// Its shard.
    pub shard: u16,
    /// The consumer whose handler wrote it.
    pub consumer: Option<String>,
    /// The tenant of the message that caused it.
    pub tenant: Option<String>,
    /// Where it stands.
    pub state: EventState,
    /// Since when (published, parked) or until when (held, delayed), in milliseconds since 1970.
    pub state_at_ms: Option<i64>,
    /// Why the last delivery failed.
    pub error: Option<String>,
}

/// Which events are meant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Only these places in the outbox; all if empty.
    pub seqs: Vec<i64>,
    /// Only with this id.
    pub id: Option<Uuid>,
    /// Only in this state.
    pub state: Option<EventState>,
    /// Only of this topic.
    pub topic: Option<String>,
    /// Only with this key.
    pub key: Option<Vec<u8>>,
    /// Only above this `seq`: the next page.
    pub after: i64,
    /// Only up to this `seq`.
    pub until: Option<i64>,
    /// At most this many.
    pub limit: u32,
}

/// The events that a message caused, as far as somebody looked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CausedEvents {
    /// Those that are still in the outbox, ordered by `seq`.
    pub events: Vec<OutboxEntry>,
    /// Whether all of the outbox was looked at. What was published and removed is not in it.
    pub looked_at_all: bool,
}

/// Who owns a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardStatus {
    /// The shard.
    pub shard: u16,
    /// The relay's name; `None` if nobody owns it now.
    pub owner: Option<String>,
    /// How often it changed hands.
    pub epoch: i64,
    /// How long the lease still lasts.
    pub expires_in: Option<Duration>,
}

/// What `oncebox status` shows of the outbox. Counts stop at the cap given to [`Status::status`](super::Status::status).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutboxStatus {
    /// Events that wait to be published, delayed and held ones included.
    pub pending: u64,
    /// The age of the oldest of them that is due, counted from when it was written, or from its time if it was delayed. What waits
    /// behind another of its key is as old as that one.
    pub oldest: Option<Duration>,
    /// Those of them that a relay holds because their time has not come.
    pub delayed: u64,
    /// Those of them whose delivery failed, or that wait behind one that did, or behind a delayed one.
    pub held: u64,
    /// Events that were given up.
    pub parked: u64,
    /// All shards.
    pub shards: Vec<ShardStatus>,
}

/// A query whose rows become events: `[[sweep]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    /// The stable name under which emitted rows are remembered.
    pub name: String,
    /// The query, in the language of the store. Its rows become the payloads: JSON objects with a field for each column.
    pub query: String,
    /// The column that identifies a row. A row where it is NULL is left out.
    pub row_key: String,
    /// A row with the same key becomes an event once in this time.
    pub window: Duration,
    /// Where the events go.
    pub topic: String,
    /// The column that becomes the key of the event.
    pub event_key: Option<String>,
    /// At most this many events in one run; the rest comes with the next.
    pub limit: u32,
}

/// The outbox off the hot path.
pub trait OutboxAdmin: Outbox + Admin {
    /// Events by filter, ordered by `seq`.
    fn events(&self, filter: &EventFilter) -> impl Future<Output = StoreResult<Vec<OutboxEntry>>> + Send;

    /// The events that a message of this id caused, among about `newest` places at the end of the outbox: nothing finds them but
    /// looking, and an index would cost every event.
    fn events_caused_by(
        &self,
        message_id: &str,
        newest: u32,
    ) -> impl Future<Output = StoreResult<CausedEvents>> + Send;

    /// Makes parked and held events pending again, at once; returns how many. Others are left alone. Delayed ones too, unless the
    /// filter asks for that state: then their time has come.
    fn retry_events(&self, filter: &EventFilter) -> impl Future<Output = StoreResult<u64>> + Send;

    /// Gives up events that wait to be published: pending, delayed and held ones, as if a sink had refused them for this reason, so
    /// what is behind them goes on. Their attempts stay. Returns how many. What a relay delivers at this moment is published nevertheless.
    fn park_events(
        &self,
        filter: &EventFilter,
        reason: &str,
    ) -> impl Future<Output = StoreResult<u64>> + Send;

    /// Removes events for good, whatever their state; returns how many.
    fn drop_events(&self, filter: &EventFilter) -> impl Future<Output = StoreResult<u64>> + Send;

    /// Removes events that were published longer ago than `keep`, in bounded batches. Also forgets relays and sweeps that
    /// are long gone.
    fn purge_published(&self, keep: Duration) -> impl Future<Output = StoreResult<u64>> + Send;

    /// Runs the query and emits its rows, those whose key was not emitted within the window, in one transaction. Safe from
    /// several processes at once. Returns how many.
    fn sweep(&self, sweep: &Sweep) -> impl Future<Output = StoreResult<u64>> + Send;

    /// Looks at the query of a sweep without running it: whether the database takes it and it has the columns. The error
    /// says what is wrong.
    fn check_sweep(&self, sweep: &Sweep) -> impl Future<Output = StoreResult<()>> + Send;
}

//! The relay: moves events from the outbox to their sinks, in order for each topic and key, at least once.
//!
//! The work is cut into units, a topic and a group of shards each. A unit reads what is pending, delivers it, writes
//! down what became of it, and begins anew; so no two batches ever hold the same key, the deliveries of a batch are recorded
//! before the next is read, and a topic that cannot be delivered stops nobody else.
//!
//! Two relays may believe to own a shard for a moment: one that was frozen and woke up. Each of them publishes what is
//! pending from its beginning, in order and without gaps; what a consumer sees for the first time is then still in order.

mod behind;
mod dispatch;
mod fan_out;
mod housekeeping;
mod leases;
mod lines;
mod routes;
mod share;
mod timing;
mod trace;
mod unit;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::dispatch::Dispatcher;
use self::fan_out::FanOut;
pub use self::housekeeping::purge_published_loop;
use self::leases::Shards;
pub use self::routes::topic_fits;
use self::routes::{Given, OWN, Routes};
use self::share::Share;

use super::sink::{AnySink, Sink};
use crate::error::Error;
use crate::inbox::BatchBounds;
use crate::metrics::{self, Counter, Gauge};
use crate::monitor::Monitor;
use crate::store::OutboxAdmin;
use crate::telemetry::Telemetry;

/// How often published events are looked through.
const HOUSEKEEPING_EVERY: Duration = Duration::from_secs(60);

/// How a relay works. [`Relay`] has a method for each of them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RelaySettings {
    /// What `oncebox status` calls this relay. Default: the process id.
    pub name: String,
    /// The CloudEvents source of events that name none. Default: `oncebox`.
    pub source: String,
    /// How long published events stay in the table. Default: not at all.
    pub keep: Duration,
    /// How long a shard stays with a relay that is not heard of. Default: ten seconds.
    pub lease: Duration,
    /// How many events, and bytes, one batch may have. Default: 4000, 4 MiB.
    pub batch: BatchBounds,
    /// The longest wait between two looks at the outbox. Default: 250 ms.
    pub poll: Duration,
    /// How many connections of the store it may use at once, at least two. `None`, the default: all that there are.
    pub max_connections: Option<usize>,
}

impl Default for RelaySettings {
    fn default() -> Self {
        Self {
            name: format!("process {}", std::process::id()),
            source: "oncebox".to_owned(),
            keep: Duration::ZERO,
            lease: Duration::from_secs(10),
            batch: BatchBounds { messages: 4000, bytes: 4 * 1024 * 1024 },
            poll: Duration::from_millis(250),
            max_connections: None,
        }
    }
}

/// Publishes the events of an outbox. Several relays, in several processes, share the work.
///
/// ```
/// use std::time::Duration;
///
/// use oncebox::Relay;
/// use oncebox::sink::{ByEvent, OutgoingEvent};
/// use oncebox::sqlite::SqliteStore;
///
/// async fn mail(event: OutgoingEvent) -> oncebox::Result {
///     println!("Message-ID: <{}>", event.id());
///     Ok(())
/// }
///
/// # #[tokio::main]
/// # async fn main() -> oncebox::Result {
/// # let folder = tempfile::tempdir()?;
/// # let url = format!("sqlite://{}", folder.path().join("shop.sqlite").display());
/// # let store = SqliteStore::connect(&url).await?;
/// # store.migrate().await?;
/// // A service waits for a signal: `tokio::signal::ctrl_c()`.
/// let shutdown = tokio::time::sleep(Duration::from_millis(50));
/// Relay::new(store).route("invoice.*", ByEvent::from_fn(mail)).run(shutdown).await?;
/// # Ok(())
/// # }
/// ```
pub struct Relay<S> {
    store: S,
    settings: RelaySettings,
    monitor: Monitor,
    telemetry: Telemetry,
    given: Given,
}

impl<S: OutboxAdmin> Relay<S> {
    /// A relay for the outbox of this store.
    pub fn new(store: S) -> Self {
        Self {
            store,
            settings: RelaySettings::default(),
            monitor: Monitor::default(),
            telemetry: Telemetry::default(),
            given: Given::default(),
        }
    }

    /// Where the events of these topics go: a name, or a pattern in which `*` stands for anything. The first route that
    /// fits is taken.
    #[must_use]
    pub fn route(mut self, topics: impl Into<String>, sink: impl Sink) -> Self {
        self.given.routes.push((topics.into(), Arc::new(sink)));
        self
    }

    /// Where all other events go. Without it they are parked.
    #[must_use]
    pub fn sink(mut self, sink: impl Sink) -> Self {
        self.given.rest = Some(Arc::new(sink));
        self
    }

    /// Who gets a copy of the events of these topics: they go where they would go without it, and here too. Each copy has a state
    /// of its own: a sink that is away holds back its copies alone. `name` says whose copies are whose, so it should stay as it
    /// is: one to 60 letters, digits, `_` and `-`, and not `main`. A sink may be given several times, under the same name.
    ///
    /// # Panics
    /// If the name is another.
    ///
    /// ```
    /// # use oncebox::sink::{ByEvent, OutgoingEvent, Sink};
    /// # use oncebox::sqlite::SqliteStore;
    /// use oncebox::Relay;
    ///
    /// # async fn mail(_: OutgoingEvent) -> oncebox::Result { Ok(()) }
    /// # fn relay(store: SqliteStore, kafka: impl Sink) -> Relay<SqliteStore> {
    /// Relay::new(store).sink(kafka).copy("mail", "invoice.*", ByEvent::from_fn(mail))
    /// # }
    /// ```
    #[must_use]
    pub fn copy(mut self, name: impl Into<String>, topics: impl Into<String>, sink: impl Sink) -> Self {
        let name = name.into();
        assert!(is_name_of_a_sink(&name), "{name:?} is not a name for a sink that gets copies");
        self.given.copies.push((name, topics.into(), Arc::new(sink)));
        self
    }

    /// What `oncebox status` calls this relay. Default: the process id.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = name.into();
        self
    }

    /// The CloudEvents source of events that name none. Default: `oncebox`.
    #[must_use]
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.settings.source = source.into();
        self
    }

    /// How long published events stay in the table. Default: not at all.
    #[must_use]
    pub fn keep(mut self, keep: Duration) -> Self {
        self.settings.keep = keep;
        self
    }

    /// How long a shard stays with a relay that is not heard of. Default: ten seconds.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// How many events, and bytes, one batch may have. Default: 4000, 4 MiB.
    #[must_use]
    pub fn batch_bounds(mut self, bounds: BatchBounds) -> Self {
        self.settings.batch = bounds;
        self
    }

    /// The longest wait between two looks at the outbox. Default: 250 ms.
    #[must_use]
    pub fn poll(mut self, longest: Duration) -> Self {
        self.settings.poll = longest;
        self
    }

    /// How many connections of the store it may use at once, at least two: one of them only records what was published. Leases
    /// have one of their own beside them. Default: no bound of its own.
    #[must_use]
    pub fn max_connections(mut self, most: usize) -> Self {
        self.settings.max_connections = Some(most);
        self
    }

    /// All settings at once.
    #[must_use]
    pub fn settings(mut self, settings: RelaySettings) -> Self {
        self.settings = settings;
        self
    }

    /// Where the loops report how they are.
    #[must_use]
    pub fn monitor(mut self, monitor: Monitor) -> Self {
        self.monitor = monitor;
        self
    }

    /// Who gets spans, and of which events. Default: nobody.
    #[must_use]
    pub fn telemetry(mut self, telemetry: Telemetry) -> Self {
        self.telemetry = telemetry;
        self
    }

    /// Publishes until `shutdown` completes; then waits for what is under way and gives its shards back. A database or a
    /// receiver that is away does not end it.
    ///
    /// # Errors
    /// Only `panic`, and only of oncebox itself.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
        let stop = CancellationToken::new();
        let mut serving = tokio::spawn(self.serve(stop.clone()));
        tokio::select! {
            biased;
            () = shutdown => {}
            // Only a panic ends it before it is told to.
            ended = &mut serving => return ended.map_err(panicked),
        }
        stop.cancel();
        serving.await.map_err(panicked)
    }

    /// Publishes until `stop`; then waits for what is under way, for a bounded time, and gives its shards back. Also removes
    /// published events when their time is over.
    pub async fn serve(self, stop: CancellationToken) {
        let share = Share::new(self.settings.max_connections);
        let copies = (!self.given.copies.is_empty())
            .then(|| FanOut::new(self.store.clone(), share.clone(), self.given.takers()));
        let fan_out = copies.flatten().map(|fan_out| Arc::new(fan_out) as Arc<dyn AnySink>);
        let routes = Routes::new(self.given, fan_out, &self.monitor);
        let inner = Arc::new(Inner {
            store: self.store,
            id: Uuid::now_v7(),
            source: self.settings.source.as_str().into(),
            shards: Shards::new(self.settings.lease),
            leasing: tokio::sync::Mutex::new(false),
            meters: Meters::new(),
            share,
            settings: self.settings,
            monitor: self.monitor,
            telemetry: self.telemetry,
        });
        let dispatcher = Dispatcher::new(Arc::clone(&inner), routes);
        // The leases outlive the stop: what is under way still needs them.
        let drained = CancellationToken::new();
        let dispatch = async {
            dispatcher.run(&stop).await;
            drained.cancel();
        };
        let house = purge_published_loop(
            inner.store.clone(),
            inner.settings.keep,
            HOUSEKEEPING_EVERY,
            inner.monitor.clone(),
            stop.clone(),
        );
        tokio::join!(dispatch, inner.keep_leases(&drained), house);
    }
}

impl<S> fmt::Debug for Relay<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let routes: Vec<&str> = self.given.routes.iter().map(|(topics, _)| topics.as_str()).collect();
        f.debug_struct("Relay")
            .field("settings", &self.settings)
            .field("routes", &routes)
            .finish_non_exhaustive()
    }
}

/// Whether a sink that gets copies may be called so: see [`Relay::copy`].
#[must_use]
pub fn is_name_of_a_sink(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    (1..=60).contains(&name.len()) && name != OWN && name.bytes().all(fits)
}

fn panicked(source: JoinError) -> Error {
    Error::Panic { what: "relay", source }
}

/// What the tasks of a relay share.
struct Inner<S> {
    store: S,
    id: Uuid,
    source: Arc<str>,
    settings: RelaySettings,
    monitor: Monitor,
    telemetry: Telemetry,
    share: Share,
    shards: Shards,
    /// Held while leases are asked for or given back; true when the relay has left.
    leasing: tokio::sync::Mutex<bool>,
    meters: Meters,
}

/// The metrics of all relays of this process.
struct Meters {
    published: Counter,
    retried: Counter,
    parked: Counter,
    shards: Gauge,
}

impl Meters {
    fn new() -> Self {
        Self {
            published: metrics::relay_published_total(),
            retried: metrics::relay_retried_total(),
            parked: metrics::relay_parked_total(),
            shards: metrics::relay_shards(),
        }
    }
}

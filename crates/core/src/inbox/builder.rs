//! The Rust interface, first half: describe an inbox and give it a handler.

use std::time::Duration;

use serde::de::DeserializeOwned;

use super::Engine;
use super::call::{AnyApply, AsBatch, ByMessage, ByPayload, OneByOne};
use super::filter::Filter;
use super::handler::{Apply, BatchFn, EachFn, EachJsonFn, Handler};
use super::identity::Selector;
use super::pauses::PauseWatch;
use super::policy::{BatchBounds, OnFailure, RetryPolicy, StalePolicy, StartPolicy};
use super::settings::Settings;
use super::worker::Worker;
use crate::error::Error;
use crate::live::Live;
use crate::monitor::Monitor;
use crate::names::ConsumerName;
use crate::store::Store;
use crate::telemetry::Telemetry;

/// An inbox that is being described: whose it is, where the id of a message is, what happens to one that fails.
///
/// A handler makes it a [`Worker`], which runs it: [`each`](Self::each), [`each_json`](Self::each_json),
/// [`batch`](Self::batch) or [`with`](Self::with). People with a loop and a transaction of their own call
/// [`claim`](Self::claim) instead.
///
/// ```
/// use oncebox::sqlite::SqliteStore;
/// use oncebox::{Inbox, OnFailure, Selector};
/// use sqlx::SqliteConnection;
///
/// #[derive(serde::Deserialize)]
/// struct Order {
///     sku: String,
///     qty: i64,
/// }
///
/// async fn deduct(tx: &mut SqliteConnection, order: Order) -> oncebox::Result {
///     sqlx::query("UPDATE stock SET on_hand = on_hand - ? WHERE sku = ?")
///         .bind(order.qty)
///         .bind(order.sku)
///         .execute(tx)
///         .await?;
///     Ok(())
/// }
///
/// # #[tokio::main]
/// # async fn main() -> oncebox::Result {
/// # let folder = tempfile::tempdir()?;
/// # let url = format!("sqlite://{}", folder.path().join("shop.sqlite").display());
/// let store = SqliteStore::connect(&url).await?;
/// store.migrate().await?;
/// let worker = Inbox::new("stock", store)?
///     .id(Selector::Header("event_id".into()))
///     .on_failure(OnFailure::ParkKey)
///     .each_json(deduct);
/// # let _ = worker;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Inbox<S> {
    store: S,
    pub(super) consumer: ConsumerName,
    pub(super) settings: Settings,
    monitor: Monitor,
    retry: Option<Live<RetryPolicy>>,
}

impl<S: Store> Inbox<S> {
    /// An inbox of this consumer in this store. The name is part of the dedupe key: choose it once.
    pub fn new(consumer: impl Into<String>, store: S) -> Result<Self, Error> {
        Ok(Self {
            store,
            consumer: ConsumerName::new(consumer)?,
            settings: Settings::default(),
            monitor: Monitor::default(),
            retry: None,
        })
    }

    /// The store it was given.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Where the stable id of a message comes from. Default: the message key.
    #[must_use]
    pub fn id(mut self, selector: Selector) -> Self {
        self.settings.identity.id = selector;
        self
    }

    /// Where the tenant of a message comes from. Default: no tenants.
    #[must_use]
    pub fn tenant(mut self, selector: Selector) -> Self {
        self.settings.identity.tenant = Some(selector);
        self
    }

    /// Which messages are wanted. The others are acknowledged and counted as `filtered`: they need no id, get no receipt, and no
    /// handler sees them. A dead letter that is replayed is not filtered. Default: all.
    ///
    /// ```
    /// # use oncebox::{Filter, Inbox, Selector, sqlite::SqliteStore};
    /// # fn filtered(inbox: Inbox<SqliteStore>) -> Inbox<SqliteStore> {
    /// inbox.filter(Filter::equals(Selector::Header("type".into()), ["OrderShipped", "OrderCancelled"]))
    /// # }
    /// ```
    #[must_use]
    pub fn filter(mut self, filter: Filter) -> Self {
        self.settings.filter = Some(filter);
        self
    }

    /// Where to begin when no position is known. Default: the oldest message.
    #[must_use]
    pub fn start(mut self, policy: StartPolicy) -> Self {
        self.settings.start = policy;
        self
    }

    /// How large one transaction may grow. Default: 500 messages, 4 MiB.
    #[must_use]
    pub fn batch_bounds(mut self, bounds: BatchBounds) -> Self {
        self.settings.batch = bounds;
        self
    }

    /// How many transactions of a partition run side by side; the keys are hashed onto them. Default: one.
    #[must_use]
    pub fn lanes(mut self, lanes: usize) -> Self {
        self.settings.lanes = lanes.max(1);
        self
    }

    /// How many connections of the store it may use at once, at least one. A process with several inboxes, or with a relay, gives
    /// each of them a share of the pool: then a slow one does not take all. Default: no bound of its own.
    #[must_use]
    pub fn max_connections(mut self, most: usize) -> Self {
        self.settings.max_connections = Some(most);
        self
    }

    /// How often a failing message is tried. Default: five times, with waits from 200 ms to 30 s.
    #[must_use]
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.settings.retry = policy;
        self
    }

    /// How often a failing message is tried, where that may change while the inbox runs.
    #[must_use]
    pub fn live_retry(mut self, policy: Live<RetryPolicy>) -> Self {
        self.retry = Some(policy);
        self
    }

    /// What happens to a message that used up its attempts. Default: park it.
    #[must_use]
    pub fn on_failure(mut self, policy: OnFailure) -> Self {
        self.settings.on_failure = policy;
        self
    }

    /// What happens to a message older than the purged receipts. Default: apply it.
    #[must_use]
    pub fn stale(mut self, policy: StalePolicy) -> Self {
        self.settings.stale = policy;
        self
    }

    /// How long receipts are kept: longer than any message can come back. Default: seven days.
    #[must_use]
    pub fn retention(mut self, keep: Duration) -> Self {
        self.settings.retention = keep;
        self
    }

    /// All settings at once.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Where the loops report how they are.
    #[must_use]
    pub fn monitor(mut self, monitor: Monitor) -> Self {
        self.monitor = monitor;
        self
    }

    /// Who knows which consumers are paused: the same one for every inbox of a database, so that one of them asks it. Default: one
    /// of its own.
    #[must_use]
    pub fn pauses(mut self, watch: PauseWatch) -> Self {
        self.settings.pauses = watch;
        self
    }

    /// Who gets spans, and of which messages. Default: nobody.
    #[must_use]
    pub fn telemetry(mut self, telemetry: Telemetry) -> Self {
        self.settings.telemetry = telemetry;
        self
    }

    /// A handler for each message: `async fn(&mut Conn, &Message) -> oncebox::Result`, or an async closure, which may own
    /// what it uses.
    ///
    /// ```
    /// # use oncebox::{Inbox, Worker, sqlite::SqliteStore};
    /// # fn worker(inbox: Inbox<SqliteStore>) -> Worker<SqliteStore> {
    /// inbox.each(async |tx, message| {
    ///     sqlx::query("INSERT INTO invoice (id) VALUES (?)").bind(message.id().as_str()).execute(tx).await?;
    ///     Ok(())
    /// })
    /// # }
    /// ```
    #[must_use]
    pub fn each<F: EachFn<S>>(self, handler: F) -> Worker<S> {
        self.apply(OneByOne(ByMessage(handler)))
    }

    /// A handler for the JSON payload of each message: `async fn(&mut Conn, T) -> oncebox::Result`. A payload that is not
    /// such JSON is rejected.
    #[must_use]
    pub fn each_json<F, T>(self, handler: F) -> Worker<S>
    where
        F: EachJsonFn<S, T>,
        T: DeserializeOwned + Send + 'static,
    {
        self.apply(OneByOne(ByPayload::new(handler)))
    }

    /// A handler for the fresh messages of a batch: `async fn(&mut Conn, &[Message]) -> oncebox::Result`. A statement for
    /// all of them waits for the database once. If it fails, the batch is rolled back and cut until the message that fails
    /// stands alone.
    ///
    /// ```
    /// # use oncebox::{Inbox, Worker, sqlite::SqliteStore};
    /// # fn worker(inbox: Inbox<SqliteStore>) -> Worker<SqliteStore> {
    /// inbox.batch(async |tx, messages| {
    ///     let ids: Vec<&str> = messages.iter().map(|message| message.id().as_str()).collect();
    ///     let ids = serde_json::to_string(&ids)?;
    ///     sqlx::query("INSERT INTO invoice (id) SELECT value FROM json_each(?)").bind(ids).execute(tx).await?;
    ///     Ok(())
    /// })
    /// # }
    /// ```
    #[must_use]
    pub fn batch<F: BatchFn<S>>(self, handler: F) -> Worker<S> {
        self.apply(AsBatch(handler))
    }

    /// A handler that is a type of its own: see [`Handler`].
    #[must_use]
    pub fn with<H: Handler<S>>(self, handler: H) -> Worker<S> {
        self.apply(OneByOne(handler))
    }

    /// A handler that applies whole batches and can say which message of a batch failed: what the methods above end in.
    #[must_use]
    pub fn apply<A: Apply<S>>(self, handler: A) -> Worker<S> {
        let apply = AnyApply::new(handler);
        let retry = self.retry.unwrap_or_else(|| Live::new(self.settings.retry));
        Worker { engine: Engine::new(self.store, apply, self.consumer, self.settings, retry, self.monitor) }
    }
}

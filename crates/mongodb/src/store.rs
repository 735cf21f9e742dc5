//! The store: how it connects, and what its files share.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::options::{ClientOptions, ServerAddress};
use mongodb::{Client, Collection, Database};
use oncebox_core::error::Error;
use oncebox_core::inbox::Selector;
use oncebox_core::store::{ErrorClass, StoreError, StoreResult};

use crate::adopted::Adopted;
use crate::classify::{Context, ILLEGAL_OPERATION, code_of, driver_of};
use crate::options::{CONNECTING, Limits, MongoStoreBuilder};
use crate::orphans::Looks;
use crate::position::Slots;

/// The oldest server that is known to work: 6.0.
const OLDEST_WIRE_VERSION: i32 = 17;
/// How long a server is waited for that may be in another set.
const ASKED: Duration = Duration::from_secs(2);

/// Receipts, positions, dead letters and the outbox in MongoDB. Cheap to clone.
#[derive(Clone)]
pub struct MongoStore {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    /// The database on the connections that carry messages.
    pub(crate) messages: Database,
    /// The same database on the connections for everything else.
    pub(crate) aside: Database,
    pub(crate) limits: Limits,
    pub(crate) adopted: Option<Adopted>,
    /// What of a message its receipt holds beside its id.
    pub(crate) further: Vec<(String, Selector)>,
    /// Which documents of a position are in use: see [`crate::position`].
    pub(crate) slots: Slots,
    /// When it was looked for transactions that are nobody's.
    pub(crate) looks: Looks,
    ticks: AtomicU64,
}

impl fmt::Debug for MongoStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MongoStore")
            .field("database", &self.inner.messages.name())
            .field("adopted", &self.inner.adopted)
            .finish_non_exhaustive()
    }
}

impl MongoStore {
    /// Connects with default settings. `url` is `mongodb://user:password@host/database?replicaSet=…`, or `mongodb+srv://…`, as
    /// the driver reads it.
    ///
    /// # Errors
    /// See [`MongoStoreBuilder::connect`].
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder(url).connect().await
    }

    /// Settings to connect with.
    pub fn builder(url: &str) -> MongoStoreBuilder {
        MongoStoreBuilder::new(url)
    }

    pub(crate) fn new(
        messages: &Client,
        aside: &Client,
        database: &str,
        limits: Limits,
        adopted: Option<Adopted>,
        further: Vec<(String, Selector)>,
    ) -> Self {
        let (messages, aside) = (messages.database(database), aside.database(database));
        let ticks = AtomicU64::new(0);
        Self {
            inner: Arc::new(Inner {
                messages,
                aside,
                limits,
                adopted,
                further,
                slots: Slots::default(),
                looks: Looks::default(),
                ticks,
            }),
        }
    }

    /// The application's database, on the connections that carry messages.
    #[must_use]
    pub fn database(&self) -> &Database {
        &self.inner.messages
    }

    /// A collection on a connection that carries no messages.
    pub(crate) fn aside(&self, name: &str) -> Collection<Document> {
        self.inner.aside.collection(name)
    }

    /// A number that is higher than all before: what happened in this process, in order.
    pub(crate) fn tick(&self) -> u64 {
        self.inner.ticks.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Bounds the silence of a server that is gone without a word. What `work` holds is dropped then, and a dropped
    /// transaction is aborted.
    pub(crate) async fn patiently<T>(
        &self,
        doing: &str,
        work: impl Future<Output = StoreResult<T>>,
    ) -> StoreResult<T> {
        let patience = self.inner.limits.silence;
        if patience.is_zero() {
            return work.await;
        }
        match tokio::time::timeout(patience, work).await {
            Ok(result) => result,
            Err(_) => Err(StoreError::new(
                ErrorClass::Away,
                doing,
                format!("no answer from the server within {} s", patience.as_secs()),
            )),
        }
    }
}

/// What a server says about itself.
pub(crate) async fn hello(store: &MongoStore) -> StoreResult<Document> {
    store.inner.aside.run_command(doc! { "hello": 1 }).await.context_of_begin(CONNECTING)
}

/// The clock of the primary, in milliseconds since 1970.
pub(crate) async fn server_now(store: &MongoStore, doing: &str) -> StoreResult<i64> {
    let hello = store.inner.aside.run_command(doc! { "hello": 1 }).await.context(doing)?;
    let now = hello.get_datetime("localTime").map(|now| now.timestamp_millis());
    now.map_err(|error| StoreError::new(ErrorClass::Environment, doing, error))
}

/// Refuses a server that cannot keep the promise, with what to do.
pub(crate) async fn refuse_unfit(store: &MongoStore) -> StoreResult<()> {
    let hello = hello(store).await?;
    let unfit = |why: &str| StoreError::new(ErrorClass::Environment, CONNECTING, why.to_owned());
    if let Some(error) = without_set(&hello) {
        return Err(error);
    }
    if hello.get_i32("maxWireVersion").is_ok_and(|version| version < OLDEST_WIRE_VERSION) {
        return Err(unfit("the server is older than MongoDB 6.0: upgrade it"));
    }
    if hello.get_bool("isWritablePrimary").is_ok_and(|primary| !primary) {
        return Err(StoreError::new(
            ErrorClass::Away,
            CONNECTING,
            "this member is not the primary: write ?replicaSet=NAME into the URL, without directConnection",
        ));
    }
    Ok(())
}

/// What to say to a server that is in no set.
fn without_set(hello: &Document) -> Option<StoreError> {
    let is_router = hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid");
    if is_router || hello.contains_key("setName") {
        return None;
    }
    // It was started for one, and somebody may be about to make it.
    Some(if hello.get_bool("isreplicaset").unwrap_or(false) {
        let why = "the replica set was not made yet: run rs.initiate() once in the server's shell";
        StoreError::new(ErrorClass::Away, CONNECTING, why)
    } else {
        let why = "the server stands alone, and has no transactions. Make it a replica set, one member is enough: start mongod with \
                   --replSet rs0, run rs.initiate() once in its shell, and write ?replicaSet=rs0 into the URL";
        StoreError::new(ErrorClass::Environment, CONNECTING, why)
    })
}

/// A transaction on a server that stands alone fails with its first operation, and the server does not say why.
pub(crate) async fn explained_within(database: &Database, error: StoreError) -> StoreError {
    if driver_of(&error).and_then(code_of) != Some(ILLEGAL_OPERATION) {
        return error;
    }
    match database.run_command(doc! { "hello": 1 }).await {
        Ok(hello) => without_set(&hello).unwrap_or(error),
        Err(_) => error,
    }
}

/// The driver does not speak to servers that are not in the set which the URL names, and says only that there are none. Whoever
/// mistyped it is told.
pub(crate) async fn explained(url: &str, error: StoreError) -> StoreError {
    let Ok(options) = ClientOptions::parse(url).await else { return error };
    if error.class != ErrorClass::Away || options.direct_connection == Some(true) {
        return error;
    }
    for host in &options.hosts {
        let Ok(hello) = hello_of(&options, host).await else { continue };
        if let Some(why) = without_set(&hello) {
            return why;
        }
        let (named, found) = (options.repl_set_name.as_deref(), hello.get_str("setName").unwrap_or_default());
        if let Some(named) = named.filter(|named| *named != found) {
            let why = format!(
                "{host} is in the replica set {found}, and the URL names {named}: write ?replicaSet={found}"
            );
            return StoreError::new(ErrorClass::Environment, CONNECTING, why);
        }
    }
    error
}

/// What one server says about itself, whatever it is.
async fn hello_of(options: &ClientOptions, host: &ServerAddress) -> mongodb::error::Result<Document> {
    let mut options = options.clone();
    options.hosts = vec![host.clone()];
    options.repl_set_name = None;
    options.direct_connection = Some(true);
    options.server_selection_timeout = Some(ASKED);
    // It is asked of anybody.
    options.credential = None;
    Client::with_options(options)?.database("admin").run_command(doc! { "hello": 1 }).await
}

//! The store: how it connects, and what its files share.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oncebox_core::error::Error;
use oncebox_core::store::{Adopt, ErrorClass, StoreError, StoreResult};
use sqlx::mysql::{MySqlArguments, MySqlConnectOptions};
use sqlx::{MySql, MySqlPool, SqlSafeStr};

use crate::adopted::{Adopted, Table};
use crate::options::{Limits, MysqlStoreBuilder, Pools};
use crate::quote::identifier;

/// A statement of ours.
pub(crate) type Query<'q> = sqlx::query::Query<'q, MySql, MySqlArguments>;

/// How much longer than the server's own limit we wait before a silent connection is given up.
const SILENCE_GRACE: Duration = Duration::from_secs(30);

/// Receipts, positions, dead letters and the outbox in MySQL or MariaDB. Cheap to clone.
#[derive(Clone)]
pub struct MysqlStore {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) pools: Pools,
    /// The statements that open a transaction. More can follow in the same message.
    pub(crate) begin: String,
    /// See [`MysqlStore::after_handler`].
    pub(crate) after_handler: String,
    patience: Option<Duration>,
    pub(crate) adopted: Option<Adopted>,
    /// The table that receipts are being copied from.
    pub(crate) copied: Mutex<Option<Arc<Table>>>,
}

impl fmt::Debug for MysqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlStore").field("adopted", &self.inner.adopted).finish_non_exhaustive()
    }
}

impl MysqlStore {
    /// Connects with default settings. `url` is `mysql://user:password@host/database?…`, as sqlx reads it, for MySQL and for
    /// MariaDB.
    ///
    /// # Errors
    /// See [`MysqlStoreBuilder::connect`].
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder(url).connect().await
    }

    /// Settings to connect with.
    pub fn builder(url: &str) -> MysqlStoreBuilder {
        MysqlStoreBuilder::new(url)
    }

    /// Connects as this pool of the application does, to the same database and with as many connections, with default settings.
    /// The connections are the store's own: how they begin and end a transaction is no good for anybody else.
    ///
    /// # Errors
    /// If the pool connects to no database.
    pub fn from_pool(pool: &MySqlPool) -> Result<Self, Error> {
        let options = pool.connect_options().as_ref().clone();
        let (connections, timeout) =
            (pool.options().get_max_connections(), pool.options().get_acquire_timeout());
        Ok(Self::new(options, connections, timeout, Limits::default(), None)?)
    }

    pub(crate) fn new(
        options: MySqlConnectOptions,
        max_connections: u32,
        acquire_timeout: Duration,
        limits: Limits,
        adopt: Option<Adopt>,
    ) -> StoreResult<Self> {
        let patience = (!limits.statement.is_zero()).then(|| limits.statement + SILENCE_GRACE);
        let Some(database) = options.get_database() else {
            return Err(StoreError::new(
                ErrorClass::Failed,
                "reading the store's URL",
                "it names no database: write mysql://USER:PASSWORD@HOST/DATABASE",
            ));
        };
        let begin = limits.begin(database);
        let after_handler = format!("USE {}", identifier(database));
        let pools = Pools::new(options, max_connections, acquire_timeout, limits);
        let adopted = adopt.map(Adopted::new);
        let copied = Mutex::default();
        Ok(Self { inner: Arc::new(Inner { pools, begin, after_handler, patience, adopted, copied }) })
    }

    /// A statement of ours with parameters. All of them run inside a transaction. The text must be one of a bounded number: the
    /// server prepares each once for every connection.
    pub(crate) fn query<'q>(&self, sql: impl SqlSafeStr) -> Query<'q> {
        sqlx::query(sql)
    }

    /// The server bounds most statements; this bounds the silence of a server that is gone without a word. What `work`
    /// holds is dropped then, and a dropped transaction closes its connection.
    pub(crate) async fn patiently<T>(
        &self,
        doing: &str,
        work: impl Future<Output = StoreResult<T>>,
    ) -> StoreResult<T> {
        let Some(patience) = self.inner.patience else { return work.await };
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

//! The store: how it connects, and what its files share.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use oncebox_core::error::Error;
use oncebox_core::store::{Adopt, ErrorClass, StoreError, StoreResult};
use sqlx::postgres::PgArguments;
use sqlx::{PgPool, Postgres, SqlSafeStr, SqlStr};

use crate::adopted::Adopted;
use crate::options::{Limits, PgStoreBuilder, Pools};
use crate::outbox::floors::Floors;
use crate::session::Sessions;

/// A statement of ours.
pub(crate) type Query<'q> = sqlx::query::Query<'q, Postgres, PgArguments>;

/// How much longer than the server's own limit we wait before a silent connection is given up.
const SILENCE_GRACE: Duration = Duration::from_secs(30);

/// Receipts, positions, dead letters and the outbox in PostgreSQL 14 or newer. Cheap to clone.
#[derive(Clone)]
pub struct PgStore {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) pools: Pools,
    /// What new connections define; `None` if connections are not ours to prepare.
    sessions: Option<Arc<Sessions>>,
    pub(crate) begin: SqlStr,
    pub(crate) begin_relay: SqlStr,
    patience: Option<Duration>,
    pooler: bool,
    by_day: bool,
    pub(crate) adopted: Option<Adopted>,
    pub(crate) floors: Floors,
}

impl fmt::Debug for PgStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgStore")
            .field("pooler", &self.inner.pooler)
            .field("by_day", &self.inner.by_day)
            .field("adopted", &self.inner.adopted)
            .field("prepares_connections", &self.inner.sessions.is_some())
            .finish_non_exhaustive()
    }
}

impl PgStore {
    /// Connects with default settings. `url` is `postgres://user:password@host/database?…`, as sqlx reads it.
    ///
    /// # Errors
    /// See [`PgStoreBuilder::connect`].
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder(url).connect().await
    }

    /// Settings to connect with.
    pub fn builder(url: &str) -> PgStoreBuilder {
        PgStoreBuilder::new(url)
    }

    /// Uses an application's own pool, with default settings. Purge, sweeps, status and leases use up to four
    /// connections of their own, with the options of that pool.
    #[must_use]
    pub fn from_pool(pool: PgPool) -> Self {
        let options = pool.connect_options().as_ref().clone();
        Self::new(Pools::around(pool, &options), None, Limits::default(), false, false, None)
    }

    pub(crate) fn new(
        pools: Pools,
        sessions: Option<Arc<Sessions>>,
        limits: Limits,
        pooler: bool,
        by_day: bool,
        adopt: Option<Adopt>,
    ) -> Self {
        let patience = (!limits.statement.is_zero()).then(|| limits.statement + SILENCE_GRACE);
        let (begin, begin_relay) = (limits.begin(), limits.begin_relay());
        let adopted = adopt.map(Adopted::new);
        Self {
            inner: Arc::new(Inner {
                pools,
                sessions,
                begin,
                begin_relay,
                patience,
                pooler,
                by_day,
                adopted,
                floors: Floors::default(),
            }),
        }
    }

    /// The pool that carries messages.
    #[must_use]
    pub fn pool(&self) -> &PgPool {
        &self.inner.pools.messages
    }

    #[cfg(feature = "sql")]
    pub(crate) fn sessions(&self) -> Option<&Sessions> {
        self.inner.sessions.as_deref()
    }

    pub(crate) fn by_day(&self) -> bool {
        self.inner.by_day
    }

    /// Whether statements may keep a name on the server.
    pub(crate) fn persistent(&self) -> bool {
        !self.inner.pooler
    }

    /// A statement of ours. All of them run inside a transaction: behind a pooler nothing else is sure to reach the server
    /// that parsed it.
    pub(crate) fn query<'q>(&self, sql: impl SqlSafeStr) -> Query<'q> {
        sqlx::query(sql).persistent(self.persistent())
    }

    /// The server bounds every statement; this bounds the silence of a server that is gone without a word. What `work`
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
                format!("no answer from PostgreSQL within {} s", patience.as_secs()),
            )),
        }
    }
}

//! How a [`PgStore`] is made.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use oncebox_core::error::Error;
use oncebox_core::store::{Adopt, Check, ErrorClass, StoreError, StoreResult};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgPool};

use crate::classify::Context;
use crate::session::{Sessions, pool_options};
use crate::store::PgStore;
use crate::txn::begin_message;

/// Connections beside the pool, for what must not wait behind the traffic: purge, sweeps, status, health.
const ASIDE_CONNECTIONS: u32 = 3;
/// And for what must not wait behind those either.
const LEASE_CONNECTIONS: u32 = 1;
const ASIDE_IDLE: Duration = Duration::from_secs(60);

/// The limits of every transaction. They are sent with BEGIN, so they hold behind a transaction pooler too.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) statement: Duration,
    pub(crate) lock: Duration,
    pub(crate) idle_in_transaction: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            statement: Duration::from_secs(60),
            lock: Duration::from_secs(10),
            idle_in_transaction: Duration::from_secs(60),
        }
    }
}

impl Limits {
    pub(crate) fn begin(&self) -> sqlx::SqlStr {
        begin_message(&self.settings())
    }

    /// The outbox is empty at one moment and long at the next, and statistics follow neither: its indexes are always right,
    /// and compiling a plan never pays. What is lost of such a transaction in a crash is done again, so it need not wait
    /// for the disk.
    pub(crate) fn begin_relay(&self) -> sqlx::SqlStr {
        let mut settings = self.settings();
        for name in ["enable_seqscan", "enable_bitmapscan", "jit", "synchronous_commit"] {
            settings.push((name, "off".to_owned()));
        }
        begin_message(&settings)
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        [
            ("statement_timeout", self.statement),
            ("lock_timeout", self.lock),
            ("idle_in_transaction_session_timeout", self.idle_in_transaction),
        ]
        .map(|(name, limit)| (name, limit.as_millis().to_string()))
        .to_vec()
    }
}

/// Settings of a [`PgStore`] that is about to connect. See [`PgStore::builder`].
#[derive(Debug, Clone)]
#[must_use]
pub struct PgStoreBuilder {
    url: Secret,
    max_connections: u32,
    acquire_timeout: Duration,
    limits: Limits,
    pooler: bool,
    partition_receipts: bool,
    adopt: Option<Adopt>,
}

/// A URL may hold a password.
#[derive(Clone)]
struct Secret(String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

impl PgStoreBuilder {
    /// The most connections that carry messages, unless [`PgStoreBuilder::max_connections`] says otherwise.
    pub const DEFAULT_MAX_CONNECTIONS: u32 = 10;

    pub(crate) fn new(url: &str) -> Self {
        Self {
            url: Secret(url.to_owned()),
            max_connections: Self::DEFAULT_MAX_CONNECTIONS,
            acquire_timeout: Duration::from_secs(30),
            limits: Limits::default(),
            pooler: has_no_statement_cache(url),
            partition_receipts: false,
            adopt: None,
        }
    }

    /// The most connections that carry messages. Up to three more are opened
    /// when purge, sweeps, status or health need them, and one more for the leases of a relay.
    pub fn max_connections(mut self, most: u32) -> Self {
        self.max_connections = most.max(1);
        self
    }

    /// How long to wait for a connection, 30 s by default.
    pub fn acquire_timeout(mut self, wait: Duration) -> Self {
        self.acquire_timeout = wait;
        self
    }

    /// `statement_timeout` of every transaction, 60 s by default. Zero is without limit.
    pub fn statement_timeout(mut self, limit: Duration) -> Self {
        self.limits.statement = limit;
        self
    }

    /// `lock_timeout` of every transaction, 10 s by default: how long a concurrent copy of a message is waited for
    /// before the batch is tried again. Zero is without limit.
    pub fn lock_timeout(mut self, limit: Duration) -> Self {
        self.limits.lock = limit;
        self
    }

    /// `idle_in_transaction_session_timeout` of every transaction, 60 s by default: how long a handler may do something
    /// else while it holds the transaction. Zero is without limit.
    pub fn idle_in_transaction_timeout(mut self, limit: Duration) -> Self {
        self.limits.idle_in_transaction = limit;
        self
    }

    /// Whether a pooler in transaction mode (pgbouncer, pgcat, Supavisor) stands in between. No named prepared statement
    /// is used then, and temporary functions are looked for in each transaction. `statement-cache-capacity=0` in the URL
    /// says the same.
    ///
    /// pgbouncer needs `ignore_startup_parameters = extra_float_digits`, which sqlx sends. Before pgbouncer 1.21, your own
    /// handlers must say `.persistent(false)` on their queries.
    pub fn pooler(mut self, between: bool) -> Self {
        self.pooler = between;
        self
    }

    /// Whether receipts are kept in partitions by day, so that purge drops whole days. Only receipts of messages whose id
    /// is a UUIDv7 fall into days; see [`PgStore::partition_receipts`].
    pub fn partition_receipts(mut self, by_day: bool) -> Self {
        self.partition_receipts = by_day;
        self
    }

    /// Keeps receipts in a table that the application already has, instead of oncebox's own. Not together with
    /// [`PgStoreBuilder::partition_receipts`].
    pub fn adopt(mut self, table: Adopt) -> Self {
        self.adopt = Some(table);
        self
    }

    /// Connects, and makes sure that the server takes writes.
    ///
    /// # Errors
    /// `failed` if the URL is wrong; `away` if the server cannot be reached, is a standby or is read-only; `environment` if
    /// it refuses the role, the password or the database.
    pub async fn connect(self) -> Result<PgStore, Error> {
        let options = self.options()?;
        let store = self.connect_lazy()?;
        // A pool that cannot connect only says that it waited; one connection of our own says why.
        let first = options.connect().await.context_of_begin("connecting to PostgreSQL")?;
        first.close().await.context_of_begin("connecting to PostgreSQL")?;
        store.ping().await?;
        Ok(store)
    }

    fn options(&self) -> StoreResult<PgConnectOptions> {
        let mut options = PgConnectOptions::from_str(&self.url.0)
            .map_err(|e| StoreError::new(ErrorClass::Failed, "reading the store's URL", e))?
            .disable_statement_logging();
        if options.get_application_name().is_none() {
            options = options.application_name("oncebox");
        }
        Ok(options)
    }

    /// Makes the store without connecting; the first use does.
    ///
    /// # Errors
    /// If the URL is wrong.
    pub fn connect_lazy(self) -> Result<PgStore, Error> {
        let options = self.options()?;
        if self.partition_receipts && self.adopt.is_some() {
            let why = "receipts in an adopted table are not partitioned by day";
            return Err(StoreError::new(ErrorClass::Failed, "setting up the store", why).into());
        }
        let sessions = Arc::new(Sessions::default());
        let pool = pool_options(&sessions)
            .max_connections(self.max_connections)
            .acquire_timeout(self.acquire_timeout)
            .connect_lazy_with(options.clone());
        let pools = Pools::around(pool, &options);
        let sessions = if self.pooler { None } else { Some(sessions) };
        Ok(PgStore::new(pools, sessions, self.limits, self.pooler, self.partition_receipts, self.adopt))
    }
}

/// Who turns the cache of prepared statements off in the URL does so because of a pooler.
fn has_no_statement_cache(url: &str) -> bool {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    query.split('&').any(|pair| pair == "statement-cache-capacity=0")
}

/// Who may not wait for whom has pools of its own.
pub(crate) struct Pools {
    pub(crate) messages: PgPool,
    pub(crate) aside: PgPool,
    pub(crate) lease: PgPool,
}

impl Pools {
    /// The small pools beside the one that carries messages. They connect when they are used.
    pub(crate) fn around(messages: PgPool, options: &PgConnectOptions) -> Self {
        let small = |connections: u32| {
            pool_options(&Arc::default())
                .max_connections(connections)
                .idle_timeout(ASIDE_IDLE)
                .acquire_timeout(messages.options().get_acquire_timeout())
                .connect_lazy_with(options.clone())
        };
        Self { aside: small(ASIDE_CONNECTIONS), lease: small(LEASE_CONNECTIONS), messages }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_can_speak_of_a_pooler() {
        assert!(has_no_statement_cache("postgres://h/d?sslmode=disable&statement-cache-capacity=0"));
        assert!(!has_no_statement_cache("postgres://h/d?statement-cache-capacity=01"));
        assert!(!has_no_statement_cache("postgres://h/statement-cache-capacity=0"));
    }

    #[test]
    fn a_password_is_not_shown() {
        let builder = PgStore::builder("postgres://erp:hunter2@localhost/erp");
        assert!(!format!("{builder:?}").contains("hunter2"));
    }
}

//! How a [`MysqlStore`] is made.

use std::str::FromStr;
use std::time::Duration;

use oncebox_core::error::Error;
use oncebox_core::secret::Secret;
use oncebox_core::store::{Adopt, Check, ErrorClass, StoreError, StoreResult};
use sqlx::mysql::MySqlConnectOptions;
use sqlx::{ConnectOptions, Connection, MySqlPool};

use crate::classify::Context;
use crate::quote::identifier;
use crate::session::pool_options;
use crate::store::MysqlStore;

/// Connections beside the pool, for what must not wait behind the traffic: purge, sweeps, status, health.
const ASIDE_CONNECTIONS: u32 = 3;
/// And for what must not wait behind those either.
const LEASE_CONNECTIONS: u32 = 1;
const ASIDE_IDLE: Duration = Duration::from_secs(60);
/// More than we have statements: the driver waits for the network whenever it forgets one.
const CACHED_STATEMENTS: usize = 256;

/// The limits of every transaction. They are sent with it, so they hold whatever a handler has set before.
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
    /// The statements that open a transaction in this database.
    ///
    /// - `autocommit = 0`: after an error that ends the transaction (1213), or a handler's statement that commits by itself,
    ///   the next statements must not commit one by one.
    /// - `sql_mode` and `time_zone` are those of the beginning of the session, whatever a handler has set since.
    /// - The isolation level is spelled out because the claim relies on READ COMMITTED. READ WRITE is not: a read-only server
    ///   is how operators stop a primary, and we wait until it is over.
    /// - What an event follows from is forgotten: a session keeps its variables, and `oncebox_emit` reads them.
    /// - The savepoint is there as long as this very transaction is: the commit looks for it.
    pub(crate) fn begin(&self, database: &str) -> String {
        format!(
            "SET SESSION autocommit = 0, innodb_lock_wait_timeout = {lock}, lock_wait_timeout = {lock}, \
             wait_timeout = {} /*M!, max_statement_time = {} */, \
             sql_mode = @oncebox_sql_mode, time_zone = @oncebox_time_zone, \
             @oncebox_consumer = NULL, @oncebox_tenant = NULL, @oncebox_causation_id = NULL, @oncebox_traceparent = NULL, \
             @oncebox_correlation_id = NULL; \
             USE {}; SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION; SAVEPOINT oncebox; ",
            seconds(self.idle_in_transaction),
            self.statement.as_secs_f64(),
            identifier(database),
            lock = seconds(self.lock),
        )
    }
}

/// At least one, at most what the server takes for both settings.
fn seconds(limit: Duration) -> u64 {
    const MOST: u64 = 31_536_000;
    let whole = limit.as_secs() + u64::from(limit.subsec_nanos() > 0);
    if whole == 0 { MOST } else { whole.min(MOST) }
}

/// Settings of a [`MysqlStore`] that is about to connect. See [`MysqlStore::builder`].
#[derive(Debug, Clone)]
#[must_use]
pub struct MysqlStoreBuilder {
    url: Secret,
    max_connections: u32,
    acquire_timeout: Duration,
    limits: Limits,
    adopt: Option<Adopt>,
}

impl MysqlStoreBuilder {
    /// The most connections that carry messages, unless [`MysqlStoreBuilder::max_connections`] says otherwise.
    pub const DEFAULT_MAX_CONNECTIONS: u32 = 10;

    pub(crate) fn new(url: &str) -> Self {
        Self {
            url: Secret::new(url),
            max_connections: Self::DEFAULT_MAX_CONNECTIONS,
            acquire_timeout: Duration::from_secs(30),
            limits: Limits::default(),
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

    /// `max_statement_time` of every transaction on MariaDB, 60 s by default. Zero is without limit. MySQL has no such setting for
    /// statements that write; there, and whenever the server is silent, we wait for as long and half a minute more.
    pub fn statement_timeout(mut self, limit: Duration) -> Self {
        self.limits.statement = limit;
        self
    }

    /// `innodb_lock_wait_timeout` and `lock_wait_timeout` of every transaction, 10 s by default, in whole seconds: how long a concurrent copy of a message
    /// is waited for before the batch is tried again. Zero is without limit.
    pub fn lock_timeout(mut self, limit: Duration) -> Self {
        self.limits.lock = limit;
        self
    }

    /// `wait_timeout` of every connection, 60 s by default, in whole seconds: how long a handler may do something else while it
    /// holds the transaction. Zero is without limit.
    pub fn idle_in_transaction_timeout(mut self, limit: Duration) -> Self {
        self.limits.idle_in_transaction = limit;
        self
    }

    /// Keeps receipts in a table that the application already has, instead of oncebox's own.
    pub fn adopt(mut self, table: Adopt) -> Self {
        self.adopt = Some(table);
        self
    }

    /// Connects, and makes sure that the server takes writes.
    ///
    /// # Errors
    /// `failed` if the URL is wrong or names no database; `away` if the server cannot be reached or is read-only; `environment`
    /// if it refuses the user, the password or the database.
    pub async fn connect(self) -> Result<MysqlStore, Error> {
        let options = self.options()?;
        let store = self.connect_lazy()?;
        // A pool that cannot connect only says that it waited; one connection of our own says why.
        let first = options.connect().await.context_of_begin(CONNECTING)?;
        first.close().await.context_of_begin(CONNECTING)?;
        store.ping().await?;
        Ok(store)
    }

    fn options(&self) -> StoreResult<MySqlConnectOptions> {
        MySqlConnectOptions::from_str(self.url.expose())
            .map_err(|e| StoreError::new(ErrorClass::Failed, "reading the store's URL", e))
    }

    /// Makes the store without connecting; the first use does.
    ///
    /// # Errors
    /// If the URL is wrong or names no database.
    pub fn connect_lazy(self) -> Result<MysqlStore, Error> {
        let options = self.options()?;
        Ok(MysqlStore::new(options, self.max_connections, self.acquire_timeout, self.limits, self.adopt)?)
    }
}

pub(crate) const CONNECTING: &str = "connecting to the server";

/// Who may not wait for whom has pools of its own.
pub(crate) struct Pools {
    pub(crate) messages: MySqlPool,
    pub(crate) aside: MySqlPool,
    pub(crate) lease: MySqlPool,
}

impl Pools {
    /// They connect when they are used.
    pub(crate) fn new(
        options: MySqlConnectOptions,
        max_connections: u32,
        acquire_timeout: Duration,
        limits: Limits,
    ) -> Self {
        let options = options.statement_cache_capacity(CACHED_STATEMENTS).disable_statement_logging();
        // The server ends a connection that is idle for as long as a transaction may be.
        let idle = Duration::from_secs(seconds(limits.idle_in_transaction)).mul_f64(0.75);
        let pool = |connections: u32, idle: Duration| {
            pool_options(idle)
                .max_connections(connections)
                .acquire_timeout(acquire_timeout)
                .connect_lazy_with(options.clone())
        };
        Self {
            messages: pool(max_connections, idle),
            aside: pool(ASIDE_CONNECTIONS, idle.min(ASIDE_IDLE)),
            lease: pool(LEASE_CONNECTIONS, idle.min(ASIDE_IDLE)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_shown() {
        let builder = MysqlStore::builder("mysql://erp:hunter2@localhost/erp");
        assert!(!format!("{builder:?}").contains("hunter2"));
    }

    #[test]
    fn limits_are_whole_seconds_and_zero_is_none() {
        assert_eq!(seconds(Duration::from_millis(1)), 1);
        assert_eq!(seconds(Duration::from_millis(1001)), 2);
        assert_eq!(seconds(Duration::ZERO), 31_536_000);
    }
}

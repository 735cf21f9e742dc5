//! [`PgStore`]: the traits of the core, each method in the file of its subject.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use oncebox_core::error::Error;
use oncebox_core::names::ConsumerName;
use oncebox_core::source::LogId;
use oncebox_core::store::{
    Advance, Check, Claim, Claimed, DeadFilter, DeadLetter, DeadLetters, DeadSummary, ErrorClass, Finding,
    Migrate, Migration, Ownership, PositionKey, Positions, Progress, Purge, PurgePass, Purged, Status, Store,
    StoreError, StoreResult, StoreStatus, StoredDeadLetter,
};
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{PgConnection, PgPool, Postgres, SqlSafeStr, SqlStr};

use crate::options::{Limits, PgStoreBuilder, Pools};
use crate::session::Sessions;
use crate::txn::PgTxn;

/// How much longer than the server's own limit we wait before a silent connection is given up.
const GRACE: Duration = Duration::from_secs(30);

/// Receipts, positions, dead letters and the outbox in PostgreSQL 14 or newer. Cheap to clone.
#[derive(Clone)]
pub struct PgStore {
    inner: Arc<Inner>,
}

struct Inner {
    pools: Pools,
    /// What new connections define; `None` if connections are not ours to prepare.
    sessions: Option<Arc<Sessions>>,
    begin: SqlStr,
    begin_relay: SqlStr,
    patience: Option<Duration>,
    pooler: bool,
    by_day: bool,
}

impl fmt::Debug for PgStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgStore")
            .field("pooler", &self.inner.pooler)
            .field("by_day", &self.inner.by_day)
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

    /// Creates the tables of oncebox, or brings them up to date; safe to run from several processes at once. Returns what
    /// was applied.
    pub async fn migrate(&self) -> Result<Vec<Migration>, Error> {
        Ok(Migrate::migrate(self).await?)
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
        Self::new(Pools::around(pool, &options), None, Limits::default(), false, false)
    }

    pub(crate) fn new(
        pools: Pools,
        sessions: Option<Arc<Sessions>>,
        limits: Limits,
        pooler: bool,
        by_day: bool,
    ) -> Self {
        let patience = (!limits.statement.is_zero()).then(|| limits.statement + GRACE);
        let (begin, begin_relay) = (limits.begin(), limits.begin_relay());
        Self { inner: Arc::new(Inner { pools, sessions, begin, begin_relay, patience, pooler, by_day }) }
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
    pub(crate) fn query<'q>(&self, sql: impl SqlSafeStr) -> Query<'q, Postgres, PgArguments> {
        sqlx::query(sql).persistent(self.persistent())
    }

    /// Opens a transaction for messages.
    pub(crate) async fn begin(&self) -> StoreResult<PgTxn> {
        PgTxn::begin(&self.inner.pools.messages, self.inner.begin.clone()).await
    }

    /// Opens a transaction for a relay's reading and settling.
    pub(crate) async fn begin_relay(&self) -> StoreResult<PgTxn> {
        PgTxn::begin(&self.inner.pools.messages, self.inner.begin_relay.clone()).await
    }

    /// Opens a transaction on a connection that carries no messages.
    pub(crate) async fn begin_aside(&self) -> StoreResult<PgTxn> {
        PgTxn::begin(&self.inner.pools.aside, self.inner.begin.clone()).await
    }

    /// Opens a transaction for leases, which wait for nothing but each other.
    pub(crate) async fn begin_lease(&self) -> StoreResult<PgTxn> {
        PgTxn::begin(&self.inner.pools.lease, self.inner.begin.clone()).await
    }

    /// The server bounds every statement; this bounds the silence of a server that is gone without a word. What `work`
    /// holds is dropped then, and a dropped transaction closes its connection.
    pub(crate) async fn patiently<T>(
        &self,
        context: &'static str,
        work: impl Future<Output = StoreResult<T>>,
    ) -> StoreResult<T> {
        let Some(patience) = self.inner.patience else { return work.await };
        match tokio::time::timeout(patience, work).await {
            Ok(result) => result,
            Err(_) => Err(StoreError::new(
                ErrorClass::Away,
                context,
                format!("no answer from PostgreSQL within {} s", patience.as_secs()),
            )),
        }
    }
}

impl Store for PgStore {
    type Conn = PgConnection;
    type Txn = PgTxn;

    async fn claim(&self, consumer: &ConsumerName, claims: &[Claim<'_>]) -> StoreResult<Claimed<PgTxn>> {
        self.patiently("claiming receipts", self.claim_receipts(consumer, claims)).await
    }

    async fn claim_within(
        &self,
        conn: &mut PgConnection,
        consumer: &ConsumerName,
        claims: &[Claim<'_>],
    ) -> StoreResult<Vec<bool>> {
        self.claim_in_callers_transaction(conn, consumer, claims).await
    }

    async fn commit(&self, txn: PgTxn, advance: Option<Advance<'_>>) -> StoreResult<()> {
        self.patiently("committing", self.advance_and_commit(txn, advance)).await
    }

    async fn rollback(&self, txn: PgTxn) {
        // Its error is a lost connection, and that is a rollback too.
        let rolled_back = async {
            txn.rollback().await;
            Ok(())
        };
        if let Err(error) = self.patiently("rolling back", rolled_back).await {
            tracing::debug!(%error, "closed the connection instead");
        }
    }

    fn classify(error: &(dyn std::error::Error + 'static)) -> ErrorClass {
        crate::classify::classify(error)
    }
}

impl Positions for PgStore {
    async fn acquire(&self, key: &PositionKey) -> StoreResult<Ownership> {
        self.patiently("acquiring a position", self.acquire_position(key)).await
    }

    async fn record_progress(&self, owner: &Ownership, progress: Progress<'_>) -> StoreResult<()> {
        let context = "writing down how far a partition is";
        self.patiently(context, self.write_progress(owner, progress)).await
    }

    async fn release(&self, owner: &Ownership) -> StoreResult<()> {
        self.patiently("releasing a position", self.release_position(owner)).await
    }

    async fn record_attempt(&self, owner: &Ownership, offset: i64) -> StoreResult<u32> {
        self.patiently("recording an attempt", self.record_one_attempt(owner, offset)).await
    }

    async fn withdraw_attempt(&self, owner: &Ownership, offset: i64) -> StoreResult<()> {
        self.patiently("withdrawing an attempt", self.take_attempt_back(owner, offset)).await
    }

    async fn move_position(
        &self,
        key: &PositionKey,
        next_offset: i64,
        log: Option<&LogId>,
    ) -> StoreResult<()> {
        self.patiently("moving a position", self.move_position_to(key, next_offset, log)).await
    }

    async fn retire_positions(&self, consumer: &ConsumerName, topic: &str) -> StoreResult<u64> {
        self.patiently("retiring positions", self.retire_topic(consumer, topic)).await
    }
}

impl DeadLetters for PgStore {
    async fn park(
        &self,
        txn: &mut PgTxn,
        consumer: &ConsumerName,
        letters: &[DeadLetter],
    ) -> StoreResult<()> {
        self.patiently("parking dead letters", self.park_letters(txn, consumer, letters)).await
    }

    async fn parked_keys(
        &self,
        txn: &mut PgTxn,
        position: &PositionKey,
        keys: &[&[u8]],
    ) -> StoreResult<Vec<Vec<u8>>> {
        self.patiently("looking for parked keys", self.keys_with_letters(txn, position, keys)).await
    }

    async fn take_dead(&self, number: i64) -> StoreResult<Option<(PgTxn, StoredDeadLetter)>> {
        self.patiently("taking a dead letter", self.take_letter(number)).await
    }

    async fn letter_before(&self, txn: &mut PgTxn, taken: &StoredDeadLetter) -> StoreResult<Option<i64>> {
        let context = "looking for earlier dead letters";
        self.patiently(context, self.first_of_key_before(txn, taken)).await
    }

    async fn dead_letters(&self, filter: &DeadFilter) -> StoreResult<Vec<DeadSummary>> {
        self.patiently("reading dead letters", self.list_letters(filter)).await
    }

    async fn dead_letter(&self, number: i64) -> StoreResult<Option<StoredDeadLetter>> {
        self.patiently("reading a dead letter", self.read_letter(number)).await
    }

    async fn drop_dead(&self, filter: &DeadFilter) -> StoreResult<u64> {
        self.patiently("dropping dead letters", self.drop_letters(filter)).await
    }
}

impl Purge for PgStore {
    async fn purged_before(&self, txn: &mut PgTxn, consumer: &ConsumerName) -> StoreResult<Option<i64>> {
        self.patiently("reading the horizon", self.horizon_of(txn, consumer)).await
    }

    async fn purge(&self, pass: PurgePass<'_>) -> StoreResult<Purged> {
        self.purge_pass(pass).await
    }
}

impl Migrate for PgStore {
    async fn migrations(&self) -> StoreResult<Vec<Migration>> {
        self.patiently("reading the schema's version", self.known_migrations()).await
    }

    async fn migrate(&self) -> StoreResult<Vec<Migration>> {
        self.apply_migrations().await
    }
}

impl Check for PgStore {
    async fn ping(&self) -> StoreResult<()> {
        self.patiently("asking PostgreSQL", self.ask_for_writes()).await
    }

    async fn check(&self) -> StoreResult<Vec<Finding>> {
        self.patiently("checking", Box::pin(self.findings())).await
    }
}

impl Status for PgStore {
    async fn status(&self, count_cap: u64) -> StoreResult<StoreStatus> {
        self.patiently("reading the status", self.read_status(count_cap)).await
    }
}

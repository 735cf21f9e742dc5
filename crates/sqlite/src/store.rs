//! The store: how it connects, and which file does what.

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use oncebox_core::error::{BoxError, Error};
use oncebox_core::names::ConsumerName;
use oncebox_core::source::LogId;
use oncebox_core::store::{
    Advance, Check, Claim, Claimed, DeadFilter, DeadLetter, DeadLetters, DeadSummary, ErrorClass, Finding,
    Migrate, Migration, Ownership, PositionKey, Positions, Progress, Purge, PurgePass, Purged, Status, Store,
    StoreError, StoreResult, StoreStatus, StoredDeadLetter,
};
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{
    SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
    SqliteSynchronous,
};
use sqlx::{ConnectOptions, Sqlite, SqliteConnection};

use crate::claim::Receipts;
use crate::classify::{Context, classify};
use crate::txn::SqliteTxn;
use crate::writer::{BUSY_TIMEOUT, Writer};
use crate::{check, claim, dead, migrate, position, purge, status};

/// A SQLite file. Clones share their connections.
#[derive(Debug, Clone)]
pub struct SqliteStore {
    pub(crate) writer: Writer,
    readers: SqlitePool,
}

impl SqliteStore {
    /// Opens `sqlite://path`, relative to the working directory, or `sqlite:///path` from the root. Creates the file if
    /// it is missing, but not its directory.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        let options = options(url).map_err(|error| {
            StoreError::new(ErrorClass::Failed, format!("the store url {url:?} is not usable"), error)
        })?;
        let path = options.get_filename().display().to_string();
        let readers = SqlitePoolOptions::new()
            .max_connections(4)
            .acquire_timeout(BUSY_TIMEOUT)
            .idle_timeout(Duration::from_secs(60))
            .connect_lazy_with(options.clone().pragma("query_only", "ON").pragma("cache_size", "-2048"));
        let store = Self { writer: Writer::new(for_writing(options)), readers };
        store.writer.warm_up().await.context_of_begin(&format!("opening {path}"))?;
        Ok(store)
    }

    /// Creates the tables of oncebox, or brings them up to date; safe to run from several processes at once. Returns what
    /// was applied.
    pub async fn migrate(&self) -> Result<Vec<Migration>, Error> {
        Ok(Migrate::migrate(self).await?)
    }

    /// A connection that only reads.
    pub(crate) async fn reader(&self) -> StoreResult<PoolConnection<Sqlite>> {
        self.readers.acquire().await.context_of_begin("connecting to the database")
    }
}

fn options(url: &str) -> Result<SqliteConnectOptions, BoxError> {
    let path = url.strip_prefix("sqlite:").ok_or("it does not start with sqlite://")?;
    let (path, parameters) = path.split_once('?').unwrap_or((path, ""));
    let path = path.trim_start_matches("//");
    if path.is_empty() {
        return Err("it names no file".into());
    }
    if path == ":memory:" || parameters.contains("mode=memory") {
        return Err(
            "each connection would see a database of its own, and nothing would survive the process; \
                    name a file"
                .into(),
        );
    }
    if parameters.contains("mode=ro") || parameters.contains("immutable") {
        return Err("the inbox writes to it, so it cannot be opened read-only".into());
    }
    Ok(SqliteConnectOptions::from_str(url)?
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY_TIMEOUT)
        .foreign_keys(true)
        .shared_cache(false)
        // A batch of random keys dirties more pages than the default of 2 MiB holds, and rarer checkpoints write a page
        // that many batches touch only once. Both measured: together they double the receipts per second.
        .pragma("cache_size", "-16384")
        .pragma("wal_autocheckpoint", "10000")
        .pragma("temp_store", "MEMORY")
        // A write-ahead log that a long reader let grow is cut back to this at the next checkpoint.
        .pragma("journal_size_limit", "67108864")
        .disable_statement_logging())
}

/// Only a file that does not exist yet can learn to give space back; another one keeps what its owner chose. Not for
/// readers: the pragma waits for the write lock, even where it has nothing left to do.
fn for_writing(options: SqliteConnectOptions) -> SqliteConnectOptions {
    let new = !Path::new(options.get_filename()).exists();
    if new { options.auto_vacuum(SqliteAutoVacuum::Incremental) } else { options }
}

impl Store for SqliteStore {
    type Conn = SqliteConnection;
    type Txn = SqliteTxn;

    async fn claim(&self, consumer: &ConsumerName, claims: &[Claim<'_>]) -> StoreResult<Claimed<SqliteTxn>> {
        let mut txn = self.writer.begin().await?;
        let Receipts { fresh, collisions } = claim::claim(&mut txn, consumer, claims).await?;
        Ok(Claimed { txn, fresh, collisions })
    }

    async fn claim_within(
        &self,
        conn: &mut SqliteConnection,
        consumer: &ConsumerName,
        claims: &[Claim<'_>],
    ) -> StoreResult<Vec<bool>> {
        claim::claim_within(conn, consumer, claims).await
    }

    async fn commit(&self, txn: SqliteTxn, advance: Option<Advance<'_>>) -> StoreResult<()> {
        txn.commit(advance.as_ref()).await
    }

    async fn rollback(&self, txn: SqliteTxn) {
        txn.rollback().await;
    }

    fn classify(error: &(dyn std::error::Error + 'static)) -> ErrorClass {
        classify(error)
    }
}

impl Positions for SqliteStore {
    async fn acquire(&self, key: &PositionKey) -> StoreResult<Ownership> {
        position::acquire(&self.writer, key).await
    }

    async fn record_progress(&self, owner: &Ownership, progress: Progress<'_>) -> StoreResult<()> {
        position::record_progress(&self.writer, owner, &progress).await
    }

    async fn release(&self, owner: &Ownership) -> StoreResult<()> {
        position::release(&self.writer, owner).await
    }

    async fn record_attempt(&self, owner: &Ownership, offset: i64) -> StoreResult<u32> {
        position::record_attempt(&self.writer, owner, offset).await
    }

    async fn withdraw_attempt(&self, owner: &Ownership, offset: i64) -> StoreResult<()> {
        position::withdraw_attempt(&self.writer, owner, offset).await
    }

    async fn move_position(
        &self,
        key: &PositionKey,
        next_offset: i64,
        log: Option<&LogId>,
    ) -> StoreResult<()> {
        position::move_position(&self.writer, key, next_offset, log).await
    }

    async fn retire_positions(&self, consumer: &ConsumerName, topic: &str) -> StoreResult<u64> {
        position::retire_positions(&self.writer, consumer, topic).await
    }
}

impl DeadLetters for SqliteStore {
    async fn park(
        &self,
        txn: &mut SqliteTxn,
        consumer: &ConsumerName,
        letters: &[DeadLetter],
    ) -> StoreResult<()> {
        dead::park(txn, consumer, letters).await
    }

    async fn parked_keys(
        &self,
        txn: &mut SqliteTxn,
        position: &PositionKey,
        keys: &[&[u8]],
    ) -> StoreResult<Vec<Vec<u8>>> {
        dead::parked_keys(txn, position, keys).await
    }

    async fn take_dead(&self, number: i64) -> StoreResult<Option<(SqliteTxn, StoredDeadLetter)>> {
        dead::take(&self.writer, number).await
    }

    async fn letter_before(&self, txn: &mut SqliteTxn, taken: &StoredDeadLetter) -> StoreResult<Option<i64>> {
        dead::letter_before(txn, taken).await
    }

    async fn dead_letters(&self, filter: &DeadFilter) -> StoreResult<Vec<DeadSummary>> {
        dead::list(self, filter).await
    }

    async fn dead_letter(&self, number: i64) -> StoreResult<Option<StoredDeadLetter>> {
        dead::one(self, number).await
    }

    async fn drop_dead(&self, filter: &DeadFilter) -> StoreResult<u64> {
        dead::drop(&self.writer, filter).await
    }
}

impl Purge for SqliteStore {
    async fn purged_before(&self, txn: &mut SqliteTxn, consumer: &ConsumerName) -> StoreResult<Option<i64>> {
        purge::purged_before(txn, consumer).await
    }

    async fn purge(&self, pass: PurgePass<'_>) -> StoreResult<Purged> {
        purge::purge(self, &pass).await
    }
}

impl Migrate for SqliteStore {
    async fn migrations(&self) -> StoreResult<Vec<Migration>> {
        migrate::migrations(self).await
    }

    async fn migrate(&self) -> StoreResult<Vec<Migration>> {
        migrate::migrate(self).await
    }
}

impl Check for SqliteStore {
    async fn ping(&self) -> StoreResult<()> {
        check::ping(self).await
    }

    async fn check(&self) -> StoreResult<Vec<Finding>> {
        check::check(self).await
    }
}

impl Status for SqliteStore {
    async fn status(&self, count_cap: u64) -> StoreResult<StoreStatus> {
        status::status(self, count_cap).await
    }
}

//! The store: how it connects, and the hot path.

use std::time::Duration;

use oncebox_core::error::Error;
use oncebox_core::names::ConsumerName;
use oncebox_core::store::{Advance, Claim, Claimed, ErrorClass, Store, StoreError, StoreResult};
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqliteArguments, SqlitePool, SqlitePoolOptions};
use sqlx::{Sqlite, SqliteConnection};

use crate::classify::Context;
use crate::options::{for_reading, for_writing, options};
use crate::txn::SqliteTxn;
use crate::writer::{BUSY_TIMEOUT, Writer};
use crate::{claim, classify};

/// A statement of ours.
pub(crate) type Query = sqlx::query::Query<'static, Sqlite, SqliteArguments>;

/// A SQLite file. Clones share their connections.
///
/// ```
/// use oncebox::sqlite::SqliteStore;
///
/// # #[tokio::main]
/// # async fn main() -> oncebox::Result {
/// # let folder = tempfile::tempdir()?;
/// # let url = format!("sqlite://{}", folder.path().join("shop.sqlite").display());
/// let store = SqliteStore::connect(&url).await?;
/// store.migrate().await?;
/// # Ok(())
/// # }
/// ```
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
            .connect_lazy_with(for_reading(options.clone()));
        let store = Self { writer: Writer::new(for_writing(options)), readers };
        store.writer.warm_up().await.context_of_begin(&format!("opening {path}"))?;
        Ok(store)
    }

    /// Waits for its turn and opens a transaction that holds the write lock from the start.
    pub(crate) async fn begin(&self) -> StoreResult<SqliteTxn> {
        self.writer.begin().await
    }

    /// A connection that only reads.
    pub(crate) async fn reader(&self) -> StoreResult<PoolConnection<Sqlite>> {
        self.readers.acquire().await.context_of_begin("connecting to the database")
    }
}

impl Store for SqliteStore {
    type Conn = SqliteConnection;
    type Txn = SqliteTxn;

    async fn claim(&self, consumer: &ConsumerName, claims: &[Claim<'_>]) -> StoreResult<Claimed<SqliteTxn>> {
        claim::claim(self, consumer, claims).await
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
        classify::classify(error)
    }
}

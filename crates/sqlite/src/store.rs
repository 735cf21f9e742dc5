//! The store: how it connects, and what its files share.

use std::sync::Arc;
use std::time::Duration;

use oncebox_core::error::Error;
use oncebox_core::store::{Adopt, ErrorClass, StoreError, StoreResult};
use sqlx::Sqlite;
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqliteArguments, SqlitePool, SqlitePoolOptions};

use crate::adopted::Adopted;
use crate::classify::Context;
use crate::options::{SqliteStoreBuilder, for_reading, for_writing, options};
use crate::writer::{BUSY_TIMEOUT, Writer};

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
    pub(crate) adopted: Option<Arc<Adopted>>,
}

impl SqliteStore {
    /// Opens `sqlite://path`, relative to the working directory, or `sqlite:///path` from the root. Creates the file if
    /// it is missing, but not its directory.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder(url).connect().await
    }

    /// Settings to open a file with.
    pub fn builder(url: &str) -> SqliteStoreBuilder {
        SqliteStoreBuilder::new(url)
    }

    pub(crate) async fn open(url: &str, adopt: Option<Adopt>, existing: bool) -> Result<Self, Error> {
        let options = options(url).map_err(|error| {
            StoreError::new(ErrorClass::Failed, format!("the store url {url:?} is not usable"), error)
        })?;
        let path = options.get_filename().display().to_string();
        if existing && !options.get_filename().exists() {
            let why = "there is no such file: correct the path, or make it with `oncebox migrate`";
            return Err(StoreError::new(ErrorClass::Failed, format!("opening {path}"), why).into());
        }
        let readers = SqlitePoolOptions::new()
            .max_connections(4)
            .acquire_timeout(BUSY_TIMEOUT)
            .idle_timeout(Duration::from_secs(60))
            .connect_lazy_with(for_reading(options.clone()));
        let adopted = adopt.map(|adopt| Arc::new(Adopted::new(adopt)));
        let store = Self { writer: Writer::new(for_writing(options)), readers, adopted };
        store.writer.warm_up().await.context_of_begin(&format!("opening {path}"))?;
        Ok(store)
    }

    /// A connection that only reads.
    pub(crate) async fn reader(&self) -> StoreResult<PoolConnection<Sqlite>> {
        self.readers.acquire().await.context_of_begin("connecting to the database")
    }
}

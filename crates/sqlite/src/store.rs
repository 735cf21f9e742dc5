//! The store: how it connects, and what its files share.

use std::time::Duration;

use oncebox_core::error::Error;
use oncebox_core::store::{ErrorClass, StoreError, StoreResult};
use sqlx::Sqlite;
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqliteArguments, SqlitePool, SqlitePoolOptions};

use crate::classify::Context;
use crate::options::{for_reading, for_writing, options};
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

    /// A connection that only reads.
    pub(crate) async fn reader(&self) -> StoreResult<PoolConnection<Sqlite>> {
        self.readers.acquire().await.context_of_begin("connecting to the database")
    }
}

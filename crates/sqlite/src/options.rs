//! How the connections of a [`SqliteStore`] are set up.

use std::path::Path;
use std::str::FromStr;

use oncebox_core::error::{BoxError, Error};
use oncebox_core::store::Adopt;
use sqlx::ConnectOptions;
use sqlx::sqlite::{SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};

use crate::store::SqliteStore;
use crate::writer::BUSY_TIMEOUT;

/// Settings of a [`SqliteStore`] that is about to be opened. See [`SqliteStore::builder`].
#[derive(Debug, Clone)]
#[must_use]
pub struct SqliteStoreBuilder {
    url: String,
    adopt: Option<Adopt>,
    existing: bool,
}

impl SqliteStoreBuilder {
    pub(crate) fn new(url: &str) -> Self {
        Self { url: url.to_owned(), adopt: None, existing: false }
    }

    /// Keeps receipts in a table that the application already has, instead of oncebox's own.
    pub fn adopt(mut self, table: Adopt) -> Self {
        self.adopt = Some(table);
        self
    }

    /// Only opens a file that is there: for programs that look at it. A path with a typing error then makes no empty database.
    pub fn existing(mut self) -> Self {
        self.existing = true;
        self
    }

    /// Opens the file, as [`SqliteStore::connect`] does.
    ///
    /// # Errors
    /// If the URL is wrong, or the file cannot be opened.
    pub async fn connect(self) -> Result<SqliteStore, Error> {
        SqliteStore::open(&self.url, self.adopt, self.existing).await
    }
}

/// The settings of every connection.
pub(crate) fn options(url: &str) -> Result<SqliteConnectOptions, BoxError> {
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

/// The settings of a connection that only reads.
pub(crate) fn for_reading(options: SqliteConnectOptions) -> SqliteConnectOptions {
    options.pragma("query_only", "ON").pragma("cache_size", "-2048")
}

/// The settings of the connection that writes. Only a file that does not exist yet can learn to give space back; another one keeps what its owner chose. Not for
/// readers: the pragma waits for the write lock, even where it has nothing left to do.
pub(crate) fn for_writing(options: SqliteConnectOptions) -> SqliteConnectOptions {
    let new = !Path::new(options.get_filename()).exists();
    if new { options.auto_vacuum(SqliteAutoVacuum::Incremental) } else { options }
}

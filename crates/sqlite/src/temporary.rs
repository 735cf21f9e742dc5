//! A database for one test.

use sqlx::{Connection, SqliteConnection};
use tempfile::TempDir;

use crate::SqliteStore;

/// A SQLite file in a temporary folder, with the tables of oncebox in it: a database that belongs to one test, and goes with
/// it.
#[derive(Debug)]
pub struct TemporarySqlite {
    store: SqliteStore,
    url: String,
    _folder: TempDir,
}

impl TemporarySqlite {
    /// Makes the file and the tables.
    ///
    /// # Panics
    /// If it cannot.
    pub async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap_or_else(|e| panic!("no temporary folder: {e}"));
        let url = format!("sqlite://{}", folder.path().join("test.sqlite").display());
        let store = SqliteStore::connect(&url).await.unwrap_or_else(|e| panic!("{e}"));
        store.migrate().await.unwrap_or_else(|e| panic!("{e}"));
        Self { store, url, _folder: folder }
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> SqliteStore {
        self.store.clone()
    }

    /// The URL of the file.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A connection of the test's own: for its tables, and to see what became of them.
    ///
    /// # Panics
    /// If the file cannot be opened.
    pub async fn connect(&self) -> SqliteConnection {
        SqliteConnection::connect(&self.url).await.unwrap_or_else(|e| panic!("{e}"))
    }
}

//! A database for one test.

use mongodb::{Client, Database};
use uuid::Uuid;

use crate::MongoStore;

/// A database with the collections of oncebox in it, that belongs to one test and is dropped with this value.
#[derive(Debug)]
pub struct TemporaryMongo {
    store: MongoStore,
    url: String,
    _dropped: DroppedAtTheEnd,
}

impl TemporaryMongo {
    /// Makes the database and the collections on the replica set that this URL names, without a database.
    ///
    /// # Panics
    /// If it cannot.
    pub async fn new(server: &str) -> Self {
        let temporary = Self::empty(server).await;
        temporary.store.migrate().await.unwrap_or_else(|e| panic!("{e}"));
        temporary
    }

    /// The same without the collections.
    ///
    /// # Panics
    /// If it cannot.
    pub async fn empty(server: &str) -> Self {
        let name = format!("oncebox_test_{}", Uuid::now_v7().simple());
        let url = with_database(server, &name);
        let store = MongoStore::connect(&url).await.unwrap_or_else(|e| panic!("{e}"));
        let dropped = DroppedAtTheEnd { url: url.clone() };
        Self { store, url, _dropped: dropped }
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> MongoStore {
        self.store.clone()
    }

    /// The URL, with the name of the database.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The database on a connection of the test's own: for its collections, and to see what became of them.
    ///
    /// # Panics
    /// If there is none to be had.
    pub async fn database(&self) -> Database {
        database(&self.url).await.unwrap_or_else(|e| panic!("{e}"))
    }
}

async fn database(url: &str) -> mongodb::error::Result<Database> {
    let client = Client::with_uri_str(url).await?;
    client.default_database().ok_or_else(|| mongodb::error::Error::custom(format!("{url} names no database")))
}

/// `mongodb://host/?options` with a database in it.
fn with_database(server: &str, name: &str) -> String {
    let (address, options) = server.split_once('?').unwrap_or((server, ""));
    format!("{}/{name}?{options}", address.trim_end_matches('/'))
}

#[derive(Debug)]
struct DroppedAtTheEnd {
    url: String,
}

impl Drop for DroppedAtTheEnd {
    fn drop(&mut self) {
        let dropped = || -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async { database(&self.url).await?.drop().await })?;
            Ok(())
        };
        // Nothing can be awaited here, so a thread does. It must not panic: the test may be panicking already.
        let outcome = std::thread::scope(|scope| scope.spawn(dropped).join());
        if !matches!(outcome, Ok(Ok(()))) {
            eprintln!("the database of {} was left behind", self.url);
        }
    }
}

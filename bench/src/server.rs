//! The servers that the benchmark runs on: the same tables, the same effect, each in its own SQL.

mod mysql;
mod postgres;

use std::future::Future;

use anyhow::{Context, Result};
use oncebox::Message;
use oncebox::sql::SqlStore;
use oncebox::store::InboxStore;

pub(crate) use mysql::Mysql;
pub(crate) use postgres::Postgres;

/// What a message says.
#[derive(serde::Deserialize)]
pub(crate) struct Update {
    pub(crate) sku: String,
    pub(crate) qty: i32,
}

/// How much was applied, by the database's own clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Applied {
    /// From the first transaction to the last.
    pub(crate) seconds: f64,
    /// Effects but for those of the last transaction: they came after the time that it is known by.
    pub(crate) effects: i64,
}

/// A connection to a server.
pub(crate) trait Server: Sized + Send {
    /// The effect in SQL, per message.
    const EACH: [&'static str; 2];
    /// The effect in SQL, per batch.
    const BATCH: [&'static str; 2];

    /// What is added to the URL of a database.
    const URL_OPTIONS: &'static str = "";

    /// The store of oncebox there.
    type Store: InboxStore + SqlStore;

    fn connect(url: &str) -> impl Future<Output = Result<Self>> + Send;
    /// Makes a database.
    fn create(&mut self, name: &str) -> impl Future<Output = Result<()>> + Send;
    /// Makes the tables of the business in it.
    fn fill(&mut self) -> impl Future<Output = Result<()>> + Send;
    /// Removes a database.
    fn drop(&mut self, name: &str) -> impl Future<Output = Result<()>> + Send;
    /// At most how many effects there are, without counting them.
    fn at_most(&mut self) -> impl Future<Output = Result<i64>> + Send;
    /// How many effects there are.
    fn effects(&mut self) -> impl Future<Output = Result<i64>> + Send;
    fn applied(&mut self) -> impl Future<Output = Result<Applied>> + Send;
    /// What people write by hand: BEGIN, receipt, effect, COMMIT.
    fn apply_by_hand(&mut self, id: &str, update: &Update) -> impl Future<Output = Result<()>> + Send;
    /// The store, with its tables made.
    fn store(url: &str) -> impl Future<Output = Result<Self::Store>> + Send;
    /// The effect as a handler in Rust.
    fn deduct(
        tx: &mut <Self::Store as oncebox::store::Store>::Conn,
        message: &Message,
    ) -> impl Future<Output = oncebox::Result> + Send;
}

/// Makes a database with the business tables and returns its URL.
pub(crate) async fn database(server: &str, name: &str) -> Result<String> {
    if is_mysql(server) { make::<Mysql>(server, name).await } else { make::<Postgres>(server, name).await }
}

async fn make<S: Server>(server: &str, name: &str) -> Result<String> {
    S::connect(server).await?.create(name).await?;
    let (base, _) = server.rsplit_once('/').context("the server's URL has no database")?;
    let url = format!("{base}/{name}{}", S::URL_OPTIONS);
    S::connect(&url).await?.fill().await?;
    Ok(url)
}

/// Removes a database of the benchmark.
pub(crate) async fn drop_database(server: &str, name: &str) -> Result<()> {
    if is_mysql(server) {
        Mysql::connect(server).await?.drop(name).await
    } else {
        Postgres::connect(server).await?.drop(name).await
    }
}

/// Which of the two a URL names.
pub(crate) fn is_mysql(url: &str) -> bool {
    url.starts_with("mysql://")
}

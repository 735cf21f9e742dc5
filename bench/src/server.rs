//! The servers that the benchmark runs on: the same tables, the same effect, each in its own language.

mod mongodb;
mod mysql;
mod postgres;

use std::future::Future;

use anyhow::{Context, Result, bail};
use oncebox::store::InboxStore;
use oncebox::{Inbox, Message, Worker};

use crate::contestant::Contestant;

pub(crate) use mongodb::Mongodb;
pub(crate) use mysql::Mysql;
pub(crate) use postgres::{Postgres, apply_by_hand};

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
    /// Who takes part there.
    const CONTESTANTS: &'static [Contestant];

    /// The store of oncebox there.
    type Store: InboxStore;

    /// The effect for the daemon, per message: what stands in its configuration.
    fn each() -> String;
    /// And per batch.
    fn batch() -> String;

    /// The URL of a database on the server.
    fn url(server: &str, name: &str) -> Result<String> {
        let (base, _) = server.rsplit_once('/').context("the server's URL has no database")?;
        Ok(format!("{base}/{name}"))
    }

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
    /// What people write where transactions are not usual: receipt, then effect.
    fn apply_in_two_steps(&mut self, id: &str, update: &Update) -> impl Future<Output = Result<()>> + Send {
        let _ = update;
        async move { bail!("{id}: nobody works in two steps here") }
    }
    /// The store, with its tables made.
    fn store(url: &str) -> impl Future<Output = Result<Self::Store>> + Send;
    /// The effect as a handler in Rust.
    fn deduct(
        tx: &mut <Self::Store as oncebox::store::Store>::Conn,
        message: &Message,
    ) -> impl Future<Output = oncebox::Result> + Send;
    /// The same effect in Rust, sent as the daemon would send it.
    fn grouped(inbox: Inbox<Self::Store>) -> impl Future<Output = Result<Worker<Self::Store>>> + Send;
}

/// Does something with the kind of server that a URL names.
macro_rules! on_server {
    ($url:expr, $server:ident => $work:expr) => {
        match $crate::server::Kind::of($url) {
            $crate::server::Kind::Mongodb => {
                type $server = $crate::server::Mongodb;
                $work
            }
            $crate::server::Kind::Mysql => {
                type $server = $crate::server::Mysql;
                $work
            }
            $crate::server::Kind::Postgres => {
                type $server = $crate::server::Postgres;
                $work
            }
        }
    };
}
pub(crate) use on_server;

/// The kinds of servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Mongodb,
    Mysql,
    Postgres,
}

impl Kind {
    pub(crate) fn of(url: &str) -> Self {
        match url.split("://").next() {
            Some("mongodb") => Self::Mongodb,
            Some("mysql") => Self::Mysql,
            _ => Self::Postgres,
        }
    }
}

/// Makes a database with the business tables and returns its URL.
pub(crate) async fn database(server: &str, name: &str) -> Result<String> {
    on_server!(server, S => {
        S::connect(server).await?.create(name).await?;
        let url = S::url(server, name)?;
        S::connect(&url).await?.fill().await?;
        Ok(url)
    })
}

/// Removes a database of the benchmark.
pub(crate) async fn drop_database(server: &str, name: &str) -> Result<()> {
    on_server!(server, S => S::connect(server).await?.drop(name).await)
}

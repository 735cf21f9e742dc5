//! The demo's database: what the consumers change, and the questions that the verdict asks.

use std::path::Path;

use super::collections::Collections;
use super::pool::Pool;
use super::tables::Tables;
use crate::exit::Failure;

/// How many articles there are.
pub(crate) const SKUS: u32 = 40;
/// Stock of each of them at the start.
pub(crate) const INITIAL_STOCK: i64 = 1_000_000_000;

/// The database the consumers work on, seen with an ordinary client.
pub(crate) struct Database {
    url: String,
    data: Data,
    temporary: bool,
}

enum Data {
    Collections(Collections),
    Tables(Tables),
}

/// Asks whichever it is.
macro_rules! ask {
    ($self:ident, $question:ident) => {
        match &$self.data {
            Data::Collections(collections) => collections.$question().await,
            Data::Tables(tables) => tables.$question().await,
        }
    };
}

impl Database {
    pub(crate) async fn open(given: Option<&str>, folder: &Path) -> Result<Self, Failure> {
        let temporary = given.is_none();
        let url =
            given.map_or_else(|| format!("sqlite://{}", folder.join("demo.sqlite").display()), str::to_owned);
        let data = match Collections::connect(&url).await? {
            Some(collections) => Data::Collections(collections),
            None => Data::Tables(Tables { pool: Pool::connect(&url).await? }),
        };
        Ok(Self { url, data, temporary })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn describe(&self) -> &'static str {
        match &self.data {
            Data::Collections(_) => "your MongoDB",
            Data::Tables(tables) => match (&tables.pool, self.temporary) {
                (Pool::Sqlite(_), true) => "a temporary SQLite file",
                (Pool::Sqlite(_), false) => "your SQLite file",
                (Pool::Mysql(_), _) => "your MySQL or MariaDB",
                (Pool::Postgres(_), _) => "your PostgreSQL",
            },
        }
    }

    /// Nothing in the ledger is unique: if an effect came twice, it would be there twice.
    pub(crate) async fn prepare(&self) -> Result<(), Failure> {
        ask!(self, drop_all)?;
        ask!(self, prepare)
    }

    /// What the handler does for each message, as the configuration says it.
    pub(crate) fn steps(&self) -> [String; 2] {
        match &self.data {
            Data::Collections(_) => Collections::steps(),
            Data::Tables(tables) => tables.steps(),
        }
    }

    /// Effects applied so far.
    pub(crate) async fn effects(&self) -> Result<i64, Failure> {
        ask!(self, effects)
    }

    /// Messages with an effect.
    pub(crate) async fn distinct_effects(&self) -> Result<i64, Failure> {
        ask!(self, distinct_effects)
    }

    /// Effects that came after a later one of the same article.
    pub(crate) async fn out_of_order(&self) -> Result<i64, Failure> {
        ask!(self, out_of_order)
    }

    /// How much stock is gone: counted a second way, from the stock itself.
    pub(crate) async fn stock_taken(&self) -> Result<i64, Failure> {
        Ok(i64::from(SKUS) * INITIAL_STOCK - ask!(self, stock_left)?)
    }

    /// How much of that was taken by messages that had a mistake, and were put right.
    pub(crate) async fn taken_by_mended(&self) -> Result<i64, Failure> {
        ask!(self, taken_by_mended)
    }

    /// Messages that were given up.
    pub(crate) async fn dead_letters(&self) -> Result<i64, Failure> {
        ask!(self, dead_letters)
    }

    /// How many records of the topic are settled.
    pub(crate) async fn read_up_to(&self) -> Result<i64, Failure> {
        ask!(self, read_up_to)
    }

    /// Copies that were skipped.
    pub(crate) async fn duplicates(&self) -> Result<i64, Failure> {
        ask!(self, duplicates)
    }

    pub(crate) async fn clean_up(&self) -> Result<(), Failure> {
        if self.temporary { Ok(()) } else { ask!(self, drop_all) }
    }
}

//! The tables: versioned steps, safe from several processes at once.

use std::future::Future;

use super::StoreResult;

/// A step of the schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// Its number, ascending from 1.
    pub version: u32,
    /// What it is for.
    pub name: &'static str,
    /// Its statements, in the language of the store. The last one writes down that the database has it, so they can also be run by hand.
    pub script: String,
    /// Whether this database has it.
    pub applied: bool,
}

/// The schema of a database.
pub trait Migrate: Clone + Send + Sync + 'static {
    /// All migrations, with whether they were applied.
    fn migrations(&self) -> impl Future<Output = StoreResult<Vec<Migration>>> + Send;

    /// Applies what is missing; safe to run from several processes at once. Returns what was applied.
    fn migrate(&self) -> impl Future<Output = StoreResult<Vec<Migration>>> + Send;
}

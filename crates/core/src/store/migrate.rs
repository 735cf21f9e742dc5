//! The tables: versioned steps, safe from several processes at once.

use std::future::Future;

use super::{ErrorClass, StoreError, StoreResult};

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

/// Fails if the database has a step that this program does not know: a newer oncebox has made it, and may mean something else by
/// the tables. Stores ask this wherever they read which steps there are.
pub fn refuse_newer(applied: impl IntoIterator<Item = u32>, newest: u32) -> StoreResult<()> {
    match applied.into_iter().max().filter(|version| *version > newest) {
        None => Ok(()),
        Some(version) => Err(StoreError::new(
            ErrorClass::Failed,
            "reading the schema's version",
            format!(
                "the database has version {version} of oncebox's tables, and this oncebox knows {newest}: use the newer oncebox \
                 that has migrated them"
            ),
        )),
    }
}

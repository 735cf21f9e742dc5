//! Receipts in a table that the application already has.
//!
//! Its definition is looked at once, when it is used first, and again after an error that it may explain. Everything else
//! (positions, dead letters, the horizon, the outbox) stays in oncebox's own tables.

mod claim;
mod copy;
mod describe;
mod purge;
mod statements;

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use oncebox_core::inbox::Selector;
use oncebox_core::names::ConsumerName;
use oncebox_core::store::{
    Adopt, AdoptedUse, Adopting, CopiedPage, CopyFrom, ErrorClass, Finding, FoundTable, IdKind, PageMark,
    StoreError, StoreResult, Switched,
};

use crate::store::SqliteStore;
use statements::Statements;

pub(crate) use claim::{claim, claim_within, find_receipt, renew};
pub(crate) use purge::{receipts, receipts_estimate};

impl Adopting for SqliteStore {
    async fn check_adopted(&self, usage: AdoptedUse) -> StoreResult<Vec<Finding>> {
        match self.adopted.as_deref() {
            Some(adopted) => describe::check_adopted(self, &adopted.adopt, usage).await,
            None => Ok(Vec::new()),
        }
    }

    async fn is_switched(&self, adopt: &Adopt) -> StoreResult<bool> {
        copy::is_switched(self, adopt).await
    }

    async fn copy_receipts(&self, from: CopyFrom<'_>, page: &PageMark) -> StoreResult<CopiedPage> {
        copy::copy_receipts(self, from, page).await
    }

    async fn switch_receipts(&self, from: CopyFrom<'_>) -> StoreResult<Switched> {
        copy::switch_receipts(self, from).await
    }
}

/// The table that the store was told to take over.
pub(crate) fn adopted(store: &SqliteStore) -> Option<&Adopt> {
    store.adopted.as_deref().map(|adopted| &adopted.adopt)
}

/// Its further columns.
pub(crate) fn further(store: &SqliteStore) -> &[(String, Selector)] {
    adopted(store).map_or(&[], Adopt::further)
}

/// A table that was taken over.
pub(crate) struct Adopted {
    adopt: Adopt,
    table: Mutex<Option<Arc<Table>>>,
    /// The only one, if the table has no column for consumers.
    consumer: OnceLock<ConsumerName>,
}

/// What is known about its definition.
pub(crate) struct Table {
    adopt: Adopt,
    found: FoundTable,
    id: IdKind,
    required: Vec<bool>,
    statements: Statements,
    /// Whether its rows have numbers to walk by.
    has_rowid: bool,
}

impl fmt::Debug for Adopted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adopted").field("adopt", &self.adopt).finish_non_exhaustive()
    }
}

impl Adopted {
    pub(crate) fn new(adopt: Adopt) -> Self {
        Self { adopt, table: Mutex::default(), consumer: OnceLock::new() }
    }

    /// Its definition; an error of the environment says what is wrong with it, and goes away when that is mended.
    async fn table(&self, store: &SqliteStore) -> StoreResult<Arc<Table>> {
        let known = self.table.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(table) = known {
            return Ok(table);
        }
        let table = Arc::new(describe::table(store, &self.adopt).await?);
        *self.table.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&table));
        Ok(table)
    }

    /// An error that the table may be the reason of: it may have changed since it was looked at.
    ///
    /// No message is to blame for a table that will not do any more, such as one with a new column that nothing fills.
    async fn look_again_after(&self, store: &SqliteStore, error: StoreError) -> StoreError {
        if matches!(error.class, ErrorClass::Environment | ErrorClass::Failed) {
            *self.table.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        match error.class {
            ErrorClass::Failed => self.table(store).await.err().unwrap_or(error),
            _ => error,
        }
    }

    /// A name that the column does not hold is no message's fault.
    fn ensure_holds(&self, table: &Table, consumer: &ConsumerName) -> StoreResult<()> {
        let Some(why) = self.adopt.too_narrow(&table.found, consumer.as_str().chars().count()) else {
            return Ok(());
        };
        *self.table.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let doing = format!("claiming receipts for {consumer} in {}", self.adopt);
        Err(StoreError::new(ErrorClass::Environment, doing, why))
    }

    /// Without a column for them, the receipts of two consumers would be one.
    fn ensure_only(&self, consumer: &ConsumerName) -> StoreResult<()> {
        if self.adopt.consumer_column().is_some() {
            return Ok(());
        }
        let only = self.consumer.get_or_init(|| consumer.clone());
        if only == consumer {
            return Ok(());
        }
        let why = format!(
            "the table {} has no column for consumers, so it serves one consumer, and that is {only}",
            self.adopt
        );
        Err(StoreError::new(ErrorClass::Environment, format!("claiming receipts for {consumer}"), why))
    }
}

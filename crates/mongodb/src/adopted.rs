//! Receipts in a collection that the application already has.
//!
//! A collection has no definition, so what it is like is read from its indexes, its validator and some of its documents: once, when
//! it is used first, and again after an error that it may explain. Everything else (positions, dead letters, the horizon, the
//! outbox) stays in oncebox's own collections.

mod claim;
mod copy;
mod describe;
mod purge;

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, Document};
use mongodb::options::Collation;
use mongodb::{Collection, Database};
use oncebox_core::inbox::Selector;
use oncebox_core::names::ConsumerName;
use oncebox_core::store::{
    Adopt, AdoptedUse, Adopting, CopiedPage, CopyFrom, ErrorClass, Finding, FoundTable, IdKind, PageMark,
    StoreError, StoreResult, StoredId, Switched,
};
use uuid::Uuid;

use crate::store::MongoStore;

pub(crate) use claim::{claim, claim_within, find_receipt, renew};
pub(crate) use purge::receipts;

impl Adopting for MongoStore {
    async fn check_adopted(&self, usage: AdoptedUse) -> StoreResult<Vec<Finding>> {
        match &self.inner.adopted {
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

/// The collection that the store was told to take over.
pub(crate) fn adopted(store: &MongoStore) -> Option<&Adopt> {
    store.inner.adopted.as_ref().map(|adopted| &adopted.adopt)
}

/// Its further fields; or those that oncebox's own receipts have.
pub(crate) fn further(store: &MongoStore) -> &[(String, Selector)] {
    &store.inner.further
}

/// The collection of a mapping, beside this database: a schema is another database of the same server.
pub(crate) fn collection(database: &Database, adopt: &Adopt) -> Collection<Document> {
    match adopt.schema() {
        Some(schema) => database.client().database(schema).collection(adopt.table_name()),
        None => database.collection(adopt.table_name()),
    }
}

/// A collection that was taken over.
pub(crate) struct Adopted {
    adopt: Adopt,
    table: Mutex<Option<Arc<Table>>>,
    /// The only one, if the collection has no field for consumers.
    consumer: OnceLock<ConsumerName>,
}

/// What is known about it.
pub(crate) struct Table {
    adopt: Adopt,
    found: FoundTable,
    id: IdKind,
    /// Whether a UUID is written as text, and not as a value of its own.
    uuid_as_text: bool,
    required: Vec<bool>,
    /// The fields of the unique key, and how it compares texts; `None`: byte by byte.
    key: Vec<String>,
    collation: Option<Collation>,
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

    /// What it is like; an error of the environment says what is wrong with it, and goes away when that is mended.
    async fn table(&self, store: &MongoStore) -> StoreResult<Arc<Table>> {
        let known = self.table.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(table) = known {
            return Ok(table);
        }
        let table = Arc::new(describe::table(store, &self.adopt).await?);
        *self.table.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&table));
        Ok(table)
    }

    /// An error that the collection may be the reason of: it may have changed since it was looked at.
    ///
    /// No message is to blame for a collection that will not do any more, such as one with a new validator.
    async fn look_again_after(&self, store: &MongoStore, error: StoreError) -> StoreError {
        if matches!(error.class, ErrorClass::Environment | ErrorClass::Failed) {
            *self.table.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        match error.class {
            ErrorClass::Failed => self.table(store).await.err().unwrap_or(error),
            _ => error,
        }
    }

    /// Without a field for them, the receipts of two consumers would be one.
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

impl Table {
    /// An id as a document holds it.
    fn written(&self, id: &StoredId) -> Bson {
        match id {
            StoredId::Text(text) => Bson::String(text.clone()),
            StoredId::Uuid(id) if self.uuid_as_text => Bson::String(id.to_string()),
            StoredId::Uuid(id) => {
                Bson::Binary(Binary { subtype: BinarySubtype::Uuid, bytes: id.as_bytes().to_vec() })
            }
            StoredId::Bytes(bytes) => {
                Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: bytes.clone() })
            }
        }
    }

    fn key_has(&self, column: Option<&str>) -> bool {
        column.is_some_and(|column| self.key.iter().any(|one| one == column))
    }
}

/// An id from a document; `None` for what no id is written as.
pub(crate) fn stored_id(value: &Bson) -> Option<StoredId> {
    match value {
        Bson::String(text) => Some(StoredId::Text(text.clone())),
        Bson::Binary(Binary { subtype: BinarySubtype::Uuid, bytes }) => {
            Uuid::from_slice(bytes).ok().map(StoredId::Uuid)
        }
        Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes }) => {
            Some(StoredId::Bytes(bytes.clone()))
        }
        _ => None,
    }
}

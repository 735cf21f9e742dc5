//! Operations on a collection inside the transaction.

use std::borrow::Borrow;
use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;

use futures_util::TryStreamExt;
use mongodb::Collection;
use mongodb::action::{
    Aggregate, CountDocuments, Delete, Find, FindOne, FindOneAndDelete, FindOneAndReplace, FindOneAndUpdate,
    InsertMany, InsertOne, ReplaceOne, Update,
};
use mongodb::bson::{Document, doc, serialize_to_document};
use mongodb::error::Result;
use mongodb::options::UpdateModifications;
use mongodb::results::{DeleteResult, InsertManyResult, InsertOneResult, UpdateResult};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::MongoTx;
use super::writes::Kind;

/// A collection inside the transaction. The operations are the driver's; their options are set with [`Operation::with`].
///
/// The ones that end in `later` wait for no answer: they are sent together, before the next operation that does and at the
/// end of the batch, so that many messages cost a few round trips. Their errors come then.
pub struct TxCollection<'t, T: Send + Sync> {
    collection: Collection<T>,
    tx: &'t mut MongoTx,
}

impl<T: Send + Sync> fmt::Debug for TxCollection<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxCollection").field("name", &self.collection.name()).finish_non_exhaustive()
    }
}

impl<'t, T: Send + Sync> TxCollection<'t, T> {
    pub(super) fn new(collection: Collection<T>, tx: &'t mut MongoTx) -> Self {
        Self { collection, tx }
    }

    /// The first document that matches.
    pub fn find_one(&mut self, filter: Document) -> Operation<'_, FindOne<'_, T>>
    where
        T: DeserializeOwned,
    {
        Operation { action: self.collection.find_one(filter), tx: self.tx }
    }

    /// All documents that match. Bound them: `.with(|find| find.limit(100))`.
    pub fn find(&mut self, filter: Document) -> Operation<'_, Find<'_, T>> {
        Operation { action: self.collection.find(filter), tx: self.tx }
    }

    /// What a pipeline yields.
    pub fn aggregate(
        &mut self,
        pipeline: impl IntoIterator<Item = Document>,
    ) -> Operation<'_, Aggregate<'_>> {
        Operation { action: self.collection.aggregate(pipeline), tx: self.tx }
    }

    /// How many documents match.
    pub fn count_documents(&mut self, filter: Document) -> Operation<'_, CountDocuments<'_>> {
        Operation { action: self.collection.count_documents(filter), tx: self.tx }
    }

    /// Changes the first document that matches.
    pub fn update_one(
        &mut self,
        filter: Document,
        update: impl Into<UpdateModifications>,
    ) -> Operation<'_, Update<'_>> {
        Operation { action: self.collection.update_one(filter, update), tx: self.tx }
    }

    /// Changes all documents that match.
    pub fn update_many(
        &mut self,
        filter: Document,
        update: impl Into<UpdateModifications>,
    ) -> Operation<'_, Update<'_>> {
        Operation { action: self.collection.update_many(filter, update), tx: self.tx }
    }

    /// Removes the first document that matches.
    pub fn delete_one(&mut self, filter: Document) -> Operation<'_, Delete<'_>> {
        Operation { action: self.collection.delete_one(filter), tx: self.tx }
    }

    /// Removes all documents that match.
    pub fn delete_many(&mut self, filter: Document) -> Operation<'_, Delete<'_>> {
        Operation { action: self.collection.delete_many(filter), tx: self.tx }
    }

    /// Changes the first document that matches, and returns it.
    pub fn find_one_and_update(
        &mut self,
        filter: Document,
        update: impl Into<UpdateModifications>,
    ) -> Operation<'_, FindOneAndUpdate<'_, T>>
    where
        T: DeserializeOwned,
    {
        Operation { action: self.collection.find_one_and_update(filter, update), tx: self.tx }
    }

    /// Removes the first document that matches, and returns it.
    pub fn find_one_and_delete(&mut self, filter: Document) -> Operation<'_, FindOneAndDelete<'_, T>>
    where
        T: DeserializeOwned,
    {
        Operation { action: self.collection.find_one_and_delete(filter), tx: self.tx }
    }

    /// Queues a change of the first document that matches.
    ///
    /// # Errors
    /// If the documents cannot be written as BSON.
    pub fn update_one_later(
        &mut self,
        filter: Document,
        update: impl Into<UpdateModifications>,
    ) -> Result<()> {
        self.update_later(filter, update.into(), false)
    }

    /// Queues a change of the first document that matches; if none does, one is made of filter and change.
    ///
    /// # Errors
    /// If the documents cannot be written as BSON.
    pub fn upsert_one_later(
        &mut self,
        filter: Document,
        update: impl Into<UpdateModifications>,
    ) -> Result<()> {
        self.update_later(filter, update.into(), true)
    }

    fn update_later(&mut self, filter: Document, update: UpdateModifications, upsert: bool) -> Result<()> {
        let mut item = doc! { "q": filter, "upsert": upsert };
        match update {
            UpdateModifications::Document(change) => item.insert("u", change),
            UpdateModifications::Pipeline(stages) => item.insert("u", stages),
            other => return Err(mongodb::error::Error::custom(format!("{other:?} cannot be queued"))),
        };
        self.tx.later.push(self.collection.name(), Kind::Update, item)
    }

    /// Queues the removal of the first document that matches.
    ///
    /// # Errors
    /// If the filter cannot be written as BSON.
    pub fn delete_one_later(&mut self, filter: Document) -> Result<()> {
        self.tx.later.push(self.collection.name(), Kind::Delete, doc! { "q": filter, "limit": 1 })
    }
}

impl<T: Send + Sync + Serialize> TxCollection<'_, T> {
    /// Adds a document.
    pub fn insert_one(&mut self, document: impl Borrow<T>) -> Operation<'_, InsertOne<'_>> {
        Operation { action: self.collection.insert_one(document), tx: self.tx }
    }

    /// Adds documents.
    pub fn insert_many(
        &mut self,
        documents: impl IntoIterator<Item = impl Borrow<T>>,
    ) -> Operation<'_, InsertMany<'_>> {
        Operation { action: self.collection.insert_many(documents), tx: self.tx }
    }

    /// Replaces the first document that matches.
    pub fn replace_one(
        &mut self,
        filter: Document,
        replacement: impl Borrow<T>,
    ) -> Operation<'_, ReplaceOne<'_>> {
        Operation { action: self.collection.replace_one(filter, replacement), tx: self.tx }
    }

    /// Replaces the first document that matches, and returns it.
    pub fn find_one_and_replace(
        &mut self,
        filter: Document,
        replacement: impl Borrow<T>,
    ) -> Operation<'_, FindOneAndReplace<'_, T>>
    where
        T: DeserializeOwned,
    {
        Operation { action: self.collection.find_one_and_replace(filter, replacement), tx: self.tx }
    }

    /// Queues a document to be added.
    ///
    /// # Errors
    /// If it cannot be written as BSON.
    pub fn insert_later(&mut self, document: impl Borrow<T>) -> Result<()> {
        let document = serialize_to_document(document.borrow())?;
        self.tx.later.push(self.collection.name(), Kind::Insert, document)
    }
}

/// An operation of the driver that is about to run in the transaction: `.await` runs it.
#[must_use = "it runs when it is awaited"]
pub struct Operation<'t, A> {
    action: A,
    tx: &'t mut MongoTx,
}

impl<A> fmt::Debug for Operation<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation").finish_non_exhaustive()
    }
}

impl<A> Operation<'_, A> {
    /// Sets options of the driver: `.with(|update| update.upsert(true))`. The session is set already.
    pub fn with(mut self, options: impl FnOnce(A) -> A) -> Self {
        self.action = options(self.action);
        self
    }
}

type Answer<'t, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 't>>;

/// What was queued goes first, so an operation sees what was written before it.
macro_rules! runs {
    ($($action:ty => $output:ty $(, where $t:ident: $bound:path)?;)+) => { $(
        impl<'t $(, $t: $bound + Send + Sync + 't)?> IntoFuture for Operation<'t, $action> {
            type Output = Result<$output>;
            type IntoFuture = Answer<'t, $output>;

            fn into_future(self) -> Self::IntoFuture {
                let Self { action, tx } = self;
                Box::pin(async move {
                    tx.flush().await?;
                    tx.starting();
                    let outcome = action.session(&mut tx.session).await;
                    tx.note(&outcome);
                    outcome
                })
            }
        }
    )+ };
}

runs! {
    InsertOne<'t> => InsertOneResult;
    InsertMany<'t> => InsertManyResult;
    Update<'t> => UpdateResult;
    ReplaceOne<'t> => UpdateResult;
    Delete<'t> => DeleteResult;
    CountDocuments<'t> => u64;
    FindOne<'t, T> => Option<T>, where T: DeserializeOwned;
    FindOneAndUpdate<'t, T> => Option<T>, where T: DeserializeOwned;
    FindOneAndReplace<'t, T> => Option<T>, where T: DeserializeOwned;
    FindOneAndDelete<'t, T> => Option<T>, where T: DeserializeOwned;
}

/// The same for those that answer with a cursor, which is read to its end.
macro_rules! lists {
    ($($action:ty => $item:ty $(, where $t:ident: $bound:path)?;)+) => { $(
        impl<'t $(, $t: $bound + Send + Sync + 't)?> IntoFuture for Operation<'t, $action> {
            type Output = Result<Vec<$item>>;
            type IntoFuture = Answer<'t, Vec<$item>>;

            fn into_future(self) -> Self::IntoFuture {
                let Self { action, tx } = self;
                Box::pin(async move {
                    tx.flush().await?;
                    tx.starting();
                    let outcome = match action.session(&mut tx.session).await {
                        Ok(mut cursor) => cursor.stream(&mut tx.session).try_collect().await,
                        Err(error) => Err(error),
                    };
                    tx.note(&outcome);
                    outcome
                })
            }
        }
    )+ };
}

lists! {
    Find<'t, T> => T, where T: DeserializeOwned;
    Aggregate<'t> => Document;
}

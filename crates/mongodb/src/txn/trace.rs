//! What a transaction leaves behind if it is committed. A handler that has had the session in its hands may have done that, and the
//! driver does not say so: this is the only way to see it afterwards.

use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::options::ReadConcern;
use mongodb::{Collection, Namespace};
use oncebox_core::store::{ErrorClass, StoreError};

use crate::store::MongoStore;

/// The receipts of a batch.
#[derive(Debug)]
pub(crate) struct Trace {
    receipts: Namespace,
    keys: Vec<Bson>,
    /// When they were written, in oncebox's own collection: who else may have written them meanwhile has another time.
    written_at: Option<DateTime>,
}

impl Trace {
    pub(crate) fn new(
        receipts: &Collection<Document>,
        keys: impl IntoIterator<Item = Bson>,
        written_at: Option<DateTime>,
    ) -> Self {
        Self { receipts: receipts.namespace(), keys: keys.into_iter().collect(), written_at }
    }

    /// Whether it is there, all of it.
    pub(super) async fn is_left(&self, store: &MongoStore) -> bool {
        let mut filter = doc! { "_id": { "$in": &self.keys } };
        if let Some(at) = self.written_at {
            filter.insert("processed_at", at);
        }
        let client = store.inner.aside.client();
        let receipts: Collection<Document> =
            client.database(&self.receipts.db).collection(&self.receipts.coll);
        match receipts.count_documents(filter).read_concern(ReadConcern::majority()).await {
            Ok(count) => count == self.keys.len() as u64,
            Err(error) => {
                tracing::debug!(%error, "nobody can tell whether a handler has committed");
                false
            }
        }
    }
}

/// The handler has committed the transaction of a batch.
pub(super) fn torn(doing: &str) -> StoreError {
    let why = "the handler has committed the transaction that oncebox began, with the receipts of the batch: what stood before \
               is committed, and what came after is undone. Leave the commit to oncebox";
    StoreError::new(ErrorClass::Torn, doing, why)
}

//! What purge has to know about an adopted collection.

use oncebox_core::store::{ErrorClass, Retention, StoreError, StoreResult};

use super::collection;
use crate::purge::{Letters, Receipts};
use crate::store::MongoStore;

/// Where the receipts are and which of them may go; `None` if none ever are, because nobody knows how old they are.
pub(crate) async fn receipts(store: &MongoStore, retention: &[Retention]) -> StoreResult<Option<Receipts>> {
    let Some(adopted) = &store.inner.adopted else { return Ok(Some(Receipts::own(&store.inner.aside))) };
    let table = adopted.table(store).await?;
    let adopt = &table.adopt;
    let Some(time) = adopt.processed_at_column().filter(|_| adopt.is_purged(&table.found)) else {
        return Ok(None);
    };
    if adopt.consumer_column().is_none() && retention.len() > 1 {
        let why = format!("the table {adopt} has no column for consumers, so it serves one consumer only");
        return Err(StoreError::new(ErrorClass::Failed, "purging receipts", why));
    }
    Ok(Some(Receipts {
        collection: collection(&store.inner.aside, adopt),
        id: adopt.message_id_column().to_owned(),
        consumer: adopt.consumer_column().map(str::to_owned),
        only: retention.first().map(|retention| retention.consumer.as_str().to_owned()),
        tenant: adopt.tenant_column().map(str::to_owned),
        time: time.to_owned(),
        letters: if table.id.is_uuid() { Letters::Uuids } else { Letters::Plain },
        kind: table.id,
    }))
}

//! Writing events into a transaction that is somebody else's.

use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Document, doc};
use oncebox_core::error::Error;
use oncebox_core::outbox::{Emit, Event, EventRow, emit_all};
use oncebox_core::store::{ErrorClass, StoreError, StoreResult};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::READY;
use crate::claim::now_of;
use crate::store::MongoStore;
use crate::time::date;
use crate::tx::MongoTx;

impl Emit<MongoStore> for MongoTx {
    async fn emit(&mut self, event: Event) -> Result<Uuid, Error> {
        emit_all::<MongoStore>(self, std::slice::from_ref(&event)).await?;
        Ok(event.id())
    }

    async fn emit_all(&mut self, events: &[Event]) -> Result<(), Error> {
        emit_all::<MongoStore>(self, events).await
    }
}

/// The most bytes of an event. A document ends at 16 MiB, and what stands around the event needs a place too.
const MAX_EVENT_BYTES: usize = 15 * 1024 * 1024;

/// Writes events in their order. Their numbers are drawn when they are sent, all together.
pub(super) async fn write_events(tx: &mut MongoTx, events: &[EventRow<'_>]) -> StoreResult<()> {
    if events.is_empty() {
        return Ok(());
    }
    let at = date(now_of(tx));
    let documents = events.iter().map(|event| document(event, at)).collect::<StoreResult<_>>()?;
    tx.write_events(documents).await
}

/// The event as it lies in the outbox, without its number.
fn document(event: &EventRow<'_>, at: DateTime) -> StoreResult<Document> {
    let bytes = event.key.map_or(0, <[u8]>::len) + event.payload.map_or(0, <[u8]>::len) + event.headers.len();
    if bytes > MAX_EVENT_BYTES {
        return Err(StoreError::new(
            ErrorClass::Failed,
            format!("writing event {} to {}", event.id, event.topic),
            format!(
                "it has {bytes} bytes, more than {MAX_EVENT_BYTES}: a document of MongoDB ends at 16 MiB. Put the content where \
                 its readers find it, and its address into the event"
            ),
        ));
    }
    let id = event.id.to_string();
    Ok(doc! {
        // The number comes later, but in front.
        "_id": 0_i64,
        "topic": event.topic,
        "key": binary(event.key),
        "payload": binary(event.payload),
        "headers": &event.headers,
        "created_at": at,
        "deliver_at": event.deliver_at_ms.map(date),
        "consumer": &event.consumer,
        "tenant": &event.tenant,
        "causation_id": &event.causation_id,
        "attempts": 0,
        "error": Bson::Null,
        "state": READY,
        "held_until": Bson::Null,
        "parked_at": Bson::Null,
        "published_at": Bson::Null,
        "shard": shard_of(event.key.unwrap_or(id.as_bytes())),
        "bytes": i64::try_from(bytes).unwrap_or(i64::MAX),
        "id": id,
    })
}

/// Who publishes it. Events without a key need no order, and are spread by their ids.
fn shard_of(key: &[u8]) -> i32 {
    let hash: [u8; 32] = Sha256::digest(key).into();
    i32::from(hash[0] & 15)
}

fn binary(bytes: Option<&[u8]>) -> Bson {
    bytes.map_or(Bson::Null, |bytes| {
        Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_same_shard_as_in_the_other_stores() {
        // The last four bits of the hashes' first bytes.
        assert_eq!((shard_of(b""), shard_of(b"abc")), (3, 10));
    }

    #[test]
    fn an_event_beyond_a_document_is_refused() {
        let event = Event::to("orders").bytes(vec![0; MAX_EVENT_BYTES]);
        let error = document(&event.row().unwrap(), date(0)).unwrap_err();
        assert_eq!(error.class, ErrorClass::Failed);
        assert!(oncebox_core::error::describe(&error).contains("to orders"), "{error}");
    }
}

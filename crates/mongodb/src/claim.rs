//! Receipts: written first, all of a batch together.
//!
//! MongoDB has no insert that leaves out what is there, and does not wait for another transaction. So receipts are looked for
//! in the snapshot of the transaction, and the missing ones are written: whoever has written one of them meanwhile, open or
//! committed, makes that fail at once. Then everything begins anew, with a new snapshot, until the other one has ended.

use std::collections::HashMap;

use futures_util::TryStreamExt;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Document, RawDocumentBuf, doc};
use mongodb::error::Result;
use oncebox_core::inbox::Fingerprint;
use oncebox_core::names::ConsumerName;
use oncebox_core::store::{Claim, Claimed, ErrorClass, StoreError, StoreResult};

use crate::classify::Context;
use crate::rerun::rerun;
use crate::store::{MongoStore, explained_within};
use crate::time::{date, now_ms};
use crate::tx::MongoTx;
use crate::txn::{MongoTxn, Trace};

const DOING: &str = "claiming receipts";
pub(crate) const INBOX: &str = "oncebox_inbox";
/// The field that says what kind of message it was, if the store was told where that stands.
pub(crate) const EVENT_TYPE: &str = "event_type";

/// The field that says what the payload was, where copies are compared with it.
const FINGERPRINT: &str = "fingerprint";

/// What a claim found.
#[derive(Default)]
struct Found {
    /// Which receipts were not there before.
    fresh: Vec<bool>,
    /// Which have the key of another message's receipt.
    collisions: Vec<usize>,
    /// The fingerprints of those that were there, if copies are compared.
    fingerprints: Vec<(usize, Fingerprint)>,
}

/// Opens the transaction and writes the receipts.
pub(crate) async fn claim(
    store: &MongoStore,
    consumer: &ConsumerName,
    claims: &[Claim<'_>],
) -> StoreResult<Claimed<MongoTxn>> {
    rerun(store, || claim_once(store, consumer, claims)).await
}

async fn claim_once(
    store: &MongoStore,
    consumer: &ConsumerName,
    claims: &[Claim<'_>],
) -> StoreResult<Claimed<MongoTxn>> {
    let mut txn = store.begin().await?;
    match write_missing(&mut txn, consumer, claims).await.context_of_claim(DOING) {
        Ok(Found { fresh, collisions, fingerprints }) => {
            Ok(Claimed { txn, fresh, collisions, refused: Vec::new(), fingerprints })
        }
        Err(error) => {
            txn.rollback().await;
            Err(error)
        }
    }
}

/// The same in a transaction of somebody else. It cannot begin anew, so a concurrent copy is an error.
pub(crate) async fn claim_within(
    tx: &mut MongoTx,
    consumer: &ConsumerName,
    claims: &[Claim<'_>],
) -> StoreResult<Vec<bool>> {
    let refused = |why: String| StoreError::new(ErrorClass::Failed, DOING, why);
    // Without one the receipts would be there before their effects, and a crash in between would lose the messages.
    tx.is_open().await.map_err(refused)?;
    tx.starting();
    let written = write_missing(tx, consumer, claims).await;
    tx.note_ours(&written);
    let Found { fresh, collisions, .. } = match written.context(DOING) {
        Ok(found) => found,
        Err(error) => return Err(explained_within(&tx.database, error).await),
    };
    if let Some(other) = collisions.first().and_then(|at| claims.get(*at)) {
        return Err(refused(format!(
            "message {:?} of consumer {consumer} was not applied, but its receipt belongs to another message. Ids \
             that collide are made on purpose: look at who sends them, and give the message another id",
            other.message_id
        )));
    }
    Ok(fresh)
}

async fn write_missing(tx: &mut MongoTx, consumer: &ConsumerName, claims: &[Claim<'_>]) -> Result<Found> {
    if claims.is_empty() {
        return Ok(Found::default());
    }
    let there = receipts_there(tx, claims).await?;
    let at = date(now_of(tx));
    let (mut found, mut missing) = (Found::default(), Vec::new());
    for (index, claim) in claims.iter().enumerate() {
        let receipt = there.get(claim.key.as_bytes().as_slice());
        found.fresh.push(receipt.is_none());
        match receipt {
            None => missing.push(receipt_of(consumer, claim, at)),
            Some(whose) if !whose.is_of(consumer, claim) => found.collisions.push(index),
            Some(whose) => found.fingerprints.extend(whose.fingerprint.map(|first| (index, first))),
        }
    }
    if !missing.is_empty() {
        let inbox = tx.database.collection::<Document>(INBOX);
        let written = inbox.insert_many(missing).session(&mut tx.session).await?;
        tx.leaves(Trace::new(&inbox, written.inserted_ids.into_values(), Some(at)));
    }
    Ok(found)
}

/// A receipt as it is written. If the store was told where the type of a message is, it says that too, and when the message
/// came: that is when it was first claimed here, and a replay does not change it.
fn receipt_of(consumer: &ConsumerName, claim: &Claim<'_>, at: DateTime) -> Document {
    let mut receipt = doc! {
        "_id": key(claim),
        "consumer": consumer.as_str(),
        "tenant": claim.tenant,
        "message_id": claim.message_id,
        "processed_at": at,
    };
    if let Some(fingerprint) = &claim.fingerprint {
        receipt.insert(FINGERPRINT, binary(fingerprint.as_bytes()));
    }
    if let [event_type] = claim.set {
        if let Some(event_type) = event_type {
            receipt.insert(EVENT_TYPE, event_type);
        }
        receipt.insert("received_at", at);
    }
    receipt
}

/// The receipts that are in the snapshot, by their keys.
async fn receipts_there(tx: &mut MongoTx, claims: &[Claim<'_>]) -> Result<HashMap<Vec<u8>, Whose>> {
    let keys: Vec<Bson> = claims.iter().map(|claim| key(claim).into()).collect();
    let mut fields = doc! { "consumer": 1, "tenant": 1, "message_id": 1 };
    if claims.iter().any(|claim| claim.fingerprint.is_some()) {
        fields.insert(FINGERPRINT, 1);
    }
    let inbox = tx.database.collection::<RawDocumentBuf>(INBOX);
    let mut found = inbox
        .find(doc! { "_id": { "$in": keys } })
        .projection(fields)
        // All in one answer.
        .batch_size(u32::try_from(claims.len() + 1).unwrap_or(u32::MAX))
        .session(&mut tx.session)
        .await?;
    let mut there = HashMap::new();
    let mut receipts = found.stream(&mut tx.session);
    while let Some(receipt) = receipts.try_next().await? {
        let text = |name| receipt.get_str(name).unwrap_or_default().to_owned();
        let fingerprint = receipt.get_binary(FINGERPRINT).ok();
        let whose = Whose {
            consumer: text("consumer"),
            tenant: text("tenant"),
            message_id: text("message_id"),
            fingerprint: fingerprint
                .and_then(|it| <[u8; 16]>::try_from(it.bytes).ok())
                .map(Fingerprint::from),
        };
        there.insert(receipt.get_binary("_id").map_or_else(|_| Vec::new(), |key| key.bytes.to_vec()), whose);
    }
    Ok(there)
}

/// Whose a receipt is that was there before.
struct Whose {
    consumer: String,
    tenant: String,
    message_id: String,
    fingerprint: Option<Fingerprint>,
}

impl Whose {
    fn is_of(&self, consumer: &ConsumerName, claim: &Claim<'_>) -> bool {
        self.message_id == claim.message_id
            && self.tenant == claim.tenant
            && self.consumer == consumer.as_str()
    }
}

pub(crate) fn key(claim: &Claim<'_>) -> Binary {
    binary(claim.key.as_bytes())
}

fn binary(bytes: &[u8]) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() }
}

/// The later of our clock and the cluster's dates a receipt, so that one that was set back does not make it look old.
pub(crate) fn now_of(tx: &MongoTx) -> i64 {
    let cluster = tx.session.operation_time().map_or(0, |at| i64::from(at.time) * 1000);
    now_ms().max(cluster)
}

/// Writes a receipt, or makes the one that exists as young as a new one. Not that of another message: its receipt is of the
/// same key, and not ours to touch.
pub(crate) async fn renew(txn: &mut MongoTxn, consumer: &ConsumerName, claim: Claim<'_>) -> StoreResult<()> {
    let doing = "renewing a receipt";
    let found = write_missing(txn, consumer, std::slice::from_ref(&claim)).await.context(doing)?;
    if found.fresh == [true] {
        return Ok(());
    }
    let at = date(now_of(txn));
    let own = doc! {
        "_id": key(&claim), "consumer": consumer.as_str(), "tenant": claim.tenant, "message_id": claim.message_id,
    };
    let tx: &mut MongoTx = txn;
    let inbox = tx.database.collection::<Document>(INBOX);
    let renewed = inbox.update_one(own, doc! { "$max": { "processed_at": at } });
    renewed.session(&mut tx.session).await.context(doing)?;
    Ok(())
}
